//! The host against hand-written guests: every host function, every rule of the filter chain.

mod bodies;
mod calls;
mod faults;
mod guest;
mod headers;
mod higress;
mod load;
mod shared;
