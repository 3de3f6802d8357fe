//! Finishes a linked plugin.
fn main() {}
