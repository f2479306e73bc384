//! The socket where the kubelet and the sidecars call, and which function serves which call.

use std::future::IntoFuture;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use uuid::Uuid;
use weir_api_types::Status as DaemonStatus;
use weir_client::{Client, ClientError};
use weir_host::socket::{self, SocketAccess};

use crate::in_flight::InFlight;
use crate::listener::TolerantListener;
use crate::objects::Objects;
use crate::rpc::{Answer, WAIT_MAX, unary, unimplemented};
use crate::{controller, identity, node, registration, wire};

/// Where and how the driver serves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the driver, as StorageClasses name it.
    pub name: String,
    /// The socket: `unix://PATH`, or a path.
    pub endpoint: String,
    /// Folder of the kubelet, as `/var/lib/kubelet`, if the driver makes itself known to it.
    pub kubelet: Option<PathBuf>,
    /// Tenant of the volumes.
    pub tenant: String,
    /// Size in bytes of a volume that is created without one.
    pub default_size_bytes: u64,
}

/// Why the driver does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The endpoint is none.
    #[error("'{0}' is not an endpoint; unix:///PATH is")]
    Endpoint(String),
    /// The daemon does not say who it is.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// The socket cannot be bound, or the system refused something else.
    #[error("the driver cannot serve at {}: {source}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// The driver while it serves.
struct Driver {
    name: String,
    /// Where the kubelet calls it.
    socket: PathBuf,
    /// The node of the daemon.
    node: Uuid,
    default_size_bytes: u64,
    objects: Objects,
    in_flight: InFlight,
}

/// Serves until SIGTERM or SIGINT. The sockets are removed at the end.
///
/// # Errors
/// If the daemon cannot be reached, or a socket cannot be bound.
pub fn serve(client: Client, settings: &Settings) -> Result<(), ServeError> {
    let path = socket_of(&settings.endpoint)?;
    // The kubelet calls back at once when it sees the driver, so that is announced last.
    let announced =
        settings.kubelet.as_deref().map(|kubelet| registration::socket_in(kubelet, &settings.name));
    let paths: Vec<PathBuf> = [path.clone()].into_iter().chain(announced).collect();
    let status: DaemonStatus = client.get("/v1/status", &[])?;
    // The client ends on a thread that may block, so this holds it to the end.
    let driver = Arc::new(Driver {
        name: settings.name.clone(),
        socket: path.clone(),
        node: status.node_id,
        default_size_bytes: settings.default_size_bytes,
        objects: Objects::new(client, settings.tenant.clone()),
        in_flight: InFlight::default(),
    });
    let system = |source| ServeError::System { path: path.clone(), source };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(system)?;
    // Signals are caught before anybody can see the sockets, so an early SIGTERM also removes these.
    let ends = runtime.block_on(async { catch_ends() }).map_err(system)?;
    let listeners = paths.iter().map(|path| bind(path)).collect::<Result<Vec<_>, _>>()?;
    let served = runtime.block_on(serve_on(listeners, &driver, ends));
    paths.iter().for_each(|path| _ = std::fs::remove_file(path));
    // A call that waits for the daemon is cut off as by a crash: whoever called repeats it.
    runtime.shutdown_background();
    served.map_err(system)
}

/// Listens at a path, instead of a driver that has gone.
fn bind(path: &Path) -> Result<std::os::unix::net::UnixListener, ServeError> {
    let bound = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let bound = bound.and_then(|()| socket::bind(path, SocketAccess { mode: 0o600, group: None }));
    let listener = bound.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|source| ServeError::System { path: path.to_owned(), source })
}

fn socket_of(endpoint: &str) -> Result<PathBuf, ServeError> {
    let path = endpoint.strip_prefix("unix://").or(endpoint.strip_prefix("unix:")).unwrap_or(endpoint);
    match Path::new(path).is_absolute() {
        true => Ok(PathBuf::from(path)),
        false => Err(ServeError::Endpoint(endpoint.to_owned())),
    }
}

/// Catches SIGTERM and SIGINT, which end the driver in order.
fn catch_ends() -> io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?])
}

