//! Audit log: one line for each requested change, with its sender, method, object and result.

use axum::body::{Body, to_bytes};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::Response;

use super::access::Refusal;
use super::events::Events;
use weir_api_types::Problem;
use weir_host::line_gate::LineGate;
use weir_host::logging::AUDIT;

/// Maximum number of bytes of a request body that the audit log reads. The line of a request with a larger
/// body, or without a stated length, omits the body.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Maximum number of characters of a body in a line.
const BODY_CHARACTERS_MAX: usize = 1000;

/// Rate limit of lines about refused requests.
static REFUSALS: LineGate = LineGate::new();

/// Sender of a request, as its listener knows it: credentials of a local peer, or an address and the name of
/// a token.
#[derive(Clone, Debug)]
pub struct Caller(pub String);

impl Caller {
    /// A process of this machine.
    pub fn local(user: u32, group: u32, process: Option<i32>) -> Caller {
        let process = process.map(|process| format!(" pid={process}")).unwrap_or_default();
        Caller(format!("uid={user} gid={group}{process}"))
    }
}

impl Default for Caller {
    fn default() -> Caller {
        Caller("unknown".to_owned())
    }
}

/// A line that is written when the change ends, even if the client has left.
struct Line {
    who: String,
    method: Method,
    object: String,
    request: String,
    /// Status of the answer, with the error of an unsuccessful one.
    outcome: Option<(u16, Option<Problem>)>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let Line { who, method, object, request, outcome } = self;
        match outcome {
            Some((status, None)) => {
                tracing::info!(target: AUDIT, who, %method, object, request, result = "done", status, "change");
            }
            Some((status, Some(problem))) => {
                let (result, message) = (problem.code.word(), problem.message());
                tracing::info!(target: AUDIT, who, %method, object, request, result, status, message, "change");
            }
            None => {
                let result = "unknown: the client left before the answer";
                tracing::info!(target: AUDIT, who, %method, object, request, result, "change");
            }
        }
    }
}

/// Writes the line of a request that may change something.
pub(super) async fn audit(State(events): State<Arc<Events>>, request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return next.run(request).await;
    }
    let caller = request.extensions().get::<ConnectInfo<Caller>>();
    let Caller(who) = caller.map(|ConnectInfo(caller)| caller.clone()).unwrap_or_default();
    let (method, object) = (request.method().clone(), request.uri().to_string());
    let (request, told) = read(request).await;
    let mut line = Line { who, method, object, request: told, outcome: None };
    let response = next.run(request).await;
    let status = response.status();
    let detail = response.extensions().get::<Problem>().cloned();
    if status.is_success() {
        events.changed(&line.who, line.method.as_str(), &line.object, &line.request);
    }
    line.outcome = Some((status.as_u16(), detail));
    response
}

/// Writes the line of a refused request, whether it changes or reads. A client can cause any number of these
/// lines, so their rate is limited.
pub fn refused(Caller(who): &Caller, request: &Parts, refusal: &Refusal) {
    let Some(left_out) = REFUSALS.pass() else { return };
    let (method, object) = (&request.method, told(&request.uri.to_string()));
    let (status, reason) = (refusal.status().as_u16(), told(refusal.message()));
    let result = "refused";
    tracing::warn!(target: AUDIT, who, %method, object, result, status, reason, left_out, "not let in");
}

/// Returns the same request, and the text of its body for the line.
async fn read(request: Request) -> (Request, String) {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length: Option<usize> = length.and_then(|length| length.parse().ok());
    if !length.is_some_and(|length| (1..=BODY_BYTES_MAX).contains(&length)) {
        return (request, String::new());
    }
    let (parts, body) = request.into_parts();
    match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(bytes) => {
            let told = told(&String::from_utf8_lossy(&bytes));
            (Request::from_parts(parts, Body::from(bytes)), told)
        }
        // A truncated body is refused like an empty one.
        Err(_) => (Request::from_parts(parts, Body::empty()), String::new()),
    }
}

/// Text from a client, on one line of bounded length.
fn told(body: &str) -> String {
    let is_shown = |character: &char| !character.is_control();
    let line: String = body.chars().filter(is_shown).take(BODY_CHARACTERS_MAX).collect();
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_cannot_forge_another_line() {
        assert_eq!(told("{\"name\":\n \"x\"}\r\n2026 change\u{1b}[2J"), "{\"name\": \"x\"}2026 change[2J");
        assert_eq!(told(&"x".repeat(5000)).len(), BODY_CHARACTERS_MAX);
    }
}
