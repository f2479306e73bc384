//! Talking to the daemon.

use std::path::Path;
use std::time::Duration;

use reqwest::blocking::{ClientBuilder, RequestBuilder, Response};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, IF_MATCH};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::arguments::Format;
use super::change_options::ChangeOptions;
use super::output;
use crate::api::read_token;
use crate::api::types::{ErrorBody, ErrorDetail, ErrorKind};
use crate::config::{default_state, sockets_folder};

/// How long it may take until the daemon takes a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the answer to a question may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How long the answer to a change may take: before one a large volume may have to be copied, or others may wait for
/// the same slow drive.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Why a command did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line is not understood.
    #[error("{0}")]
    Usage(String),
    /// The daemon answered that it did not do it, or something failed here.
    #[error("{0}")]
    Failed(String),
    /// The daemon answered that it did not do it.
    #[error("{message}")]
    Answered {
        /// The sort of obstacle.
        kind: ErrorKind,
        /// What was wrong.
        message: String,
    },
    /// The daemon took the request, and its answer takes too long.
    #[error(
        "the daemon at {server} took the request and has not answered within {seconds} s; \
         it may still be doing it, and 'weir status' says how it is"
    )]
    TimedOut {
        /// Where it is.
        server: String,
        /// How long the answer was waited for.
        seconds: u64,
    },
    /// There is no daemon.
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

impl CommandError {
    /// The same with words before those of an error that is about what was told.
    pub fn within(self, place: &impl std::fmt::Display) -> CommandError {
        match self {
            CommandError::Failed(message) => CommandError::Failed(format!("{place}: {message}")),
            CommandError::Answered { kind, message } => {
                CommandError::Answered { kind, message: format!("{place}: {message}") }
            }
            error => error,
        }
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
    options: ChangeOptions,
}

/// What is told of a removal to programs.
#[derive(Serialize)]
struct Removal {
    /// 'removed', or 'absent' if it did not exist and that is no error.
    result: &'static str,
}

/// Query parameters; those without a value are left out.
pub type Query<'a> = &'a [(&'a str, Option<&'a str>)];

impl Client {
    /// Prepares to talk to the daemon at `server`, or to that of the default state folder, and to show it the token of
    /// a file.
    ///
    /// # Errors
    /// Usage, if `server` is neither `unix:PATH` nor an http URL; failed, if the file holds no token.
    pub fn new(server: Option<&str>, token_file: Option<&Path>) -> Result<Client, CommandError> {
        let server = server.map(str::to_owned).map_or_else(default_server, Ok)?;
        let builder = ClientBuilder::new().connect_timeout(CONNECT_TIMEOUT).timeout(TIMEOUT).no_proxy();
        let builder = match token_file {
            Some(file) => builder.default_headers(showing(file)?),
            None => builder,
        };
        let (builder, base) = if let Some(path) = server.strip_prefix("unix:") {
            (builder.unix_socket(Path::new(path)), "http://localhost".to_owned())
        } else if server.starts_with("http://") {
            (builder, server.trim_end_matches('/').to_owned())
        } else {
            let message = format!("'{server}' is not a server; unix:PATH or http://HOST:PORT is accepted");
            return Err(CommandError::Usage(message));
        };
        let http = builder.build().map_err(CommandError::failed)?;
        Ok(Client { http, base, server, options: ChangeOptions::default() })
    }

    /// The same with options for changes.
    pub fn with_options(self, options: ChangeOptions) -> Client {
        Client { options, ..self }
    }

    /// How changes are made.
    pub fn options(&self) -> &ChangeOptions {
        &self.options
    }

    /// Tells a person something about a change; a program was told the answer.
    pub fn tell(&self, text: &str) -> Result<(), CommandError> {
        match self.options.output {
            Format::Table => output::print(text),
            Format::Json | Format::Yaml => Ok(()),
        }
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
        self.change(self.request(Method::POST, path, query).json(body))
    }

    /// Makes something of a name. If that exists already and it is no error, the answer is what `existing` finds.
    pub fn create<T: DeserializeOwned + Serialize>(
        &self,
        path: &str,
        body: &impl Serialize,
        existing: impl FnOnce() -> Result<Option<T>, CommandError>,
    ) -> Result<T, CommandError> {
        match self.post(path, &[], body) {
            Err(CommandError::Answered { kind: ErrorKind::Conflict, message })
                if self.options.if_not_exists =>
            {
                let conflict = CommandError::Answered { kind: ErrorKind::Conflict, message };
                let found = existing().ok().flatten().ok_or(conflict)?;
                self.tell_program(&found)?;
                Ok(found)
            }
            outcome => outcome,
        }
    }

