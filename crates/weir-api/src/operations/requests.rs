//! Requests whose clients do not wait: `Prefer: respond-async` (RFC 7240, section 4.1), with the longest time
//! to wait for the answer all the same (`wait=SECONDS`, section 4.3).

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;
use weir_api_types::{ErrorCode, Operation, OperationKind, OperationRequest, OperationState, Problem};
use weir_types::control_bounds::{
    API_BODY_BYTES_MAX, OPERATION_REQUESTS_MAX, OPERATION_RESULT_BYTES_MAX, OPERATION_WAIT_SECONDS_MAX,
};

use super::Operations;
use crate::answer::whole_body;
use crate::error::ApiError;
use crate::events::changes;

/// Header with the client's preference, as it is described.
pub(crate) const PREFER_NAME: &str = "Prefer";
/// Header with the client's preference.
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Header that says which preference was followed.
const APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Preference not to wait for the answer.
const RESPOND_ASYNC: &str = "respond-async";
/// Path of recordings.
pub(crate) const RECORDINGS: &str = "/v1/recordings";

/// Runs a change whose client does not wait for it as an operation; passes on all other requests.
pub(crate) async fn run(State(operations): State<Arc<Operations>>, request: Request, next: Next) -> Response {
    let wait = preferred_wait(request.headers()).filter(|_| can_be_left(&request));
    let Some(wait) = wait else { return next.run(request).await };
    let Ok(permit) = operations.requests.clone().try_acquire_owned() else {
        let message = format!(
            "{OPERATION_REQUESTS_MAX} requests are in progress whose clients do not wait; send it again later"
        );
        return ApiError::busy(&message).into_response();
    };
    let (parts, body) = request.into_parts();
    let body = match whole_body(body).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    let operation = operation(&parts.method, parts.uri.path(), &body);
    operations.with(|registry| registry.begin_request(operation.clone()));
    let place = Place { operations: operations.clone(), id: operation.id, _permit: permit };
    let request = Request::from_parts(parts, Body::from(body));
    let (sender, mut answer) = oneshot::channel();
    if wait.is_zero() {
        answer.close();
    }
    tokio::spawn(async move { place.end(next.run(request).await, sender).await });
    match answer_within(wait, &mut answer).await {
        Some(response) => {
            operations.with(|registry| registry.forget_request(operation.id));
            response
        }
        None => accepted(&operation),
    }
}

/// True for a change whose answer is worth keeping. A recording is its answer, a trace, and ends with its client.
fn can_be_left(request: &Request) -> bool {
    !request.method().is_safe() && request.uri().path() != RECORDINGS
}

/// The answer, if it comes in time. After that, no answer comes here any more.
async fn answer_within(wait: Duration, answer: &mut oneshot::Receiver<Response>) -> Option<Response> {
    let answered = tokio::time::timeout(wait, &mut *answer).await;
    answer.close();
    answered.ok().and_then(Result::ok).or_else(|| answer.try_recv().ok())
}

/// The answer for a client that does not wait longer.
fn accepted(operation: &Operation) -> Response {
    let place = HeaderValue::try_from(format!("/v1/operations/{}", operation.id));
    let place = place.expect("an identity is accepted in a header");
    let headers = [(header::LOCATION, place), (APPLIED, HeaderValue::from_static(RESPOND_ASYNC))];
    (StatusCode::ACCEPTED, headers, Json(operation)).into_response()
}

fn operation(method: &Method, path: &str, body: &Bytes) -> Operation {
    Operation {
        id: Uuid::new_v4(),
        kind: OperationKind::Request,
        object: changes::object_of(path, named_in(body)),
        message: format!("{method} {path}"),
        state: OperationState::Running,
        reason: None,
        progress: None,
        can_be_cancelled: false,
        begun_at: Timestamp::now(),
        ended_at: None,
        request: Some(OperationRequest { method: method.to_string(), path: path.to_owned() }),
        result: None,
        problem: None,
    }
}

/// A body that may name the object of its request. A larger one is a set of policies, and names many.
fn named_in(body: &Bytes) -> &str {
    if body.len() > API_BODY_BYTES_MAX { "" } else { std::str::from_utf8(body).unwrap_or("") }
}

/// The place of a request in progress. An operation whose request ends without an answer has failed.
struct Place {
    operations: Arc<Operations>,
    id: Uuid,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Gives the answer to the client if it still waits, or else keeps it.
    async fn end(self, response: Response, client: oneshot::Sender<Response>) {
        match client.send(response) {
            Ok(()) => self.operations.with(|registry| registry.forget_request(self.id)),
            Err(response) => self.keep(response).await,
        }
    }

    async fn keep(&self, response: Response) {
        let status = response.status();
        let problem = response.extensions().get::<Problem>().cloned();
        let body = to_bytes(response.into_body(), OPERATION_RESULT_BYTES_MAX).await.ok();
        let reason = body
            .is_none()
            .then(|| format!("the answer has more than {OPERATION_RESULT_BYTES_MAX} bytes and was not kept"));
        let body = body.unwrap_or_default();
        let result = serde_json::from_slice(&body).ok();
        self.operations.end_request(self.id, body.len(), |operation| match status.is_success() {
            true => {
                (operation.state, operation.result, operation.reason) =
                    (OperationState::Succeeded, result, reason);
            }
            false => {
                operation.state = OperationState::Failed;
                operation.problem = problem.or_else(|| serde_json::from_value(result?).ok());
            }
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It has an effect only if the handler panicked.
        self.operations.end_request(self.id, 0, |operation| {
            operation.state = OperationState::Failed;
            operation.problem =
                Some(Problem::new(ErrorCode::Internal, "the request ended without an answer"));
        });
    }
}

/// How long a client waits that prefers not to wait; `None` if it has no such preference.
fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all(&PREFER).into_iter().filter_map(|line| line.to_str().ok());
    let preferences: Vec<&str> = lines.flat_map(|line| line.split(',')).map(name_and_value).collect();
    let is = |preference: &&str| preference.eq_ignore_ascii_case(RESPOND_ASYNC);
    preferences.iter().find(|preference| is(preference))?;
    let seconds = preferences.iter().find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("wait").then(|| value.parse().ok())?
    });
    Some(Duration::from_secs(seconds.unwrap_or(0).min(OPERATION_WAIT_SECONDS_MAX).into()))
}

/// A preference without its parameters.
fn name_and_value(preference: &str) -> &str {
    preference.split(';').next().unwrap_or(preference).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preference_is_read_from_all_lines() {
        let read = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            lines.iter().for_each(|line| _ = headers.append(PREFER, line.parse().unwrap()));
            preferred_wait(&headers).map(|wait| wait.as_secs())
        };
        for (lines, expected) in [
            (vec![], None),
            (vec!["wait=5"], None),
            (vec!["return=minimal"], None),
            (vec!["respond-async"], Some(0)),
            (vec!["Respond-Async; a=b, wait=5"], Some(5)),
            (vec!["wait = \"7\"", "respond-async"], Some(7)),
            (vec!["respond-async, wait=nine"], Some(0)),
            (vec!["respond-async, wait=999999"], Some(u64::from(OPERATION_WAIT_SECONDS_MAX))),
        ] {
            assert_eq!(read(&lines), expected, "{lines:?}");
        }
    }
}
