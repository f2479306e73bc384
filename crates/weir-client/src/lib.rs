//! Client of the daemon's API, for every program that stands beside the daemon: the command line, the Docker plugin.
//!
//! It knows how to reach a daemon, what a page and a problem are, and the paths of objects. It does not know what its
//! user shows to a person.

#![forbid(unsafe_code)]

mod connection;
mod error;
mod paths;

pub use connection::{CHANGE_TIME_MAX, Client, Items, Query, READ_TIME_MAX, read};
pub use error::ClientError;
pub use paths::{of_tenant, segment, tenant_and_any_name, tenant_and_name};
pub use reqwest::blocking::{RequestBuilder, Response};
pub use reqwest::{Method, StatusCode, header};
