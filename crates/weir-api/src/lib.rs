//! REST API: the operations of control under `/v1`, their description at `/openapi.json`, and `/metrics`.

#![forbid(unsafe_code)]

mod access;
mod adaptive_policies;
mod alarms;
mod answer;
mod attachments;
mod audit;
mod background;
mod body;
mod cgroups;
mod convert;
mod description;
mod drives;
mod entity_tag;
mod error;
mod events;
mod explain;
mod health;
mod history;
mod idempotency;
mod journals;
mod listen;
mod metrics;
mod operations;
mod paging;
mod policies;
mod policy_set;
mod pools;
mod prometheus;
mod recordings;
mod scrubs;
mod snapshots;
mod statistics;
mod status;
mod stream;
mod templates;
mod tenants;
mod timed;
mod versions;
mod volumes;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::Response;
use tokio::sync::{Semaphore, watch};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;

pub use audit::Caller;
pub use description::openapi_document;
pub use history::History;
pub use listen::{ApiListeners, ListenError};
pub use policy_set::read_set;

use error::ApiError;
use weir_api_types::IoMethod;
use weir_control::Control;
use weir_types::control_bounds::{
    API_BODY_BYTES_MAX, API_POLICIES_BYTES_MAX, API_READERS_MAX, API_SNAPSHOTS_MAX, API_WORKERS_MAX,
};

/// Facts about the daemon that the API reports and control does not know.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Number of data-plane threads.
    pub reactors: usize,
    /// How they carry out operations on files.
    pub io_method: IoMethod,
    /// Why it is not io_uring.
    pub io_method_reason: Option<String>,
    /// State directory.
    pub state_directory: String,
    /// Addresses that the API listens on.
    pub api_listeners: Vec<String>,
    /// Addresses that NBD clients attach to.
    pub nbd_listeners: Vec<String>,
    /// Name of the cluster, from the configuration.
    pub cluster_id: Option<String>,
    /// Zone of the node, from the configuration.
    pub zone: Option<String>,
    /// Region of the node, from the configuration.
    pub region: Option<String>,
    /// Parts of the configuration that have no effect yet.
    pub warnings: Vec<String>,
    /// True if the metrics have series of volumes without attached clients.
    pub metrics_of_idle_volumes: bool,
}

impl Default for Facts {
    fn default() -> Facts {
        Facts {
            reactors: 0,
            io_method: IoMethod::IoUring,
            io_method_reason: None,
            state_directory: String::new(),
            api_listeners: Vec::new(),
            nbd_listeners: Vec::new(),
            cluster_id: None,
            zone: None,
            region: None,
            warnings: Vec::new(),
            metrics_of_idle_volumes: true,
        }
    }
}

/// Shared context of all handlers.
#[derive(Clone)]
struct Context {
    control: Arc<Control>,
    facts: Arc<Facts>,
    /// Permits for requests that change something; they may wait for other changes and for drives.
    workers: Arc<Semaphore>,
    /// Permits for requests that only read, so that changes never take their place.
    readers: Arc<Semaphore>,
    /// Permits for work as long as duplicating a large volume, so that it never blocks other requests.
    snapshot_permits: Arc<Semaphore>,
    streams: stream::Streams,
    events: Arc<events::Events>,
    operations: Arc<operations::Operations>,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Weir",
        description = "Block storage with exact limits. \
            All values are in base units: bytes, bytes per second, nanoseconds. \
            A change with the header `Prefer: respond-async` is answered at once, with 202 and an operation."
    ),
    tags(
        (name = "status", description = "How the daemon is"),
        (name = "drives", description = "Directories that hold volumes"),
        (name = "pools", description = "Drives that volumes share, and the floors that are bound there"),
        (name = "templates", description = "Where each replica of volumes lives, and which is read"),
        (name = "tenants", description = "Owners of volumes and policy groups"),
        (name = "volumes", description = "Block devices"),
        (name = "snapshots", description = "What volumes held at one instant, and clones"),
        (name = "policy groups", description = "Named terms, fixed or following a size"),
        (name = "operations", description = "Work that takes longer than a second"),
        (name = "alarms", description = "Faults that exist now"),
        (name = "events", description = "What happened"),
        (name = "statistics", description = "What was done and how long it took"),
    )
)]
struct Description;

