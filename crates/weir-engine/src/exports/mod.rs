//! Exports: the listeners that do the NBD handshake, with the names that control exports.
//!
//! A listener hands each connection to the data plane.

pub mod listener;

use std::net::SocketAddr;
use std::path::PathBuf;

/// Address at which to listen for NBD clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address and port.
    Tcp(SocketAddr),
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}
