//! How the daemon deals with its host: log lines, processor time, folders, listening sockets, the cgroups of processes, the
//! peers and the number of their connections, and the secret that a peer shows.
//!
//! It knows no protocol: exports and the API each have their own listeners.

#![forbid(unsafe_code)]

pub mod budget;
pub mod folders;
pub mod line_gate;
pub mod logging;
pub mod peer;
pub mod process_cgroups;
pub mod processor;
pub mod socket;
pub mod token;
