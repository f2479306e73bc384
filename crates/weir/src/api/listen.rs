//! Where the API listens: a Unix socket for the daemon's own user, and, if asked for, TCP on loopback.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::extract::connect_info::Connected;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::answer::ApiError;
use super::audit::Caller;
use crate::control::ControlError;
use crate::control::bounds::API_CONNECTIONS_MAX;

/// How long requests that run may still take when the daemon ends.
const DRAIN: Duration = Duration::from_secs(5);

/// Why the API cannot listen somewhere.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program answers on the socket.
    #[error("another program answers on {}; stop it or choose another --state", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The address is reachable from elsewhere.
    #[error(
        "the API listens on loopback only, because it asks for no password; \
         {0} is not loopback, 127.0.0.1:PORT would be accepted"
    )]
    NotLoopback(SocketAddr),
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// Where.
        address: String,
        /// The cause.
        source: io::Error,
    },
}

impl ListenError {
    /// The system's error, if it refused.
    pub fn system_error(&self) -> Option<&io::Error> {
        match self {
            ListenError::System { source, .. } => Some(source),
            ListenError::InUse { .. } | ListenError::NotLoopback(_) => None,
        }
    }
}

/// The sockets of the API, bound but not yet served. They outlive the thread that serves them.
pub struct ApiListeners {
    unix: UnixListener,
    path: PathBuf,
    tcp: Option<TcpListener>,
}

impl ApiListeners {
    /// Binds the Unix socket at `path` and, if given, a loopback TCP address. A socket that nobody answers on
    /// was left by a crash and is replaced.
    ///
    /// # Errors
    /// If somebody answers on the socket, the address is not loopback, or the system refuses.
    pub fn bind(path: &Path, tcp: Option<SocketAddr>) -> Result<ApiListeners, ListenError> {
        if let Some(address) = tcp.filter(|address| !address.ip().is_loopback()) {
            return Err(ListenError::NotLoopback(address));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(ListenError::InUse { path: path.to_owned() });
        }
        let unix_error = |source| ListenError::System { address: format!("unix:{}", path.display()), source };
        let unix = bind_unix(path).map_err(unix_error)?;
        let tcp = tcp.map(|address| {
            let bound = TcpListener::bind(address).and_then(|l| l.set_nonblocking(true).map(|()| l));
            bound.map_err(|source| ListenError::System { address: format!("http://{address}"), source })
        });
        Ok(ApiListeners { unix, path: path.to_owned(), tcp: tcp.transpose()? })
    }

    /// Where the sockets are, in the form that `--server` takes.
    pub fn addresses(&self) -> Vec<String> {
        let mut addresses = vec![format!("unix:{}", self.path.display())];
        let tcp = self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
        addresses.extend(tcp.map(|address| format!("http://{address}")));
        addresses
    }

    /// Serves until `stop` becomes true, then lets running requests end.
    ///
    /// # Errors
    /// If a socket can no longer be served.
    pub async fn serve(&self, router: Router, stop: watch::Receiver<bool>) -> io::Result<()> {
        let connections = Arc::new(Semaphore::new(API_CONNECTIONS_MAX));
        let unix = tokio::net::UnixListener::from_std(self.unix.try_clone()?)?;
        let unix = serve_one(
            Bounded { listener: unix, connections: connections.clone() },
            router.clone(),
            stop.clone(),
        );
        let Some(tcp) = &self.tcp else { return unix.await };
        let tcp = tokio::net::TcpListener::from_std(tcp.try_clone()?)?;
        let router = router.layer(middleware::from_fn(local_host_only));
        let tcp = serve_one(Bounded { listener: tcp, connections }, router, stop);
        tokio::try_join!(unix, tcp).map(|_| ())
    }

    /// Removes the Unix socket's name: the last thing that the daemon does.
    pub fn remove(self) {
        // A name that is gone already needs no removal.
        let _ = fs::remove_file(&self.path);
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Bound under another name and moved once its mode is set, so that nobody else ever gets in.
    let temporary = path.with_extension("new");
    let _ = fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
    fs::rename(&temporary, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn serve_one<L>(listener: L, router: Router, stop: watch::Receiver<bool>) -> io::Result<()>
where
    L: Listener,
    L::Addr: std::fmt::Debug,
    Caller: for<'stream> Connected<IncomingStream<'stream, L>>,
{
    let stopped = |mut stop: watch::Receiver<bool>| async move {
        // The sender being gone means the same as its word.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let service = router.into_make_service_with_connect_info::<Caller>();
    let serve = axum::serve(listener, service).with_graceful_shutdown(stopped(stop.clone()));
    let deadline = async {
        stopped(stop).await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        result = serve => result,
        () = deadline => Ok(()),
    }
}

impl Connected<IncomingStream<'_, Bounded<tokio::net::UnixListener>>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Bounded<tokio::net::UnixListener>>) -> Caller {
        match stream.io().io.peer_cred() {
            Ok(peer) => Caller::local(peer.uid(), peer.gid(), peer.pid()),
            Err(_) => Caller::default(),
        }
    }
}

impl Connected<IncomingStream<'_, Bounded<tokio::net::TcpListener>>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Bounded<tokio::net::TcpListener>>) -> Caller {
        Caller(stream.remote_addr().to_string())
    }
}

/// Refuses requests over TCP that name another host, as a web page does that got its own name to point here.
async fn local_host_only(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
    let name =
        host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    if matches!(name, "localhost" | "127.0.0.1" | "[::1]") {
        return next.run(request).await;
    }
    let message = format!("host '{host}' is not accepted; localhost, 127.0.0.1 and [::1] are");
    let answer = ApiError::from(ControlError::refused(message));
    (StatusCode::FORBIDDEN, answer).into_response()
}

/// A listener that accepts no more connections than the API serves at a time.
struct Bounded<L> {
    listener: L,
    connections: Arc<Semaphore>,
}

/// A connection that counts against the bound while it lives.
struct Counted<I> {
    io: I,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<L: Listener> Listener for Bounded<L> {
    type Io = Counted<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // Never closed, so there is always a permit in the end.
        let permit = self.connections.clone().acquire_owned().await.ok();
        let (io, address) = self.listener.accept().await;
        (Counted { io, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Counted<I> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Counted<I> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.io).poll_shutdown(context)
    }
}
