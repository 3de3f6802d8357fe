//! The choice among endpoints.
