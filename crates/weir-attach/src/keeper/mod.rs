//! Keeper: a small process that holds the devices of mounts, so that a mount outlives the daemon that serves it.
//!
//! The kernel ends a FUSE mount once nobody holds its device. The keeper holds each of them too, and hands it
//! to the next daemon. It serves nothing and decides nothing. It ends when it holds nothing and nobody is connected.
//!
//! An upgrade replaces the daemon and not the keeper, so the messages ([`message`]) never change their meaning.

mod client;
pub mod message;
mod server;

pub use client::{Keeper, KeeperError};
pub use server::run;

/// Devices that a keeper holds at most: as many attachments as a host may have.
pub const DEVICES_MAX: usize = 1024;
