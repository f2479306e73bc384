//! The socket where dockerd calls, and the way of a call to its answer.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::IncomingStream;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use weir_client::Client;
use weir_host::socket::{self, SocketAccess};

use crate::callers::{Caller, Engine};
use crate::protocol::{Answer, Call, Capabilities};
use crate::volumes::{CallError, DockerVolumes};

/// Content type of answers.
const CONTENT_TYPE: &str = "application/vnd.docker.plugins.v1.1+json";
/// Maximum time until the daemon answers a change: dockerd waits two minutes.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(100);
/// Pause between two looks for what Docker has forgotten.
const SETTLE_PAUSE: Duration = Duration::from_secs(30);
/// Mode of the folder of mounts.
const PRIVATE: u32 = 0o700;
/// Most bytes of a call.
const CALL_BYTES_MAX: usize = 1 << 20;

/// Where and how the plugin serves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names of the driver: one socket each.
    pub drivers: Vec<String>,
    /// Folder of the sockets, where dockerd looks for them.
    pub sockets: PathBuf,
    /// Folder of mounts and callers.
    pub folder: PathBuf,
    /// Tenant of the volumes.
    pub tenant: String,
    /// Size in bytes of a volume that is created without one.
    pub default_size_bytes: u64,
}

/// Why the plugin does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket cannot be bound.
    #[error("cannot listen on {}: {source}", path.display())]
    Listen {
        /// Its path.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("the plugin cannot run: {0}")]
    System(#[from] io::Error),
}

/// Serves Docker until SIGTERM or SIGINT. The sockets are there before anything else is done, because dockerd waits
/// for them at its start, and are removed at the end.
///
/// # Errors
/// If a socket cannot be bound.
pub fn serve(client: Client, settings: &Settings) -> Result<(), ServeError> {
    let folder = &settings.sockets;
    std::fs::create_dir_all(folder)?;
    let own = own_folder(&settings.folder)?;
    let paths: Vec<_> = settings.drivers.iter().map(|driver| folder.join(format!("{driver}.sock"))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Signals are caught before dockerd can see the sockets, so an early SIGTERM also removes these.
    let ends = runtime.block_on(async { catch_ends() })?;
    let listeners = paths.iter().map(|path| bind(path)).collect::<Result<Vec<_>, _>>()?;
    let client = client.with_change_time_max(CHANGE_TIME_MAX);
    let volumes = DockerVolumes::new(client, settings.tenant.clone(), settings.default_size_bytes, &own);
    let volumes = Arc::new(volumes);
    runtime.spawn(settle_for_ever(volumes.clone()));
    let served = runtime.block_on(serve_all(listeners, &router(volumes), ends));
    for path in paths {
        // A socket of another program that has taken its place would be gone, too: dockerd connects again.
        let _ = std::fs::remove_file(path);
    }
    // A call that waits for a daemon is cut off as by a crash: the next plugin settles what it left.
    runtime.shutdown_background();
    Ok(served?)
}

/// Creates the folder of mounts and callers, or checks it: whoever could reach the mounts in it could run what a
/// container has put there, as its owner. Returns its path without links.
fn own_folder(folder: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(folder)?;
    let found = std::fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        let message = format!("{} is not a folder of this user alone", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    std::fs::set_permissions(folder, Permissions::from_mode(PRIVATE))?;
    std::fs::canonicalize(folder)
}

/// Settles what Docker has forgotten, at the start and now and then.
async fn settle_for_ever(volumes: Arc<DockerVolumes>) {
    loop {
        let volumes = volumes.clone();
        // A fault is in the log.
        let _ = tokio::task::spawn_blocking(move || volumes.settle_all()).await;
        tokio::time::sleep(SETTLE_PAUSE).await;
    }
}

fn bind(path: &Path) -> Result<std::os::unix::net::UnixListener, ServeError> {
    let bound = socket::bind(path, SocketAccess { mode: 0o600, group: None });
    bound.map_err(|source| ServeError::Listen { path: path.to_owned(), source })
}

/// Catches SIGTERM and SIGINT, which end the plugin in order.
fn catch_ends() -> io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?])
}

