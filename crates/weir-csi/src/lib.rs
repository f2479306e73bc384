//! CSI driver: volumes of Weir as volumes of Kubernetes (Container Storage Interface 1.13).
//!
//! The driver translates calls to requests of the daemon's API, and mounts what the daemon attached. It keeps nothing: what
//! exists is asked of the daemon and of the mount table, so that every call can be repeated after a crash. It is never in
//! the way of data.
//!
//! * [`wire`]: the messages, as the interface numbers their fields.
//! * [`server`]: the socket, and the way of a call to its answer.
//! * `identity`, `controller`, `node`: the three services.
//! * `registration`: how the kubelet of the node finds the driver.
//! * `capability`: what a call says about the use of a volume.

#![forbid(unsafe_code)]

pub mod authority;
mod capability;
mod controller;
mod failure;
mod identity;
mod in_flight;
mod listener;
mod node;
mod objects;
mod registration;
mod rpc;
pub mod server;
pub mod wire;

pub use server::{ServeError, Settings, serve};