/// All operations with their descriptions.
fn routes() -> OpenApiRouter<Context> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(status::status))
        .routes(routes!(drives::list, drives::create))
        .routes(routes!(drives::inspect, drives::modify, drives::delete))
        .routes(routes!(drives::accept))
        .routes(routes!(drives::measure))
        .routes(routes!(drives::keep))
        .routes(routes!(pools::list))
        .routes(routes!(pools::inspect, pools::modify))
        .routes(routes!(templates::list, templates::create))
        .routes(routes!(templates::inspect, templates::modify, templates::delete))
        .routes(routes!(tenants::list, tenants::create))
        .routes(routes!(tenants::inspect, tenants::modify, tenants::delete))
        .routes(routes!(volumes::list))
        .routes(routes!(volumes::inspect_by_id, volumes::modify_by_id, volumes::delete_by_id))
        .routes(routes!(volumes::list_of_tenant, volumes::create))
        .routes(routes!(volumes::inspect, volumes::modify, volumes::delete))
        .routes(routes!(attachments::list))
        .routes(routes!(attachments::inspect, attachments::delete))
        .routes(routes!(attachments::list_of_volume, attachments::create))
        .routes(routes!(cgroups::list, cgroups::create))
        .routes(routes!(cgroups::inspect, cgroups::modify, cgroups::delete))
        .routes(routes!(snapshots::list))
        .routes(routes!(snapshots::create))
        .routes(routes!(snapshots::list_of_volume))
        .routes(routes!(snapshots::inspect, snapshots::delete))
        .routes(routes!(snapshots::restore))
        .routes(routes!(snapshots::clone_volume))
        .routes(routes!(recordings::record))
        .routes(routes!(journals::list))
        .routes(routes!(journals::list_of_volume))
        .routes(routes!(scrubs::list))
        .routes(routes!(scrubs::inspect, scrubs::begin, scrubs::cancel))
        .routes(routes!(policies::list))
        .routes(routes!(policies::create))
        .routes(routes!(policies::inspect, policies::modify, policies::delete))
        .routes(routes!(adaptive_policies::list))
        .routes(routes!(adaptive_policies::create))
        .routes(routes!(adaptive_policies::inspect, adaptive_policies::modify, adaptive_policies::delete))
        .routes(
            routes!(policy_set::export, policy_set::apply)
                .layer(DefaultBodyLimit::max(API_POLICIES_BYTES_MAX)),
        )
        .routes(routes!(background::list))
        .routes(routes!(background::inspect, background::modify, background::reset))
        .routes(routes!(background::jobs))
        .routes(routes!(operations::list))
        .routes(routes!(operations::inspect))
        .routes(routes!(operations::cancel))
        .routes(routes!(alarms::list))
        .routes(routes!(alarms::inspect))
        .routes(routes!(events::list))
        .routes(routes!(events::follow))
        .routes(routes!(statistics::volumes))
        .routes(routes!(explain::explain))
        .routes(routes!(statistics::policy_groups))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::logging, health::set_logging))
        .routes(routes!(metrics::metrics))
        .routes(routes!(description::openapi))
}

/// Serves the API of a running daemon until `stop` becomes true.
///
/// # Errors
/// If a socket can no longer be served.
pub async fn serve(
    listeners: &ApiListeners,
    control: Arc<Control>,
    facts: Facts,
    history: &History,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let (events, operations) = (history.events.clone(), history.operations.clone());
    listeners.serve(router(control, facts, events, operations), stop).await
}

/// The operations with what holds for all of them.
fn router(
    control: Arc<Control>,
    facts: Facts,
    events: Arc<events::Events>,
    operations: Arc<operations::Operations>,
) -> Router {
    let workers = Arc::new(Semaphore::new(API_WORKERS_MAX));
    let readers = Arc::new(Semaphore::new(API_READERS_MAX));
    let snapshot_permits = Arc::new(Semaphore::new(API_SNAPSHOTS_MAX));
    let (router, _) = routes().split_for_parts();
    router
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(DefaultBodyLimit::max(API_BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(events.clone(), audit::audit))
        .layer(middleware::from_fn_with_state(operations.clone(), operations::requests::run))
        .layer(middleware::from_fn_with_state(idempotency::Idempotency::default(), idempotency::once))
        .layer(middleware::from_fn(tell_reads))
        .with_state(Context {
            control,
            facts: Arc::new(facts),
            workers,
            readers,
            snapshot_permits,
            streams: Default::default(),
            events,
            operations,
        })
}

tokio::task_local! {
    /// True while a request is answered that changes nothing.
    static IS_READ: bool;
}

/// Classifies each request as read or change by its method.
async fn tell_reads(request: Request, next: Next) -> Response {
    let is_read = request.method().is_safe();
    IS_READ.scope(is_read, next.run(request)).await
}

impl Context {
    /// The same context for long work, which has its own permits: at most [`API_SNAPSHOTS_MAX`] requests run
    /// at a time.
    fn for_long_work(self) -> Context {
        Context { workers: self.snapshot_permits.clone(), readers: self.snapshot_permits.clone(), ..self }
    }

    /// Runs an operation of control outside the API's own thread, because it may wait for files and for the
    /// data plane. At most [`API_WORKERS_MAX`] run at a time, and [`API_READERS_MAX`] for requests that only
    /// read.
    async fn run<T, E>(
        &self,
        operation: impl FnOnce(&Control) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
        E: Into<ApiError> + Send + 'static,
    {
        let is_read = IS_READ.try_with(|is_read| *is_read).unwrap_or(false);
        let places = if is_read { self.readers.clone() } else { self.workers.clone() };
        let permit = places.acquire_owned().await.map_err(ApiError::unexpected)?;
        let control = self.control.clone();
        let work = move || {
            let _permit = permit;
            operation(&control)
        };
        tokio::task::spawn_blocking(work).await.map_err(ApiError::unexpected)?.map_err(E::into)
    }
}