async fn serve_all(
    listeners: Vec<std::os::unix::net::UnixListener>,
    router: &Router,
    [mut terminate, mut interrupt]: [Signal; 2],
) -> io::Result<()> {
    let mut servers = tokio::task::JoinSet::new();
    for listener in listeners {
        let listener = UnixListener::from_std(listener)?;
        let service = router.clone().into_make_service_with_connect_info::<Peer>();
        servers.spawn(async move { axum::serve(listener, service).await });
    }
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        ended = servers.join_next() => ended.map_or(Ok(()), |ended| ended.map_err(io::Error::other)?),
    }
}

/// The engine at the other end of a connection.
#[derive(Clone, Copy, Debug)]
struct Peer(Option<Engine>);

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Peer {
        let process = stream.io().peer_cred().ok().and_then(|peer| peer.pid());
        Peer(process.and_then(|process| Engine::of(process.cast_unsigned())))
    }
}

fn router(volumes: Arc<DockerVolumes>) -> Router {
    Router::new()
        .route("/{call}", post(answer))
        .layer(DefaultBodyLimit::max(CALL_BYTES_MAX))
        .with_state(volumes)
}

async fn answer(
    State(volumes): State<Arc<DockerVolumes>>,
    ConnectInfo(Peer(engine)): ConnectInfo<Peer>,
    uri: Uri,
    body: Bytes,
) -> Response {
    let path = uri.path().trim_start_matches('/').to_owned();
    // Docker does not say that it sends JSON, and sends nothing at all with some calls.
    let call: Call = match if body.is_empty() { Ok(Call::default()) } else { serde_json::from_slice(&body) } {
        Ok(call) => call,
        Err(error) => return failed(format!("the call is not understood: {error}")),
    };
    let name = call.name.clone();
    let (sender, outcome) = tokio::sync::oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let (name, id) = (call.name.clone(), call.id.clone());
        let outcome = carry_out(&volumes, &path, call, engine);
        // dockerd has given up: it takes the volume for not mounted, and will not unmount it.
        if sender.send(outcome).is_err() && path == MOUNT {
            let _ = volumes.unmount(&name, &id);
        }
    });
    match outcome.await {
        Ok(Ok(Some(answer))) => reply(StatusCode::OK, &answer),
        Ok(Ok(None)) => StatusCode::NOT_FOUND.into_response(),
        Ok(Err(error)) => {
            // Docker asks for a volume before it creates it.
            if !matches!(error, CallError::NoVolume(_)) {
                tracing::info!(call = uri.path(), volume = name, %error, "a call was refused");
            }
            failed(error.to_string())
        }
        Err(error) => failed(format!("the plugin has a fault: {error}")),
    }
}

/// The call that mounts a volume.
const MOUNT: &str = "VolumeDriver.Mount";

/// Carries a call out; `None` if the protocol has no such call.
fn carry_out(
    volumes: &DockerVolumes,
    path: &str,
    call: Call,
    engine: Option<Engine>,
) -> Result<Option<Answer>, CallError> {
    let name = call.name;
    let done = |()| Answer::Done {};
    Ok(Some(match path {
        "Plugin.Activate" => Answer::Activated { implements: ["VolumeDriver"] },
        "VolumeDriver.Capabilities" => Answer::Capabilities { capabilities: Capabilities { scope: "local" } },
        "VolumeDriver.Create" => volumes.create(&name, &call.opts.unwrap_or_default()).map(done)?,
        "VolumeDriver.Get" => Answer::Volume { volume: volumes.get(&name)? },
        "VolumeDriver.List" => Answer::Volumes { volumes: volumes.list()? },
        "VolumeDriver.Path" => Answer::Place { mountpoint: volumes.path(&name)? },
        MOUNT => {
            let place = volumes.mount(&name, &Caller { id: call.id, engine, has_left: false })?;
            Answer::Place { mountpoint: place.display().to_string() }
        }
        "VolumeDriver.Unmount" => volumes.unmount(&name, &call.id).map(done)?,
        "VolumeDriver.Remove" => volumes.remove(&name).map(done)?,
        _ => return Ok(None),
    }))
}

/// An error, in the form that dockerd shows to its user.
fn failed(err: String) -> Response {
    reply(StatusCode::INTERNAL_SERVER_ERROR, &Answer::Failed { err })
}

fn reply(status: StatusCode, answer: &Answer) -> Response {
    let body = serde_json::to_vec(answer).expect("an answer has only texts and names");
    (status, [(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response()
}
