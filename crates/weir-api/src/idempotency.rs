//! Idempotency keys: a request that is sent again with the same `Idempotency-Key` happens once.
//!
//! [`Keys`] decides, without a clock or a socket; [`once`] reads requests and keeps answers for it. Only
//! successful answers are kept: a request that failed changed nothing, and is tried anew. Keys live in memory.
//! After a restart of the daemon a repeated creation finds its object, and gets a conflict.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::whole_body;
use super::error::ApiError;
use weir_api_types::ErrorCode;
use weir_types::control_bounds::{
    IDEMPOTENCY_ANSWERS_BYTES_MAX, IDEMPOTENCY_KEY_CHARACTERS_MAX, IDEMPOTENCY_KEYS_MAX, IDEMPOTENCY_SECONDS,
};

/// Header with the key of a request, as it is described.
pub(super) const KEY_NAME: &str = "Idempotency-Key";
/// Header with the key of a request.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Header of an answer that an earlier request got.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A kept answer.
#[derive(Clone, Debug)]
struct Kept {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// A request with a key: its fingerprint, and its answer once there is one.
#[derive(Debug)]
struct Entry {
    fingerprint: u64,
    begun_seconds: u64,
    answer: Option<Arc<Kept>>,
}

/// What to do with a request.
#[derive(Debug)]
enum Verdict {
    /// The key is new.
    Begin,
    /// The request was done; this was its answer.
    Replay(Arc<Kept>),
    /// The first request with the key has no answer yet.
    InProgress,
    /// The key belongs to another request.
    Reused,
}

/// The keys of recent requests, bounded in number, bytes and age. The oldest leaves first.
#[derive(Debug, Default)]
struct Keys {
    entries: HashMap<String, Entry>,
    /// Keys with an answer, in the order of their answers.
    answered: VecDeque<String>,
    answers_bytes: usize,
}

impl Keys {
    fn begin(&mut self, key: &str, fingerprint: u64, now_seconds: u64) -> Verdict {
        self.drop_old(now_seconds);
        match self.entries.get(key) {
            None => {
                let entry = Entry { fingerprint, begun_seconds: now_seconds, answer: None };
                self.entries.insert(key.to_owned(), entry);
                Verdict::Begin
            }
            Some(entry) if entry.fingerprint != fingerprint => Verdict::Reused,
            Some(Entry { answer: Some(answer), .. }) => Verdict::Replay(answer.clone()),
            Some(Entry { answer: None, .. }) => Verdict::InProgress,
        }
    }

    /// Keeps the answer of a request that was done.
    fn keep(&mut self, key: &str, answer: Kept) {
        let entry = self.entries.get_mut(key).expect("a key stays until its request has ended");
        self.answers_bytes += answer.body.len();
        entry.answer = Some(Arc::new(answer));
        self.answered.push_back(key.to_owned());
        while self.answered.len() > IDEMPOTENCY_KEYS_MAX || self.answers_bytes > IDEMPOTENCY_ANSWERS_BYTES_MAX
        {
            self.drop_oldest();
        }
    }

    /// Forgets a request that was not done.
    fn forget(&mut self, key: &str) {
        self.entries.remove(key);
    }

    fn drop_old(&mut self, now_seconds: u64) {
        let is_old = |key: &String| {
            let begun = self.entries.get(key).map(|entry| entry.begun_seconds);
            begun.is_some_and(|begun| now_seconds.saturating_sub(begun) >= IDEMPOTENCY_SECONDS)
        };
        let count = self.answered.iter().take_while(|key| is_old(key)).count();
        (0..count).for_each(|_| self.drop_oldest());
    }

