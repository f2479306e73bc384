//! Events as a resource and as a stream (server-sent events).
//!
//! Three sources record events: changes of clients ([`changes`]), regular looks at alarms and derived I/O profiles
//! ([`watch`]), and the beginning and end of operations. The log is bounded ([`log`]); a stream reads it by number, so that a slow reader costs no
//! memory and learns what it missed.

pub(super) mod changes;
mod log;
mod watch;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{self, KeepAlive};
use futures_util::stream::{self, Stream};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch as channel};
use uuid::Uuid;
use weir_api_types::{
    Alarm, Event, EventCode, EventList, EventQuery, EventSeverity, EventStreamQuery, ObjectReference,
    Operation, OperationState, VolumeIoProfile,
};
use weir_control::ControlError;
use weir_types::control_bounds::{EVENT_STREAM_SILENCE_SECONDS_MAX, EVENT_STREAMS_MAX, EVENTS_PER_READ};

use super::Context;
use super::answer::{Answer, Query};
use super::error::ApiError;
use super::paging::Page;
use log::{EventLog, NewEvent};
pub(super) use watch::Watch;

/// The events of a daemon, which its API shows.
#[derive(Debug)]
pub struct Events {
    log: Mutex<EventLog>,
    /// Number of the newest event, for the streams that wait for it.
    newest: channel::Sender<u64>,
    streams: Arc<Semaphore>,
}

impl Events {
    /// The events of a daemon that starts now.
    pub fn begin() -> Arc<Events> {
        let mut log = EventLog::begun_at(Timestamp::now());
        let started = NewEvent {
            code: EventCode::DaemonStarted,
            severity: EventSeverity::Information,
            object: ObjectReference::daemon(),
            message: format!("version {} has started", env!("CARGO_PKG_VERSION")),
            cause: "start".to_owned(),
        };
        log.record(Timestamp::now(), started);
        let newest = channel::Sender::new(log.newest());
        let streams = Arc::new(Semaphore::new(EVENT_STREAMS_MAX));
        Arc::new(Events { log: Mutex::new(log), newest, streams })
    }

    fn with_log<T>(&self, act: impl FnOnce(&mut EventLog) -> T) -> T {
        act(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn record(&self, event: NewEvent) {
        let newest = self.with_log(|log| {
            log.record(Timestamp::now(), event);
            log.newest()
        });
        self.newest.send_replace(newest);
    }

    /// Records the alarms that came and went since the last look.
    pub(super) fn alarms_seen(&self, watch: &mut Watch, alarms: Vec<Alarm>) {
        watch.look(alarms).into_iter().for_each(|event| self.record(event));
    }

    /// Records that I/O profiles which Weir chooses are others than at the last look.
    pub(super) fn profiles_seen(
        &self,
        watch: &mut Watch,
        volumes: Vec<(Uuid, ObjectReference, VolumeIoProfile)>,
    ) {
        watch.look_at_profiles(volumes).into_iter().for_each(|event| self.record(event));
    }

    /// Records that an operation has begun, or has ended if it has.
    pub(super) fn operation_changed(&self, operation: &Operation) {
        let has_ended = operation.ended_at.is_some();
        let message = match &operation.reason {
            Some(why) if has_ended => format!("{}: {}: {why}", operation.message, state(operation.state)),
            None if has_ended => format!("{}: {}", operation.message, state(operation.state)),
            _ => operation.message.clone(),
        };
        self.record(NewEvent {
            code: if has_ended { EventCode::OperationEnded } else { EventCode::OperationBegun },
            severity: match operation.state {
                OperationState::Failed => EventSeverity::Warning,
                _ => EventSeverity::Information,
            },
            object: operation.object.clone(),
            message,
            cause: format!("operation {}", operation.id),
        });
    }
}

/// State of an ended operation, in words.
fn state(state: OperationState) -> &'static str {
    match state {
        OperationState::Running | OperationState::Blocked => "in progress",
        OperationState::Succeeded => "done",
        OperationState::Failed => "failed",
        OperationState::Cancelled => "cancelled",
    }
}

/// List events.
#[utoipa::path(
    get, path = "/v1/events", tag = "events", operation_id = "listEvents", params(EventQuery),
    responses((status = 200, description = "A page of the events that match, the oldest first", body = EventList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<EventQuery>,
) -> Answer<EventList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let (after, severity) = (query.after.unwrap_or(0), query.severity.unwrap_or(EventSeverity::Information));
    let is_wanted = |event: &&Event| event.sequence > after && event.severity <= severity;
    // Keys of equal length have the order of their numbers.
    let key = |event: &&Event| format!("{:020}", event.sequence);
    let (items, next_page_token) = context.events.with_log(|log| {
        let (items, token) = page.cut(log.all().filter(is_wanted), key);
        (items.into_iter().cloned().collect(), token)
    });
    Ok(Json(EventList { items, next_page_token }))
}

/// Follow events as they happen.
///
/// The stream is of server-sent events: `id` is the sequence number, `event` the code, `data` the event as
/// JSON. A client that connects again sends the last number in `Last-Event-ID`, and misses nothing that is
/// still kept.
#[utoipa::path(
    get, path = "/v1/events/stream", tag = "events", operation_id = "streamEvents",
    params(EventStreamQuery, ("Last-Event-ID" = inline(Option<u64>), Header, nullable = false, description = "Sequence number of the last event that the client has")),
    responses((status = 200, description = "Events without an end", body = String, content_type = "text/event-stream"))
)]
pub(super) async fn follow(
    State(context): State<Context>,
    Query(query): Query<EventStreamQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, ApiError> {
    let permit = context.events.streams.clone().try_acquire_owned().map_err(|_| {
        ApiError::busy(&format!("{EVENT_STREAMS_MAX} clients follow events; end one of them"))
    })?;
    let last = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("").parse::<u64>());
    let last = last.transpose().map_err(|_| {
        let message = "Last-Event-ID is not a number; the id of an event is";
        ApiError::from(ControlError::invalid(message).of_field("Last-Event-ID"))
    })?;
    let after = last.or(query.after).unwrap_or_else(|| context.events.with_log(|log| log.newest()));
    let reader = Reader {
        newest: context.events.newest.subscribe(),
        events: context.events,
        after,
        severity: query.severity.unwrap_or(EventSeverity::Information),
        read: Vec::new(),
        _permit: permit,
    };
    let alive = KeepAlive::new().interval(Duration::from_secs(EVENT_STREAM_SILENCE_SECONDS_MAX));
    Ok(Sse::new(stream::unfold(reader, Reader::next)).keep_alive(alive))
}

