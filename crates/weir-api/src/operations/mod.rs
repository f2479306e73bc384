//! Operations as a resource: requests whose clients do not wait ([`requests`]), and what control does by
//! itself ([`work`]), with progress, cancellation and waiting.
//!
//! The [`registry`] keeps ended operations for a bounded time, in memory.

mod registry;
pub(super) mod requests;
mod work;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use uuid::Uuid;
use weir_api_types::{Operation, OperationKind, OperationList, OperationQuery, OperationWaitQuery};
use weir_control::{Control, ControlError, OperationKey, Outcome, RunningOperation};
use weir_types::control_bounds::{OPERATION_REQUESTS_MAX, OPERATION_WAIT_SECONDS_MAX, OPERATION_WAITS_MAX};

use super::Context;
use super::answer::{Answer, Path, Query};
use super::error::ApiError;
use super::events::Events;
use super::paging::Page;
use registry::Registry;

/// Time between two looks at the daemon's work while a client waits for its end.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The operations of a daemon, which its API shows.
#[derive(Debug)]
pub struct Operations {
    registry: Mutex<Registry<OperationKey>>,
    /// Held during a look, so that an older look never follows a newer one.
    looking: Mutex<()>,
    events: Arc<Events>,
    /// Changes whenever a request ends, for the clients that wait.
    ended: watch::Sender<()>,
    /// Permits of requests whose clients do not wait.
    requests: Arc<Semaphore>,
    /// Permits of clients that wait for an end.
    waits: Semaphore,
}