async fn serve_on(
    listeners: Vec<std::os::unix::net::UnixListener>,
    driver: &Arc<Driver>,
    [mut terminate, mut interrupt]: [Signal; 2],
) -> io::Result<()> {
    let router = Router::new().fallback(call).with_state(driver.clone());
    let mut serving = tokio::task::JoinSet::new();
    for listener in listeners {
        let served = axum::serve(TolerantListener(UnixListener::from_std(listener)?), router.clone());
        serving.spawn(served.into_future());
    }
    tokio::select! {
        Some(served) = serving.join_next() => served.map_err(io::Error::other)?,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// Serves one call.
async fn call(State(driver): State<Arc<Driver>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    if let Some(method) = path.strip_prefix(registration::SERVICE) {
        return call_registration(method, driver, request).await;
    }
    match path.strip_prefix("/csi.v1.").and_then(|path| path.split_once('/')) {
        Some(("Identity", method)) => call_identity(method, driver, request).await,
        Some(("Controller", method)) => call_controller(method, driver, request).await,
        Some(("GroupController", method)) => call_group_controller(method, driver, request).await,
        Some(("Node", method)) => call_node(method, driver, request).await,
        _ => unimplemented(&path),
    }
}

async fn call_registration(method: &str, driver: Arc<Driver>, request: Request) -> Response {
    match method {
        "GetInfo" => {
            let info = move |_: &wire::Empty| Ok(registration::info(&driver.name, &driver.socket));
            unary(request, WAIT_MAX, info).await
        }
        "NotifyRegistrationStatus" => unary(request, WAIT_MAX, |status| Ok(registration::note(status))).await,
        _ => unimplemented(method),
    }
}

async fn call_identity(method: &str, driver: Arc<Driver>, request: Request) -> Response {
    match method {
        "GetPluginInfo" => {
            unary(request, WAIT_MAX, move |_: &wire::Empty| Ok(identity::info(&driver.name))).await
        }
        "GetPluginCapabilities" => {
            unary(request, WAIT_MAX, |_: &wire::Empty| Ok(identity::capabilities())).await
        }
        // Whoever asks wants to know how it is now.
        "Probe" => {
            unary(request, Duration::ZERO, move |_: &wire::Empty| identity::probe(&driver.objects)).await
        }
        _ => unimplemented(method),
    }
}

/// Serves one call by a function of the daemon's objects, and of the driver.
async fn by<Q, A>(driver: Arc<Driver>, request: Request, serve: fn(&Driver, &Q) -> Answer<A>) -> Response
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    unary(request, WAIT_MAX, move |asked| serve(&driver, asked)).await
}

/// Serves one call about an object, which `object` finds in the call, unless another one about it is served.
async fn alone<Q, A>(
    driver: Arc<Driver>,
    request: Request,
    object: fn(&Q) -> &str,
    serve: fn(&Driver, &Q) -> Answer<A>,
) -> Response
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    let serve = move |asked: &Q| driver.in_flight.alone(object(asked), || serve(&driver, asked));
    unary(request, WAIT_MAX, serve).await
}

async fn call_controller(method: &str, driver: Arc<Driver>, request: Request) -> Response {
    match method {
        "ControllerGetCapabilities" => {
            unary(request, WAIT_MAX, |_: &wire::Empty| Ok(controller::capabilities())).await
        }
        "CreateVolume" => {
            let serve = |driver: &Driver, asked: &_| {
                controller::create_volume(&driver.objects, (driver.node, driver.default_size_bytes), asked)
            };
            alone(driver, request, |asked: &wire::CreateVolumeRequest| &asked.name, serve).await
        }
        "DeleteVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::DeleteRequest| &asked.id,
                |own, asked| controller::delete_volume(&own.objects, asked),
            )
            .await
        }
        "ControllerPublishVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::ControllerPublishVolumeRequest| &asked.volume_id,
                |own, asked| controller::publish(&own.objects, own.node, asked),
            )
            .await
        }
        "ControllerUnpublishVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::ControllerUnpublishVolumeRequest| &asked.volume_id,
                |own, asked| controller::unpublish(&own.objects, asked),
            )
            .await
        }
        "ValidateVolumeCapabilities" => {
            by(driver, request, |own, asked| controller::validate(&own.objects, asked)).await
        }
        "ListVolumes" => {
            by(driver, request, |own, asked| controller::list_volumes(&own.objects, own.node, asked)).await
        }
        "GetCapacity" => {
            by(driver, request, |own, asked| controller::capacity(&own.objects, own.node, asked)).await
        }
        "ControllerExpandVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::ControllerExpandVolumeRequest| &asked.volume_id,
                |own, asked| controller::expand(&own.objects, asked),
            )
            .await
        }
        "ControllerModifyVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::ControllerModifyVolumeRequest| &asked.volume_id,
                |own, asked| controller::modify(&own.objects, asked),
            )
            .await
        }
        _ => call_snapshots(method, driver, request).await,
    }
}

