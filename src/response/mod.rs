//! Responses: first tokens, usage, load headers; looked at, never held, never changed.