    fn drop_oldest(&mut self) {
        let Some(key) = self.answered.pop_front() else { return };
        let entry = self.entries.remove(&key).expect("each answered key has an entry");
        self.answers_bytes -= entry.answer.map_or(0, |answer| answer.body.len());
    }
}

/// The keys of a served API.
#[derive(Clone)]
pub(super) struct Idempotency {
    keys: Arc<Mutex<Keys>>,
    hasher: RandomState,
    started: Instant,
}

impl Default for Idempotency {
    fn default() -> Idempotency {
        Idempotency { keys: Arc::default(), hasher: RandomState::new(), started: Instant::now() }
    }
}

impl Idempotency {
    fn with_keys<T>(&self, act: impl FnOnce(&mut Keys) -> T) -> T {
        act(&mut self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The place of a request in progress. It leaves with the request, unless the answer is kept.
struct InProgress {
    idempotency: Idempotency,
    key: String,
    is_kept: bool,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if !self.is_kept {
            self.idempotency.with_keys(|keys| keys.forget(&self.key));
        }
    }
}

/// Answers a request with a key that was answered before with that answer; passes on all others.
pub(super) async fn once(State(idempotency): State<Idempotency>, request: Request, next: Next) -> Response {
    let Some(key) = request.headers().get(&KEY).filter(|_| request.method() == Method::POST) else {
        return next.run(request).await;
    };
    let key = match accepted(key) {
        Ok(key) => key,
        Err(error) => return error.into_response(),
    };
    let (parts, body) = request.into_parts();
    let body = match whole_body(body).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    let fingerprint = idempotency.hasher.hash_one((parts.uri.to_string(), &body));
    let now_seconds = idempotency.started.elapsed().as_secs();
    match idempotency.with_keys(|keys| keys.begin(&key, fingerprint, now_seconds)) {
        Verdict::Begin => {
            let place = InProgress { idempotency, key, is_kept: false };
            let request = Request::from_parts(parts, Body::from(body));
            // The request goes on even if its client leaves, so that the client can ask for its answer.
            let done = tokio::spawn(async move { place.keep(next.run(request).await).await });
            done.await.unwrap_or_else(|error| ApiError::unexpected(error).into_response())
        }
        Verdict::Replay(kept) => kept.replay(),
        Verdict::InProgress => ApiError::new(
            ErrorCode::Conflict,
            format!("the first request with the idempotency key '{key}' is in progress; send it again later"),
        )
        .into_response(),
        Verdict::Reused => ApiError::new(
            ErrorCode::IdempotencyKeyReused,
            format!("the idempotency key '{key}' was used for another request; each request has its own"),
        )
        .into_response(),
    }
}

impl InProgress {
    async fn keep(mut self, response: Response) -> Response {
        if !response.status().is_success() {
            return response;
        }
        let (parts, body) = response.into_parts();
        let body = match to_bytes(body, IDEMPOTENCY_ANSWERS_BYTES_MAX).await {
            Ok(body) => body,
            Err(error) => return ApiError::unexpected(error).into_response(),
        };
        let kept = Kept { status: parts.status, headers: parts.headers.clone(), body: body.clone() };
        self.idempotency.with_keys(|keys| keys.keep(&self.key, kept));
        self.is_kept = true;
        Response::from_parts(parts, Body::from(body))
    }
}

impl Kept {
    fn replay(&self) -> Response {
        let mut response = (self.status, self.headers.clone(), self.body.clone()).into_response();
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        response
    }
}

/// Reads a key: visible ASCII, with or without the quotes of a structured field.
fn accepted(value: &HeaderValue) -> Result<String, ApiError> {
    let text = value.to_str().unwrap_or("").trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let is_accepted = (1..=IDEMPOTENCY_KEY_CHARACTERS_MAX).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_graphic());
    if is_accepted {
        return Ok(text.to_owned());
    }
    let message = format!(
        "the idempotency key is not accepted; 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} visible ASCII characters are, \
         such as a UUID"
    );
    Err(ApiError::new(ErrorCode::Invalid, message).of_field(KEY_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: usize) -> Kept {
        Kept { status: StatusCode::CREATED, headers: HeaderMap::new(), body: vec![b'x'; bytes].into() }
    }

    #[test]
    fn repeated_key_is_in_progress_until_its_answer_is_kept() {
        let mut keys = Keys::default();
        assert!(matches!(keys.begin("k", 1, 0), Verdict::Begin));
        assert!(matches!(keys.begin("k", 1, 1), Verdict::InProgress));
        assert!(matches!(keys.begin("k", 2, 1), Verdict::Reused));
        keys.keep("k", kept(3));
        assert!(matches!(keys.begin("k", 1, 2), Verdict::Replay(answer) if answer.body.len() == 3));
        assert!(matches!(keys.begin("k", 2, 2), Verdict::Reused));
    }

    #[test]
    fn failed_request_is_tried_anew() {
        let mut keys = Keys::default();
        assert!(matches!(keys.begin("k", 1, 0), Verdict::Begin));
        keys.forget("k");
        assert!(matches!(keys.begin("k", 2, 0), Verdict::Begin));
    }

    #[test]
    fn answers_are_bounded_in_age_number_and_bytes() {
        let mut keys = Keys::default();
        keys.begin("old", 1, 0);
        keys.keep("old", kept(1));
        assert!(matches!(keys.begin("old", 1, IDEMPOTENCY_SECONDS - 1), Verdict::Replay(_)));
        assert!(matches!(keys.begin("old", 1, IDEMPOTENCY_SECONDS), Verdict::Begin), "it is forgotten");
        keys.forget("old");
        for number in 0..IDEMPOTENCY_KEYS_MAX + 10 {
            keys.begin(&number.to_string(), 1, 0);
            keys.keep(&number.to_string(), kept(1));
        }
        assert_eq!((keys.entries.len(), keys.answered.len()), (IDEMPOTENCY_KEYS_MAX, IDEMPOTENCY_KEYS_MAX));
        for number in 0..10 {
            keys.begin(&format!("large{number}"), 1, 0);
            keys.keep(&format!("large{number}"), kept(IDEMPOTENCY_ANSWERS_BYTES_MAX / 4));
            assert!(keys.answers_bytes <= IDEMPOTENCY_ANSWERS_BYTES_MAX);
        }
        assert_eq!(keys.entries.len(), 4);
    }

    #[test]
    fn key_is_visible_text_of_bounded_length() {
        let read = |text: &str| accepted(&HeaderValue::from_str(text).unwrap()).ok();
        assert_eq!(read("\"a-1\"").as_deref(), Some("a-1"));
        assert_eq!(read("a-1").as_deref(), Some("a-1"));
        for refused in ["", "\"\"", "a b", &"x".repeat(IDEMPOTENCY_KEY_CHARACTERS_MAX + 1)] {
            assert_eq!(read(refused), None, "{refused}");
        }
    }
}
