//! Operations: work that can take longer than a second.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{ObjectReference, Problem};

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), value(rename_all = "snake_case"))]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// A request that its client did not wait for.
    Request,
    /// A drive is drained, and is removed once it is empty.
    Drain,
    /// A drive is measured.
    Measurement,
    /// Replicas of a volume move to the drives where they belong.
    Move,
    /// The replicas of a volume are compared.
    Scrub,
    /// Stale replicas of a volume are brought up to date.
    Resync,
    /// Space of a deleted volume, or of a part of a volume, is reclaimed.
    Reclaim,
}

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), value(rename_all = "snake_case"))]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// It is in progress.
    Running,
    /// It cannot go on for now, and is tried again; `reason` says why.
    Blocked,
    /// All was done.
    Succeeded,
    /// It was not done; `problem` or `reason` says why.
    Failed,
    /// It was cancelled, or its object is gone. What was done by then stays.
    Cancelled,
}

/// Unit in which the progress of an operation is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressUnit {
    /// Bytes.
    Bytes,
    /// Extents.
    Extents,
    /// Hundredths of the whole.
    Percent,
}

/// Progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationProgress {
    /// Unit of `done` and `left`.
    pub unit: ProgressUnit,
    /// Number that is done, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// Number that is left, as far as known.
    pub left: u64,
}

/// The request that an operation carries out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationRequest {
    /// Method.
    pub method: String,
    /// Path.
    pub path: String,
}

/// Work that can take longer than a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Identity: the same for the same kind of work at the same object, also after a restart. Each request
    /// has its own.
    pub id: Uuid,
    /// Kind.
    pub kind: OperationKind,
    /// Object that the operation is about.
    pub object: ObjectReference,
    /// Description, in words.
    pub message: String,
    /// State.
    pub state: OperationState,
    /// Why the operation cannot go on, was not done, or has no result, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Progress, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<OperationProgress>,
    /// True if the operation is in progress and can be cancelled.
    pub can_be_cancelled: bool,
    /// Start; for work that a restart of the daemon did not end, the time when this daemon first saw it.
    #[schema(value_type = String, format = DateTime)]
    pub begun_at: Timestamp,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// The request, for the kind `request`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<OperationRequest>,
    /// Body of the answer of a request that was done, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Error of a request that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// A page of the operations, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// Operations.
    pub items: Vec<Operation>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// Page of the operations that match.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OperationQuery {
    /// Only operations of this kind.
    pub kind: Option<OperationKind>,
    /// Only operations in this state.
    pub state: Option<OperationState>,
    /// Only operations on the object with this identity.
    pub object_id: Option<Uuid>,
    /// Largest number of items in the answer; 500 if absent.
    #[param(minimum = 1, maximum = 1000)]
    pub page_size: Option<u32>,
    /// Token of the page, from the answer before; the first page if absent.
    pub page_token: Option<String>,
}

/// How long an answer waits for the end of an operation.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OperationWaitQuery {
    /// Longest time to wait for the end, in seconds; 0 if absent.
    #[param(minimum = 0, maximum = 60)]
    pub wait_seconds: Option<u32>,
}

impl OperationState {
    /// True once the operation is no longer in progress.
    pub fn is_ended(self) -> bool {
        !matches!(self, OperationState::Running | OperationState::Blocked)
    }
}