/// Serves one call about snapshots.
async fn call_snapshots(method: &str, driver: Arc<Driver>, request: Request) -> Response {
    match method {
        "CreateSnapshot" => {
            alone(
                driver,
                request,
                |asked: &wire::CreateSnapshotRequest| &asked.name,
                |own, asked| controller::create_snapshot(&own.objects, asked),
            )
            .await
        }
        "DeleteSnapshot" => {
            alone(
                driver,
                request,
                |asked: &wire::DeleteRequest| &asked.id,
                |own, asked| controller::delete_snapshot(&own.objects, asked),
            )
            .await
        }
        "ListSnapshots" => {
            by(driver, request, |own, asked| controller::list_snapshots(&own.objects, asked)).await
        }
        _ => unimplemented(method),
    }
}

async fn call_group_controller(method: &str, driver: Arc<Driver>, request: Request) -> Response {
    match method {
        "GroupControllerGetCapabilities" => {
            unary(request, WAIT_MAX, |_: &wire::Empty| Ok(controller::group_capabilities())).await
        }
        "CreateVolumeGroupSnapshot" => {
            let name: fn(&wire::CreateVolumeGroupSnapshotRequest) -> &str = |asked| &asked.name;
            alone(driver, request, name, |own, asked| controller::create_group(&own.objects, asked)).await
        }
        "DeleteVolumeGroupSnapshot" => {
            let id: fn(&wire::VolumeGroupSnapshotRequest) -> &str = |asked| &asked.group_snapshot_id;
            alone(driver, request, id, |own, asked| controller::delete_group(&own.objects, asked)).await
        }
        "GetVolumeGroupSnapshot" => {
            by(driver, request, |own, asked| controller::get_group(&own.objects, asked)).await
        }
        _ => unimplemented(method),
    }
}

async fn call_node(method: &str, driver: Arc<Driver>, request: Request) -> Response {
    match method {
        "NodeGetCapabilities" => unary(request, WAIT_MAX, |_: &wire::Empty| Ok(node::capabilities())).await,
        "NodeGetInfo" => unary(request, WAIT_MAX, move |_: &wire::Empty| Ok(node::info(driver.node))).await,
        "NodeStageVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::NodeStageVolumeRequest| &asked.volume_id,
                |own, asked| node::stage(&own.objects, asked),
            )
            .await
        }
        "NodeUnstageVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::NodeRemoveRequest| &asked.volume_id,
                |_, asked| node::unstage(asked),
            )
            .await
        }
        "NodePublishVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::NodePublishVolumeRequest| &asked.volume_id,
                |own, asked| node::publish(&own.objects, asked),
            )
            .await
        }
        "NodeUnpublishVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::NodeRemoveRequest| &asked.volume_id,
                |_, asked| node::unpublish(asked),
            )
            .await
        }
        "NodeGetVolumeStats" => by(driver, request, |own, asked| node::statistics(&own.objects, asked)).await,
        "NodeExpandVolume" => {
            alone(
                driver,
                request,
                |asked: &wire::NodeExpandVolumeRequest| &asked.volume_id,
                |own, asked| node::expand(&own.objects, asked),
            )
            .await
        }
        _ => unimplemented(method),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_an_absolute_path() {
        for endpoint in ["unix:///run/csi.sock", "unix:/run/csi.sock", "/run/csi.sock"] {
            assert_eq!(socket_of(endpoint).unwrap(), Path::new("/run/csi.sock"), "{endpoint}");
        }
        assert!(socket_of("tcp://localhost:1").is_err());
    }
}
