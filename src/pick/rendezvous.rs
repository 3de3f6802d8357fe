//! Rendezvous hashing: the highest hash of (key, endpoint) wins.
//!
//! Everybody who knows the same endpoints agrees without a word, and an endpoint that comes or goes
//! moves only the keys that are its own.

/// The weight of an endpoint for a key; the highest is the key's home.
#[must_use]
pub fn weight(key: u64, name_hash: u64) -> u64 {
    // Two rounds of multiply and fold: both inputs are hashes already, they only have to mix.
    let mut x = key.rotate_left(32) ^ name_hash;
    x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}
