//! What the daemon's listeners have in common: who is at the other end, how many of them are let in, which sockets
//! are bound, and which folders may be relied on.
//!
//! It knows neither protocol: exports and the API each have their own listeners.

pub mod budget;
pub mod peer;
pub mod socket;
