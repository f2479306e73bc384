//! Events: what happened, in order.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::ObjectReference;

/// Stable code of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventCode {
    /// The daemon has started.
    DaemonStarted,
    /// A client changed an object.
    Changed,
    /// An alarm was raised.
    AlarmRaised,
    /// An alarm is no longer active.
    AlarmCleared,
    /// The I/O profile 'auto' of a volume amounts to another one than before.
    IoProfileDerived,
    /// An operation has begun.
    OperationBegun,
    /// An operation has ended.
    OperationEnded,
    /// Events before this one are no longer kept, and were not sent.
    EventsDropped,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), value(rename_all = "snake_case"))]
#[serde(rename_all = "snake_case")]
pub enum EventSeverity {
    /// Data is lost or cannot be reached.
    Critical,
    /// All data is served, but slower or less safely than it should be.
    Warning,
    /// Nothing is wrong.
    Information,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Number of the event. Numbers grow, also through restarts, and may skip.
    pub sequence: u64,
    /// Time of the event.
    #[schema(value_type = String, format = DateTime)]
    pub occurred_at: Timestamp,
    /// Stable code.
    pub code: EventCode,
    /// Severity.
    pub severity: EventSeverity,
    /// Object that the event is about.
    pub object: ObjectReference,
    /// Description of the event.
    pub message: String,
    /// Cause: the client that asked for a change, the fault, or the work that began.
    pub cause: String,
}

/// A page of events, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// Events.
    pub items: Vec<Event>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// Page of the events that match.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Only events with a larger sequence number.
    pub after: Option<u64>,
    /// Only events of this severity, or of a more severe one.
    pub severity: Option<EventSeverity>,
    /// Largest number of items in the answer; 500 if absent.
    #[param(minimum = 1, maximum = 1000)]
    pub page_size: Option<u32>,
    /// Token of the page, from the answer before; the first page if absent.
    pub page_token: Option<String>,
}

/// Events that a stream sends.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventStreamQuery {
    /// Begin after this sequence number; with the next event if absent. The header `Last-Event-ID` has the
    /// same effect.
    pub after: Option<u64>,
    /// Only events of this severity, or of a more severe one.
    pub severity: Option<EventSeverity>,
}
