//! Client of the daemon's API with the options of the command line.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_api_types::{ErrorCode, Operation};
use weir_client::header::IF_MATCH;
use weir_client::{
    CHANGE_TIME_MAX, ClientError, Items, Method, Query, READ_TIME_MAX, RequestBuilder, Response, StatusCode,
    read,
};

use super::change_options::ChangeOptions;
use super::errors::CommandError;
use super::output;

pub use weir_client::{of_tenant, segment, tenant_and_any_name, tenant_and_name};

/// A client of the API.
pub struct Client {
    api: weir_client::Client,
    options: ChangeOptions,
}

/// Result of a removal, as programs read it.
#[derive(Serialize)]
struct Removal {
    /// 'removed', or 'absent' if the object did not exist and that is no error.
    result: &'static str,
}

impl Client {
    /// Creates a client as [`weir_client::Client::new`] does.
    pub fn new(server: Option<&str>, token_file: Option<&Path>) -> Result<Client, CommandError> {
        let api = weir_client::Client::new(server, token_file)?;
        Ok(Client { api, options: ChangeOptions::default() })
    }

    /// Returns the client with options for changes.
    pub fn with_options(self, options: ChangeOptions) -> Client {
        Client { options, ..self }
    }

    /// Refuses to touch block devices of this host for a daemon that may be on another.
    pub fn refuse_remote(&self) -> Result<(), CommandError> {
        let message = "the daemon may be on another host, whose block devices are not here; run this there";
        if self.api.is_local() { Ok(()) } else { Err(CommandError::Failed(message.to_owned())) }
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
        Ok(self.api.get(path, query)?)
    }

    /// Reads a whole list, page by page.
    pub fn list<T: DeserializeOwned>(&self, path: &str, query: Query<'_>) -> Result<Items<T>, CommandError> {
        Ok(self.api.list(path, query)?)
    }

    /// Begins to read an answer that has no end.
    pub fn stream(&self, path: &str, query: Query<'_>) -> Result<Response, CommandError> {
        Ok(self.api.send(self.request(Method::GET, path, query), CHANGE_TIME_MAX)?)
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
            Err(conflict) if conflict.is_answer(ErrorCode::Conflict) && self.options.if_not_exists => {
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
        let bytes = self
            .api
            .send(request, during + READ_TIME_MAX)?
            .bytes()
            .map_err(|error| CommandError::Failed(format!("the daemon's answer ended early: {error}")))?;
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
        let response = match self.api.send(request, CHANGE_TIME_MAX) {
            Err(ClientError::Answered(problem))
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
        let is_read = method == Method::GET;
        let request = self.api.request(method, path, query);
        match self.options.if_version.filter(|_| !is_read) {
            Some(version) => request.header(IF_MATCH, format!("\"{version}\"")),
            None => request,
        }
    }

    fn change<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, CommandError> {
        self.told(self.api.send(request, CHANGE_TIME_MAX)?)
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
}