/// One client that follows events.
struct Reader {
    events: Arc<Events>,
    newest: channel::Receiver<u64>,
    /// Number of the last event that was read from the log.
    after: u64,
    severity: EventSeverity,
    /// Events that were read and not sent, the next one last.
    read: Vec<Event>,
    _permit: OwnedSemaphorePermit,
}

impl Reader {
    async fn next(mut self) -> Option<(Result<sse::Event, Infallible>, Reader)> {
        while self.read.is_empty() {
            self.read();
            if self.read.is_empty() {
                self.newest.changed().await.ok()?;
            }
        }
        let event = self.read.pop().map(sent)?;
        Some((Ok(event), self))
    }

    /// Reads the next events from the log.
    fn read(&mut self) {
        let newest = *self.newest.borrow_and_update();
        let newer = self.events.with_log(|log| log.after(self.after, self.severity, EVENTS_PER_READ));
        let is_all = newer.events.len() < EVENTS_PER_READ;
        let last = newer.events.last().map_or(self.after, |event| event.sequence);
        let gap = newer.has_gap.then(|| gap(self.after, newer.events.first()));
        // Events that are not severe enough are passed over.
        self.after = if is_all { newest.max(last) } else { last };
        self.read = gap.into_iter().chain(newer.events).collect();
        self.read.reverse();
    }
}

/// Tells a client that it missed events.
fn gap(after: u64, next: Option<&Event>) -> Event {
    Event {
        sequence: after,
        occurred_at: next.map_or_else(Timestamp::now, |event| event.occurred_at),
        code: EventCode::EventsDropped,
        severity: EventSeverity::Warning,
        object: ObjectReference::daemon(),
        message: format!("events after number {after} are no longer kept, and were not sent"),
        cause: "the log of events is bounded".to_owned(),
    }
}

fn sent(event: Event) -> sse::Event {
    let code = serde_json::to_value(event.code).ok().and_then(|code| code.as_str().map(str::to_owned));
    let sse = sse::Event::default().id(event.sequence.to_string()).event(code.unwrap_or_default());
    sse.json_data(&event).expect("an event has a JSON form without line breaks")
}
