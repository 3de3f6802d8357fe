//! A store as this plugin uses it: messages are appended for a while, and read since a place.
//!
//! Three kinds of calls: [`What::Put`] appends a message, [`What::Read`] asks for what is new,
//! [`What::Keep`] keeps what was put from outliving its writer, and from going too soon.

use crate::clock::Millis;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Append a message.
    Put,
    /// Read what is new.
    Read,
    /// Keep what was put alive.
    Keep,
}

/// A call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// What for.
    pub what: What,
    /// Path of the HTTP request; empty for a store that does not speak HTTP.
    pub path: &'static str,
    /// The query, or the request's body.
    pub bytes: Vec<u8>,
}

/// Why a call did not do what it should, for people: never with a word of the configuration in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble(pub String);

impl Trouble {
    /// An answer that is none of the store's.
    #[must_use]
    pub fn unreadable() -> Self {
        Self("its answer cannot be read".to_owned())
    }
}

/// A store's protocol.
pub trait Store {
    /// For the replicas of `group`.
    fn new(group: &str) -> Self;
    /// The call that keeps things alive, when it is due.
    fn keep(&mut self, now: Millis) -> Option<Query>;
    /// The call that appends message `number` of `process`; `None` = not possible yet.
    fn put(&mut self, process: u64, number: u32, message: &[u8]) -> Option<Query>;
    /// The call that reads what is new; `None` = no message was put yet, which tells where the present is.
    fn read(&mut self) -> Option<Query>;
    /// Forgets up to where was read: reading goes on at the present.
    fn skip(&mut self);
    /// Takes in an answer; hands every message that was read to `take`.
    ///
    /// # Errors
    /// The store refused the call, or the answer is none of its.
    fn answer(
        &mut self,
        what: What,
        status: u32,
        body: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Trouble>;
}
