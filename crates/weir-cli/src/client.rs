//! Client of the daemon's API.

use std::path::Path;
use std::time::Duration;

use reqwest::blocking::{ClientBuilder, RequestBuilder, Response};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, IF_MATCH};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::change_options::ChangeOptions;
use super::errors::CommandError;
use super::items::Items;
use super::output;
use weir_api_types::{ErrorCode, Operation, Problem};
use weir_host::folders::{default_state, sockets_folder};
use weir_host::token::read_token;

/// Maximum time until the daemon accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time until the daemon answers a read.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum time until the daemon answers a change. The daemon may have to duplicate a large volume first, or
/// wait for other changes on the same slow drive.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// A client of the API.
pub struct Client {
    http: reqwest::blocking::Client,
    base: String,
    server: String,
    options: ChangeOptions,
}

/// One page of a list.
#[derive(Deserialize)]
struct ItemPage<T> {
    items: Vec<T>,
    next_page_token: Option<String>,
}

/// Items of one page: the most that the API gives.
const PAGE_SIZE: &str = "1000";

/// Result of a removal, as programs read it.
#[derive(Serialize)]
struct Removal {
    /// 'removed', or 'absent' if the object did not exist and that is no error.
    result: &'static str,
}

/// Query parameters; parameters without a value are omitted.
pub type Query<'a> = &'a [(&'a str, Option<&'a str>)];

impl Client {
    /// Creates a client of the daemon at `server`, or of the daemon of the default state folder. The client
    /// sends the token in `token_file`.
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

    /// Returns the client with options for changes.
    pub fn with_options(self, options: ChangeOptions) -> Client {
        Client { options, ..self }
    }

    /// Options of changes.
    pub fn options(&self) -> &ChangeOptions {
        &self.options
    }

    /// Prints a text about a change for a person; a program has read the answer.
    pub fn tell(&self, text: &str) -> Result<(), CommandError> {
        if self.options.output.is_for_people() { output::print(text) } else { Ok(()) }
    }

    /// Reads an object or a list.
    pub fn get<T: DeserializeOwned>(&self, path: &str, query: Query<'_>) -> Result<T, CommandError> {
        self.answer(self.request(Method::GET, path, query))
    }

    /// Reads a whole list, page by page.
    pub fn list<T: DeserializeOwned>(&self, path: &str, query: Query<'_>) -> Result<Items<T>, CommandError> {
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

    /// Begins to read an answer that has no end.
    pub fn stream(&self, path: &str, query: Query<'_>) -> Result<Response, CommandError> {
        self.send(self.request(Method::GET, path, query), CHANGE_TIMEOUT)
    }

    /// Creates an object, or performs an action on one.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        self.change(self.request(Method::POST, path, query).json(body))
    }

    /// Creates an object with a name. If the object exists and that is no error, returns the result of
    /// `existing`.
    pub fn create<T: DeserializeOwned + Serialize>(
        &self,
        path: &str,
        body: &impl Serialize,
        existing: impl FnOnce() -> Result<Option<T>, CommandError>,
    ) -> Result<T, CommandError> {
        match self.post(path, &[], body) {
            Err(CommandError::Answered(problem))
                if problem.code == ErrorCode::Conflict && self.options.if_not_exists =>
            {
                let conflict = CommandError::Answered(problem);
                let found = existing().ok().flatten().ok_or(conflict)?;
                self.tell_program(&found)?;
                Ok(found)
            }
            outcome => outcome,
        }
    }

    /// Requests an action that takes `during`, and returns the bytes of the answer.
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

