//! Talking to the daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::blocking::{ClientBuilder, RequestBuilder, Response};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::types::ErrorBody;
use crate::config::{default_state, sockets_folder};

/// How long an answer may take. Making the largest volume takes some seconds on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How long one may take before which a large volume has to be copied.
const LONG_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Why a command did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line is not understood.
    #[error("{0}")]
    Usage(String),
    /// The daemon answered that it did not do it, or something failed here.
    #[error("{0}")]
    Failed(String),
    /// The daemon does not answer.
    #[error(
        "cannot reach the daemon at {server}: {reason}; \
         is 'weir serve' running? (--server and WEIR_SERVER say where)"
    )]
    Unreachable {
        /// Where it should be.
        server: String,
        /// The cause.
        reason: String,
    },
    /// Whoever reads the output has gone.
    #[error("the output was closed")]
    OutputClosed,
}

impl CommandError {
    /// A failure of something here.
    pub fn failed(error: impl std::fmt::Display) -> CommandError {
        CommandError::Failed(error.to_string())
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> CommandError {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => CommandError::OutputClosed,
            _ => CommandError::failed(error),
        }
    }
}

/// A connection to the API.
pub struct Client {
    http: reqwest::blocking::Client,
    base: String,
    server: String,
}

/// Query parameters; those without a value are left out.
pub type Query<'a> = &'a [(&'a str, Option<&'a str>)];

impl Client {
    /// Prepares to talk to the daemon at `server`, or to that of the default state folder.
    ///
    /// # Errors
    /// Usage, if `server` is neither `unix:PATH` nor an http URL.
    pub fn new(server: Option<&str>) -> Result<Client, CommandError> {
        let server = server.map_or_else(|| format!("unix:{}", default_socket().display()), str::to_owned);
        let builder = ClientBuilder::new().timeout(TIMEOUT).no_proxy();
        let (builder, base) = if let Some(path) = server.strip_prefix("unix:") {
            (builder.unix_socket(Path::new(path)), "http://localhost".to_owned())
        } else if server.starts_with("http://") {
            (builder, server.trim_end_matches('/').to_owned())
        } else {
            let message = format!("'{server}' is not a server; unix:PATH or http://HOST:PORT is accepted");
            return Err(CommandError::Usage(message));
        };
        let http = builder.build().map_err(CommandError::failed)?;
        Ok(Client { http, base, server })
    }

    /// Reads something.
    pub fn get<T: DeserializeOwned>(&self, path: &str, query: Query<'_>) -> Result<T, CommandError> {
        self.answer(self.request(Method::GET, path, query))
    }

    /// Makes something, or does something with it.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        self.answer(self.request(Method::POST, path, query).json(body))
    }

    /// Makes something that may take hours.
    pub fn post_slowly<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        self.answer(self.request(Method::POST, path, query).json(body).timeout(LONG_TIMEOUT))
    }

    /// Has something done that takes `during`, and answers its bytes.
    pub fn fetch(
        &self,
        path: &str,
        body: &impl Serialize,
        during: Duration,
    ) -> Result<Vec<u8>, CommandError> {
        let request = self.request(Method::POST, path, &[]).json(body).timeout(during + TIMEOUT);
        let bytes = self.send(request)?.bytes().map_err(|error| {
            CommandError::Failed(format!("the daemon's answer ended early: {}", chain(&error)))
        })?;
        Ok(bytes.into())
    }

    /// Replaces something as a whole.
    pub fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        self.answer(self.request(Method::PUT, path, query).json(body))
    }

    /// Changes something.
    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        self.answer(self.request(Method::PATCH, path, query).json(body))
    }

    /// Removes something.
    pub fn delete(&self, path: &str, query: Query<'_>) -> Result<(), CommandError> {
        self.send(self.request(Method::DELETE, path, query)).map(|_| ())
    }

    /// Removes something, or has that begun; then the answer is what it is until it is gone.
    pub fn begin_delete<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, CommandError> {
        let response = self.send(self.request(Method::DELETE, path, &[]))?;
        match response.status() {
            StatusCode::ACCEPTED => read(response).map(Some),
            _ => Ok(None),
        }
    }

    /// Removes what belongs to something; answers how that is then.
    pub fn delete_of<T: DeserializeOwned>(&self, path: &str) -> Result<T, CommandError> {
        self.answer(self.request(Method::DELETE, path, &[]))
    }

    fn request(&self, method: Method, path: &str, query: Query<'_>) -> RequestBuilder {
        let query: Vec<_> =
            query.iter().filter_map(|(key, value)| value.map(|value| (*key, value))).collect();
        self.http.request(method, format!("{}{path}", self.base)).query(&query)
    }

    fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, CommandError> {
        read(self.send(request)?)
    }

    fn send(&self, request: RequestBuilder) -> Result<Response, CommandError> {
        let unreachable = |error: reqwest::Error| CommandError::Unreachable {
            server: self.server.clone(),
            reason: chain(&error),
        };
        let response = request.send().map_err(unreachable)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        match response.json::<ErrorBody>() {
            Ok(body) => Err(CommandError::Failed(body.error.message)),
            Err(_) => Err(CommandError::Failed(format!("the daemon answered {status}"))),
        }
    }
}

fn read<T: DeserializeOwned>(response: Response) -> Result<T, CommandError> {
    response.json().map_err(|error| {
        CommandError::Failed(format!("the daemon's answer is not understood: {}", chain(&error)))
    })
}

/// The innermost cause, which is the one that says what happened.
fn chain(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn default_socket() -> PathBuf {
    sockets_folder(&default_state()).join("api.sock")
}

/// A name as one segment of a path; what cannot be in a name is escaped, so that the daemon can say so.
pub fn segment(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let escape =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escape).collect()
}
