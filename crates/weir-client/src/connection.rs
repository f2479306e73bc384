//! The connection: where the daemon is, requests with a time limit, and their answers.

use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use reqwest::blocking::{ClientBuilder, RequestBuilder, Response};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_api_types::Problem;
use weir_host::folders::{default_state, sockets_folder};
use weir_host::token::read_token;

use crate::error::ClientError;

/// Maximum time until the daemon accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time until the daemon answers a read.
pub const READ_TIME_MAX: Duration = Duration::from_secs(120);

/// Maximum time until the daemon answers a change. The daemon may have to duplicate a large volume first, or
/// wait for other changes on the same slow drive.
pub const CHANGE_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Items of one page: the most that the API gives.
const PAGE_SIZE: &str = "1000";

/// A client of the API.
pub struct Client {
    http: reqwest::blocking::Client,
    base: String,
    server: String,
    change_time_max: Duration,
}

/// A whole list, as programs read it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Items<T> {
    /// The objects, in the order of the API.
    pub items: Vec<T>,
}

/// One page of a list.
#[derive(Deserialize)]
struct ItemPage<T> {
    items: Vec<T>,
    next_page_token: Option<String>,
}

/// Query parameters; parameters without a value are omitted.
pub type Query<'a> = &'a [(&'a str, Option<&'a str>)];

impl Client {
    /// Creates a client of the daemon at `server`, or of the daemon of the default state folder. The client
    /// sends the token in `token_file`.
    ///
    /// # Errors
    /// If `server` is neither `unix:PATH` nor an http URL, or the file holds no token.
    pub fn new(server: Option<&str>, token_file: Option<&Path>) -> Result<Client, ClientError> {
        let server = server.map(str::to_owned).map_or_else(default_server, Ok)?;
        let builder = ClientBuilder::new().connect_timeout(CONNECT_TIMEOUT).timeout(READ_TIME_MAX).no_proxy();
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
            return Err(ClientError::Address(message));
        };
        let http = builder.build().map_err(|error| ClientError::Setup(error.to_string()))?;
        Ok(Client { http, base, server, change_time_max: CHANGE_TIME_MAX })
    }

    /// Returns the client with another maximum time until the daemon answers a change.
    pub fn with_change_time_max(self, change_time_max: Duration) -> Client {
        Client { change_time_max, ..self }
    }

    /// True if the daemon is on this host for sure: block devices that it names are this host's.
    pub fn is_local(&self) -> bool {
        self.server.starts_with("unix:")
    }

    /// Begins a request, which [`Client::send`] sends.
    pub fn request(&self, method: Method, path: &str, query: Query<'_>) -> RequestBuilder {
        let query: Vec<_> =
            query.iter().filter_map(|(key, value)| value.map(|value| (*key, value))).collect();
        self.http.request(method, format!("{}{path}", self.base)).query(&query)
    }

    /// Sends a request, and waits this long for its answer.
    ///
    /// # Errors
    /// If there is no answer, or the daemon refused the request or failed.
    pub fn send(&self, request: RequestBuilder, time_max: Duration) -> Result<Response, ClientError> {
        let response = request.timeout(time_max).send().map_err(|error| self.no_answer(&error, time_max))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        match response.json::<Problem>() {
            Ok(problem) => Err(ClientError::Answered(Box::new(problem))),
            Err(_) => Err(ClientError::BadAnswer(format!("the daemon answered {status}"))),
        }
    }

    /// Reads an object or one page of a list.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn get<T: DeserializeOwned>(&self, path: &str, query: Query<'_>) -> Result<T, ClientError> {
        read(self.send(self.request(Method::GET, path, query), READ_TIME_MAX)?)
    }

    /// Reads a whole list, page by page.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn list<T: DeserializeOwned>(&self, path: &str, query: Query<'_>) -> Result<Items<T>, ClientError> {
        let (mut items, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut query = query.to_vec();
            query.extend([("page_size", Some(PAGE_SIZE)), ("page_token", token.as_deref())]);
            let page: ItemPage<T> = self.get(path, &query)?;
            items.extend(page.items);
            token = page.next_page_token;
            if token.is_none() {
                return Ok(Items { items });
            }
        }
    }

    /// Creates an object, or performs an action on one.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        read(self.send(self.request(Method::POST, path, &[]).json(body), self.change_time_max)?)
    }

    /// Removes an object.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, path, &[]), self.change_time_max).map(drop)
    }

    /// Classifies the failure of a request that got no answer.
    fn no_answer(&self, error: &reqwest::Error, time_max: Duration) -> ClientError {
        let server = self.server.clone();
        match (error.is_connect(), error.is_timeout()) {
            (true, _) => ClientError::Unreachable { server, reason: innermost(error) },
            (false, true) => ClientError::TimedOut { server, seconds: time_max.as_secs() },
            (false, false) => ClientError::NoAnswer { server, reason: innermost(error) },
        }
    }
}

/// Reads the body of an answer.
///
/// # Errors
/// If it is another one than expected.
pub fn read<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    response.json().map_err(|error| {
        ClientError::BadAnswer(format!("the daemon's answer is not understood: {}", innermost(&error)))
    })
}

/// The innermost cause, which is the informative one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn default_server() -> Result<String, ClientError> {
    let state = default_state().ok_or_else(|| {
        let message = "no daemon is named and no home folder is known; --server or WEIR_SERVER names one";
        ClientError::Address(message.to_owned())
    })?;
    Ok(format!("unix:{}", sockets_folder(&state).join("api.sock").display()))
}

/// The header with the token in a file.
fn showing(file: &Path) -> Result<HeaderMap, ClientError> {
    let setup = |error: reqwest::header::InvalidHeaderValue| ClientError::Setup(error.to_string());
    let mut value = HeaderValue::try_from(format!("Bearer {}", read_token(file)?)).map_err(setup)?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Error of a client whose request times out after `timeout`, and what the daemon had read of the request with
    /// `serve` by then.
    fn told(
        timeout: Duration,
        serve: impl FnOnce(UnixStream) -> Vec<u8> + Send + 'static,
    ) -> (ClientError, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        let client = Client::new(Some(&format!("unix:{}", path.display())), None).unwrap();
        let error = client.send(client.request(Method::GET, "/v1/status", &[]), timeout).unwrap_err();
        drop(client);
        // The time may have passed before the client connected. Then the daemon accepts this connection.
        drop(UnixStream::connect(&path));
        (error, served.join().unwrap())
    }

    #[test]
    fn slow_answer_is_not_a_missing_daemon() {
        let wait_for_the_end = |mut stream: UnixStream| {
            let mut request = Vec::new();
            stream.read_to_end(&mut request).unwrap();
            request
        };
        let mut timeout = Duration::from_millis(1);
        let error = loop {
            let (error, request) = told(timeout, wait_for_the_end);
            if !request.is_empty() {
                break error;
            }
            timeout *= 2;
        };
        assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    }

    #[test]
    fn daemon_that_ends_without_an_answer_is_not_a_missing_daemon() {
        let take_and_end = |mut stream: UnixStream| {
            let mut request = vec![0; 16];
            stream.read_exact(&mut request).unwrap();
            request
        };
        let (error, _) = told(READ_TIME_MAX, take_and_end);
        assert!(matches!(error, ClientError::NoAnswer { .. }), "{error}");
    }

    #[test]
    fn missing_daemon_is_reported_as_unreachable() {
        let folder = tempfile::tempdir().unwrap();
        let server = format!("unix:{}", folder.path().join("api.sock").display());
        let client = Client::new(Some(&server), None).unwrap();
        let error = client.get::<Problem>("/v1/status", &[]).unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    }
}
