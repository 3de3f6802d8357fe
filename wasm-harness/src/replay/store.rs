//! The replicas' store in simulated time: a Redis stream with the three commands that the plugin sends.
//!
//! What a real Redis does is tried in `tests/replicas/`; here only the network is simulated: an answer comes as
//! soon as the worker's tick is over.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::rc::Rc;

/// A store. Cloning gives another handle of the same one.
#[derive(Clone, Debug, Default)]
pub struct Store(Rc<RefCell<Stream>>);

#[derive(Debug, Default)]
struct Stream {
    entries: VecDeque<((u64, u64), Vec<u8>)>,
    last: (u64, u64),
}

impl Store {
    /// The reply to a command.
    ///
    /// # Panics
    /// On a command that the plugin does not send.
    #[must_use]
    pub fn answer(&self, query: &[u8], now_ms: u64) -> Vec<u8> {
        let parts = parts(query);
        let mut stream = self.0.borrow_mut();
        match parts.first().map(Vec::as_slice) {
            Some(b"XADD") => {
                let next = (stream.last.0, stream.last.1 + 1);
                stream.last = next.max((now_ms, 0));
                let (id, most) = (stream.last, number(&parts[4]));
                stream.entries.push_back((id, parts[7].clone()));
                while stream.entries.len() as u64 > most {
                    stream.entries.pop_front();
                }
                bulk(format!("{}-{}", id.0, id.1).as_bytes())
            }
            Some(b"XREAD") => {
                let from = String::from_utf8_lossy(&parts[5]).into_owned();
                let (ms, at) = from.split_once('-').expect("an id");
                let from = (number(ms.as_bytes()), number(at.as_bytes()));
                let new = stream.entries.iter().filter(|(id, _)| *id > from);
                let new: Vec<_> = new.take(number(&parts[2]) as usize).collect();
                if new.is_empty() {
                    return b"*-1\r\n".to_vec();
                }
                let mut reply = b"*1\r\n*2\r\n".to_vec();
                reply.extend(bulk(&parts[4]));
                reply.extend(format!("*{}\r\n", new.len()).into_bytes());
                for (id, message) in new {
                    reply.extend(b"*2\r\n");
                    reply.extend(bulk(format!("{}-{}", id.0, id.1).as_bytes()));
                    reply.extend(b"*2\r\n$1\r\nm\r\n");
                    reply.extend(bulk(message));
                }
                reply
            }
            Some(b"PEXPIRE") => b":1\r\n".to_vec(),
            other => panic!("no such command: {other:?}"),
        }
    }
}

fn number(text: &[u8]) -> u64 {
    String::from_utf8_lossy(text).parse().expect("a number")
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    let mut head = String::new();
    let _ = write!(head, "${}\r\n", bytes.len());
    [head.as_bytes(), bytes, b"\r\n"].concat()
}

/// The parts of a command in RESP.
fn parts(query: &[u8]) -> Vec<Vec<u8>> {
    let line = |rest: &mut &[u8]| -> usize {
        let end = rest.iter().position(|byte| *byte == b'\r').expect("a line");
        let (line, behind) = rest.split_at(end);
        *rest = &behind[2..];
        number(&line[1..]) as usize
    };
    let mut rest = query;
    let count = line(&mut rest);
    let part = |_| {
        let size = line(&mut rest);
        let (part, behind) = rest.split_at(size);
        rest = &behind[2..];
        part.to_vec()
    };
    (0..count).map(part).collect()
}
