//! Parts that all listeners of the daemon share: peers, limits on connections, bound sockets, and trusted
//! folders.
//!
//! It knows no protocol: exports and the API each have their own listeners.

pub mod budget;
pub mod peer;
pub mod socket;
