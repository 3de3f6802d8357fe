//! Status codes that proxy-wasm hosts answer.

/// A host call's result, as the number that crosses the boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// Done.
    pub const OK: Self = Self(0);
    /// No such key, property, buffer or function.
    pub const NOT_FOUND: Self = Self(1);
    /// An argument that makes no sense here.
    pub const BAD_ARGUMENT: Self = Self(2);
    /// A header map or path that does not parse.
    pub const PARSE_FAILURE: Self = Self(4);
    /// A pointer outside the guest's memory, or an allocation that failed.
    pub const INVALID_MEMORY_ACCESS: Self = Self(6);
    /// The queue holds nothing.
    pub const EMPTY: Self = Self(7);
    /// Somebody else wrote first.
    pub const CAS_MISMATCH: Self = Self(8);
    /// The host failed.
    pub const INTERNAL_FAILURE: Self = Self(10);
    /// The host knows the call and does not do it.
    pub const UNIMPLEMENTED: Self = Self(12);
}
