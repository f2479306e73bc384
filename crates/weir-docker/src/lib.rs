//! Docker volume plugin: volumes of Weir as volumes of containers (`docker run --volume-driver weir`).
//!
//! The plugin is a program of its own beside the daemon, in the mount namespace of dockerd. It translates the calls
//! of Docker's protocol into requests to the daemon, and mounts what the daemon has attached. No data passes through
//! it: it may end and start again at any time. It does not know how a volume becomes a block device.
//!
//! * [`callers`]: who has a volume mounted.
//! * [`volumes`]: each call of the protocol.
//! * [`server`]: the socket where dockerd calls.

#![forbid(unsafe_code)]

pub mod callers;
mod protocol;
mod server;
pub mod volumes;

pub use server::{ServeError, Settings, serve};
