//! The server's side of the FUSE protocol for a filesystem that is one file, as functions that turn bytes into
//! values and values into bytes.
//!
//! The file is a volume. A loop device on it makes it a block device on every kernel. [`decode`] takes what the
//! kernel gave to one read of `/dev/fuse`. The result is an answer that is known already, or a request for the
//! volume. [`answer`] makes the answers to such requests.
//!
//! The crate knows neither descriptors nor mounts nor volumes, and no state beyond the terms of a session. So a
//! daemon that takes over a mount from an earlier one needs to know nothing but these terms.
//!
//! The numbers are those of the kernel's interface `linux/fuse.h`, version 7.31 and later.

#![forbid(unsafe_code)]

pub mod answer;
mod decode;
mod errno;
mod file;
mod init;
pub mod protocol;
mod wire;

pub use answer::{Answer, ReplyHeader};
pub use decode::{BrokenMessage, Decoded, decode};
pub use errno::Errno;
pub use file::File;
pub use init::Terms;
pub use request::{Caller, Command, Request, Unique};

mod request;