    /// Replaces an object as a whole.
    pub fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        self.change(self.request(Method::PUT, path, query).json(body))
    }

    /// Changes an object.
    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        self.change(self.request(Method::PATCH, path, query).json(body))
    }

    /// Removes an object.
    pub fn delete(&self, path: &str, query: Query<'_>) -> Result<(), CommandError> {
        self.remove(self.request(Method::DELETE, path, query)).map(|_| ())
    }

    /// Removes an object; returns `None` if it does not exist and that is no error.
    fn remove(&self, request: RequestBuilder) -> Result<Option<Response>, CommandError> {
        let response = match self.send(request, CHANGE_TIMEOUT) {
            Err(CommandError::Answered(problem))
                if problem.code == ErrorCode::NotFound && self.options.if_exists =>
            {
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

    /// Begins the removal of an object; returns the operation, unless the object does not exist and that is no
    /// error.
    pub fn begin_delete(&self, path: &str) -> Result<Option<Operation>, CommandError> {
        let response = self.remove(self.request(Method::DELETE, path, &[]))?;
        response.map(|response| self.told(response)).transpose()
    }

    /// Removes a part of an object; returns the object after that.
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

    /// Reads the answer to a change, and prints it unchanged for a program.
    fn told<T: DeserializeOwned>(&self, response: Response) -> Result<T, CommandError> {
        let answer: serde_json::Value = read(response)?;
        self.tell_program(&answer)?;
        serde_json::from_value(answer)
            .map_err(|error| CommandError::Failed(format!("the daemon's answer is not understood: {error}")))
    }

    fn tell_program(&self, answer: &impl Serialize) -> Result<(), CommandError> {
        let format = self.options.output;
        if format.is_for_people() { Ok(()) } else { output::show(answer, format, |_| String::new()) }
    }

    /// Classifies the failure of a request that got no answer.
    fn no_answer(&self, error: &reqwest::Error, timeout: Duration) -> CommandError {
        let server = self.server.clone();
        match (error.is_connect(), error.is_timeout()) {
            (true, _) => CommandError::Unreachable { server, reason: chain(error) },
            (false, true) => CommandError::TimedOut { server, seconds: timeout.as_secs() },
            (false, false) => CommandError::NoAnswer { server, reason: chain(error) },
        }
    }

    fn send(&self, request: RequestBuilder, timeout: Duration) -> Result<Response, CommandError> {
        let response = request.timeout(timeout).send().map_err(|error| self.no_answer(&error, timeout))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        match response.json::<Problem>() {
            Ok(problem) => Err(CommandError::Answered(Box::new(problem))),
            Err(_) => Err(CommandError::Failed(format!("the daemon answered {status}"))),
        }
    }
}

fn read<T: DeserializeOwned>(response: Response) -> Result<T, CommandError> {
    response.json().map_err(|error| {
        CommandError::Failed(format!("the daemon's answer is not understood: {}", chain(&error)))
    })
}

/// The innermost cause, which is the informative one.
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

/// The header with the token in a file.
fn showing(file: &Path) -> Result<HeaderMap, CommandError> {
    let token = read_token(file).map_err(CommandError::failed)?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(CommandError::failed)?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
}

/// The tenant and the name of an object. Without a tenant, a name such as `shop/db` names its tenant, as the name
/// of an NBD export does.
pub fn tenant_and_name<'a>(tenant: Option<&'a str>, name: &'a str) -> (Option<&'a str>, &'a str) {
    match name.split_once('/').filter(|_| tenant.is_none()) {
        Some((tenant, name)) => (Some(tenant), name),
        None => (tenant, name),
    }
}

/// The tenant and the name of an object that may be unnamed, as [`tenant_and_name`] has them.
pub fn tenant_and_any_name<'a>(
    tenant: Option<&'a str>,
    name: Option<&'a str>,
) -> (Option<&'a str>, Option<&'a str>) {
    let both = name.map(|name| tenant_and_name(tenant, name));
    both.map_or((tenant, None), |(tenant, name)| (tenant, Some(name)))
}

/// Path of an object of a tenant: `of_tenant(None, "volumes", "db")`. Without a name it is the path of the
/// collection. Without a tenant, the name may have it as in [`tenant_and_name`]; otherwise the default tenant is
/// meant.
pub fn of_tenant(tenant: Option<&str>, collection: &str, name: Option<&str>) -> String {
    let (tenant, name) = tenant_and_any_name(tenant, name);
    let tenant = segment(tenant.unwrap_or(weir_types::name::DEFAULT_TENANT));
    let name = name.map(|name| format!("/{}", segment(name))).unwrap_or_default();
    format!("/v1/tenants/{tenant}/{collection}{name}")
}

/// Escapes a name as one segment of a path. Characters that no name may have are escaped, so that the daemon
/// can report them.
///
/// A segment of one or two dots means another place even if the dots are escaped (WHATWG URL, section 4.1), so they
/// are escaped twice. The daemon refuses that name, too.
pub fn segment(name: &str) -> String {
    if matches!(name, "." | "..") {
        return name.replace('.', "%252E");
    }
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

    #[test]
    fn name_of_an_export_names_the_tenant() {
        let path = |tenant, name| of_tenant(tenant, "volumes", Some(name));
        assert_eq!(path(None, "db"), "/v1/tenants/default/volumes/db");
        assert_eq!(path(None, "shop/db"), "/v1/tenants/shop/volumes/db");
        assert_eq!(
            path(Some("other"), "shop/db"),
            "/v1/tenants/other/volumes/shop%2Fdb",
            "no volume is named so"
        );
        assert_eq!(path(None, "../db"), "/v1/tenants/%252E%252E/volumes/db", "it leads to no other place");
    }

    /// Error of a client whose daemon accepts one connection and handles it with `serve`. The request times
    /// out after `timeout`.
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
        assert!(matches!(error, CommandError::NoAnswer { .. }), "{error}");
    }

    #[test]
    fn missing_daemon_is_reported_as_unreachable() {
        let folder = tempfile::tempdir().unwrap();
        let server = format!("unix:{}", folder.path().join("api.sock").display());
        let client = Client::new(Some(&server), None).unwrap();
        let error = client.get::<Problem>("/v1/status", &[]).unwrap_err();
        assert!(matches!(error, CommandError::Unreachable { .. }), "{error}");
        assert_eq!(error.exit_status(), 5);
    }
}
