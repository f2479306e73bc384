//! Client of the API that a public generator makes from `docs/openapi.json`. It shows that the description is
//! enough to write programs with; a test of the daemon uses it.

#![forbid(unsafe_code)]
#![allow(warnings, clippy::all, clippy::pedantic, reason = "the code is generated")]

include!(concat!(env!("OUT_DIR"), "/client.rs"));
