//! The server's side of the NBD protocol, as state machines that turn bytes into values and values into
//! bytes.
//!
//! This crate knows no clock, thread, socket or file. A connection has two phases. In the first, a
//! [`Handshake`] takes the client's bytes until it yields a [`Session`]. In the second, a [`RequestDecoder`]
//! turns the client's bytes into [`Request`]s, and the functions of [`reply`] make the headers of the
//! answers.
//!
//! ```
//! use weir_nbd::{ExportDirectory, ExportInfo, Handshake, Progress};
//!
//! struct Nothing;
//! impl ExportDirectory for Nothing {
//!     fn find(&self, _name: &str) -> Option<ExportInfo> {
//!         None
//!     }
//!     fn list(&self) -> Vec<(String, String)> {
//!         Vec::new()
//!     }
//! }
//!
//! let mut to_client = Handshake::greeting().to_vec();
//! let mut handshake = Handshake::new();
//! let step = handshake.advance(&3u32.to_be_bytes(), &Nothing, &mut to_client);
//! assert_eq!(step.consumed, 4);
//! assert!(matches!(step.progress, Progress::NeedInput));
//! ```

#![forbid(unsafe_code)]

pub mod bounds;
mod error;
mod export;
pub mod handshake;
pub mod protocol;
pub mod reply;
pub mod request;

pub use error::NbdError;
pub use export::{ExportDirectory, ExportInfo, Session};
pub use handshake::{CloseReason, Handshake, Progress, Step};
pub use reply::{ReplyHeader, StatusExtent};
pub use request::{Command, Cookie, Decoded, Refusal, Request, RequestDecoder, Violation};