impl Operations {
    /// No operations yet.
    pub fn begin(events: Arc<Events>) -> Arc<Operations> {
        Arc::new(Operations {
            registry: Mutex::default(),
            looking: Mutex::default(),
            events,
            ended: watch::Sender::new(()),
            requests: Arc::new(Semaphore::new(OPERATION_REQUESTS_MAX)),
            waits: Semaphore::new(OPERATION_WAITS_MAX),
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Registry<OperationKey>) -> T) -> T {
        act(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over what control is doing now.
    pub(super) fn look(&self, control: &Control) {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Timestamp::now();
        let seen = control.operations.running().into_iter().map(|running| {
            let (key, is_certain) = (running.key, running.is_needed);
            (key, work::shown(running, now), is_certain)
        });
        let seen = seen.collect();
        let end_of = |key| work::shown_end(control.operations.end_of(key));
        let changed = self.with(|registry| registry.look(seen, now, end_of));
        changed.iter().for_each(|operation| self.events.operation_changed(operation));
    }

    fn end_request(&self, id: Uuid, result_bytes: usize, end: impl FnOnce(&mut Operation)) {
        if self.with(|registry| registry.end_request(id, Timestamp::now(), result_bytes, end)) {
            self.ended.send_replace(());
        }
    }

    /// The operation with an identity after a look at control; `None` if it is not known.
    fn seen(&self, control: &Control, id: Uuid) -> Option<Operation> {
        self.look(control);
        self.with(|registry| registry.get(id).cloned())
    }

    /// The operation that a client has begun since a time. Work that is over already, such as the drain of an
    /// empty drive, began and ended.
    pub(super) fn begun(&self, control: &Control, since: Timestamp, running: RunningOperation) -> Operation {
        let key = running.key;
        let begun = work::shown(running, Timestamp::now());
        let id = begun.id;
        {
            let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
            let new = self.with(|registry| registry.begin_work(key, since, begun.clone()));
            new.iter().for_each(|operation| self.events.operation_changed(operation));
        }
        self.seen(control, id).unwrap_or(begun)
    }
}

fn unknown(id: Uuid) -> ControlError {
    ControlError::not_found(format!(
        "operation {id} is not known; /v1/operations lists those in progress, and those that ended within a day"
    ))
}

/// List operations: work that takes long, in progress or ended within a day.
#[utoipa::path(
    get, path = "/v1/operations", tag = "operations", operation_id = "listOperations", params(OperationQuery),
    responses((status = 200, description = "A page of the operations that match, the oldest first", body = OperationList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<OperationQuery>,
) -> Answer<OperationList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let is_wanted = |operation: &&Operation| {
        query.kind.is_none_or(|kind| operation.kind == kind)
            && query.state.is_none_or(|state| operation.state == state)
            && query.object_id.is_none_or(|id| operation.object.id == Some(id))
    };
    let operations = context.operations.clone();
    context.run(look(operations.clone())).await?;
    // Keys of equal length have the order of their numbers.
    let key = |one: &&Operation| format!("{:030}\0{}", one.begun_at.as_nanosecond(), one.id);
    let (items, next_page_token) = operations.with(|registry| {
        let mut found: Vec<&Operation> = registry.all().filter(is_wanted).collect();
        found.sort_by_cached_key(key);
        let (items, token) = page.cut(found, key);
        (items.into_iter().cloned().collect(), token)
    });
    Ok(Json(OperationList { items, next_page_token }))
}

/// A look at control, to run beside the API's own thread.
fn look(operations: Arc<Operations>) -> impl FnOnce(&Control) -> Outcome<()> + Send + 'static {
    move |control| {
        operations.look(control);
        Ok(())
    }
}

/// Show an operation, at once or when it has ended.
#[utoipa::path(
    get, path = "/v1/operations/{id}", tag = "operations", operation_id = "getOperation",
    params(("id" = Uuid, Path, description = "Identity of the operation"), OperationWaitQuery),
    responses((status = 200, description = "The operation, ended or after the time to wait", body = Operation))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path(id): Path<Uuid>,
    Query(query): Query<OperationWaitQuery>,
) -> Answer<Operation> {
    let seconds = query.wait_seconds.unwrap_or(0);
    if seconds > OPERATION_WAIT_SECONDS_MAX {
        let message =
            format!("a wait of {seconds} seconds is not accepted; 0 to {OPERATION_WAIT_SECONDS_MAX} are");
        return Err(ControlError::invalid(message).of_field("wait_seconds").into());
    }
    let until = Instant::now() + Duration::from_secs(seconds.into());
    let operations = context.operations.clone();
    let mut ended = operations.ended.subscribe();
    let mut permit = None;
    loop {
        context.run(look(operations.clone())).await?;
        let found = operations.with(|registry| registry.get(id).cloned()).ok_or_else(|| unknown(id))?;
        if found.state.is_ended() || Instant::now() >= until {
            return Ok(Json(found));
        }
        if permit.is_none() {
            permit = Some(operations.waits.try_acquire().map_err(|_| {
                ApiError::busy(&format!("{OPERATION_WAITS_MAX} clients wait for operations; ask again later"))
            })?);
        }
        let pause = match found.kind {
            OperationKind::Request => until,
            _ => until.min(Instant::now() + LOOK_INTERVAL),
        };
        // Both ends of the pause lead to another look.
        let _ = tokio::time::timeout_at(pause, ended.changed()).await;
    }
}

/// Cancel an operation. What it has done by then stays.
#[utoipa::path(
    post, path = "/v1/operations/{id}/cancel", tag = "operations", operation_id = "cancelOperation",
    params(("id" = Uuid, Path, description = "Identity of the operation")),
    responses((status = 200, description = "The operation as it is now", body = Operation))
)]
pub(super) async fn cancel(State(context): State<Context>, Path(id): Path<Uuid>) -> Answer<Operation> {
    let operations = context.operations.clone();
    let cancel = move |control: &Control| -> Outcome<Operation> {
        let found = operations.seen(control, id).ok_or_else(|| unknown(id))?;
        match operations.with(|registry| registry.key(id)) {
            Some(key) => control.operations.cancel(key)?,
            None if found.state.is_ended() => {
                return Err(ControlError::refused(format!("operation {id} has ended")));
            }
            None => {
                return Err(ControlError::refused(format!(
                    "operation {id} is a request, which cannot be cancelled; it ends by itself"
                )));
            }
        }
        operations.seen(control, id).ok_or_else(|| unknown(id))
    };
    Ok(Json(context.run(cancel).await?))
}
