//! Prefix index: which endpoints probably hold a prompt's blocks.