    /// Has something done that takes `during`, and answers its bytes.
    pub fn fetch(
        &self,
        path: &str,
        body: &impl Serialize,
        during: Duration,
    ) -> Result<Vec<u8>, CommandError> {
        let request = self.request(Method::POST, path, &[]).json(body);
        let bytes = self.send(request, during + TIMEOUT)?.bytes().map_err(|error| {
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
        self.change(self.request(Method::PUT, path, query).json(body))
    }

    /// Changes something.
    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        self.change(self.request(Method::PATCH, path, query).json(body))
    }

    /// Removes something.
    pub fn delete(&self, path: &str, query: Query<'_>) -> Result<(), CommandError> {
        self.remove(self.request(Method::DELETE, path, query)).map(|_| ())
    }

    /// Removes something; `None` if it does not exist and that is no error.
    fn remove(&self, request: RequestBuilder) -> Result<Option<Response>, CommandError> {
        let response = match self.send(request, CHANGE_TIMEOUT) {
            Err(CommandError::Answered { kind: ErrorKind::NotFound, .. }) if self.options.if_exists => {
                self.tell_program(&Removal { result: "absent" })?;
                return Ok(None);
            }
            outcome => outcome?,
        };
        if response.status() != StatusCode::ACCEPTED {
            self.tell_program(&Removal { result: "removed" })?;
        }
        Ok(Some(response))
    }

    /// Removes something, or has that begun; then the answer is what it is until it is gone.
    pub fn begin_delete<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, CommandError> {
        let response = self.remove(self.request(Method::DELETE, path, &[]))?;
        match response.filter(|response| response.status() == StatusCode::ACCEPTED) {
            Some(response) => self.told(response).map(Some),
            None => Ok(None),
        }
    }

    /// Removes what belongs to something; answers how that is then.
    pub fn delete_of<T: DeserializeOwned>(&self, path: &str, query: Query<'_>) -> Result<T, CommandError> {
        self.change(self.request(Method::DELETE, path, query))
    }

    fn request(&self, method: Method, path: &str, query: Query<'_>) -> RequestBuilder {
        let query: Vec<_> =
            query.iter().filter_map(|(key, value)| value.map(|value| (*key, value))).collect();
        let is_read = method == Method::GET;
        let request = self.http.request(method, format!("{}{path}", self.base)).query(&query);
        match self.options.if_version.filter(|_| !is_read) {
            Some(version) => request.header(IF_MATCH, format!("\"{version}\"")),
            None => request,
        }
    }

    fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, CommandError> {
        read(self.send(request, TIMEOUT)?)
    }

    fn change<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, CommandError> {
        self.told(self.send(request, CHANGE_TIMEOUT)?)
    }

    /// The answer to a change, which a program is told as it came.
    fn told<T: DeserializeOwned>(&self, response: Response) -> Result<T, CommandError> {
        let answer: serde_json::Value = read(response)?;
        self.tell_program(&answer)?;
        serde_json::from_value(answer)
            .map_err(|error| CommandError::Failed(format!("the daemon's answer is not understood: {error}")))
    }

    fn tell_program(&self, answer: &impl Serialize) -> Result<(), CommandError> {
        match self.options.output {
            Format::Table => Ok(()),
            format => output::show(answer, format, |_| String::new()),
        }
    }

    /// What it means that there is no answer.
    fn no_answer(&self, error: &reqwest::Error, timeout: Duration) -> CommandError {
        let server = self.server.clone();
        match (error.is_connect(), error.is_timeout()) {
            (true, _) => CommandError::Unreachable { server, reason: chain(error) },
            (false, true) => CommandError::TimedOut { server, seconds: timeout.as_secs() },
            (false, false) => CommandError::Failed(format!(
                "the daemon at {server} took the request, and the connection ended before its answer: {}; \
                 whether it was done is not known",
                chain(error)
            )),
        }
    }

    fn send(&self, request: RequestBuilder, timeout: Duration) -> Result<Response, CommandError> {
        let response = request.timeout(timeout).send().map_err(|error| self.no_answer(&error, timeout))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        match response.json::<ErrorBody>() {
            Ok(ErrorBody { error: ErrorDetail { kind, message } }) => {
                Err(CommandError::Answered { kind, message })
            }
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

fn default_server() -> Result<String, CommandError> {
    let state = default_state().ok_or_else(|| {
        let message = "no daemon is named and no home folder is known; --server or WEIR_SERVER names one";
        CommandError::Usage(message.to_owned())
    })?;
    Ok(format!("unix:{}", sockets_folder(&state).join("api.sock").display()))
}

/// The header that shows the token of a file.
fn showing(file: &Path) -> Result<HeaderMap, CommandError> {
    let token = read_token(file).map_err(CommandError::failed)?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(CommandError::failed)?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
}

/// A name as one segment of a path; what cannot be in a name is escaped, so that the daemon can say so.
pub fn segment(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let escape =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// What a client is told by a daemon that takes one request and does this with the connection, if it waits so long.
    fn told(timeout: Duration, serve: impl FnOnce(UnixStream) + Send + 'static) -> CommandError {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        let client = Client::new(Some(&format!("unix:{}", path.display())), None).unwrap();
        let error = client.send(client.request(Method::GET, "/v1/status", &[]), timeout).unwrap_err();
        drop(client);
        served.join().unwrap();
        error
    }

    #[test]
    fn slow_answer_is_not_a_missing_daemon() {
        let wait_for_the_end = |mut stream: UnixStream| _ = stream.read_to_end(&mut Vec::new());
        let error = told(Duration::from_millis(1), wait_for_the_end);
        assert!(matches!(error, CommandError::TimedOut { .. }), "{error}");
        let take_and_end = |mut stream: UnixStream| _ = stream.read(&mut [0; 16]);
        let error = told(TIMEOUT, take_and_end);
        assert!(matches!(&error, CommandError::Failed(words) if words.contains("not known")), "{error}");
    }

    #[test]
    fn missing_daemon_is_told_as_one() {
        let folder = tempfile::tempdir().unwrap();
        let server = format!("unix:{}", folder.path().join("api.sock").display());
        let client = Client::new(Some(&server), None).unwrap();
        let error = client.get::<ErrorBody>("/v1/status", &[]).unwrap_err();
        assert!(matches!(error, CommandError::Unreachable { .. }), "{error}");
        assert_eq!(error.exit_status(), 5);
    }
}
