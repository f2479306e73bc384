//! Listeners of the API: a Unix socket with peers that the kernel identifies, and optionally loopback TCP
//! with a token.
//!
//! Each listener has its own budget of connections. A connection that sends no request, or reads nothing of
//! an answer, ends after a time limit.

use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::access::{Entrance, admit};
use super::audit::{self, Caller};
use super::body::{Busy, Timely};
use super::timed::Timed;
use weir_host::budget::Budget;
use weir_host::peer::Peer;
use weir_host::socket::{self, SocketAccess};
use weir_host::token::Token;
use weir_types::control_bounds::{
    API_CONNECTION_BUFFER_BYTES, API_CONNECTIONS_MAX, API_CONNECTIONS_RESERVE, API_HEADER_SECONDS_MAX,
    API_WRITE_SECONDS_MAX,
};

/// Time that running requests may still take when the daemon ends.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Mode of the socket if only the daemon's user administers, and mode if a group does too.
const MODES: (u32, u32) = (0o600, 0o660);

/// Cause why the API cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program answers on the socket.
    #[error("another program answers on {}; stop it or choose another --state", path.display())]
    InUse {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The address is reachable from other hosts.
    #[error(
        "the API listens on loopback only, because it does not encrypt; \
         {0} is not loopback, 127.0.0.1:PORT would be accepted"
    )]
    NotLoopback(SocketAddr),
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// Address or path that was refused.
        address: String,
        /// Error of the system.
        source: io::Error,
    },
}

impl ListenError {
    /// Error of the system, if the system refused.
    pub fn system_error(&self) -> Option<&io::Error> {
        match self {
            ListenError::System { source, .. } => Some(source),
            ListenError::InUse { .. } | ListenError::NotLoopback(_) => None,
        }
    }
}

/// Sockets of the API, bound but not yet served. They outlive the thread that serves them.
pub struct ApiListeners {
    unix: UnixListener,
    path: PathBuf,
    admin_group: Option<u32>,
    tcp: Option<(TcpListener, Arc<Token>)>,
}

impl ApiListeners {
    /// Binds the Unix socket at `path`, and a loopback TCP address if one is given.
    ///
    /// Root, the daemon's user and the given group may administer over the Unix socket. Requests over TCP
    /// must show the token.
    ///
    /// # Errors
    /// If another program answers on the socket, the address is not loopback, or the system refuses.
    pub fn bind(
        path: &Path,
        admin_group: Option<u32>,
        tcp: Option<(SocketAddr, Arc<Token>)>,
    ) -> Result<ApiListeners, ListenError> {
        if let Some((address, _)) = tcp.as_ref().filter(|(address, _)| !address.ip().is_loopback()) {
            return Err(ListenError::NotLoopback(*address));
        }
        let mode = if admin_group.is_some() { MODES.1 } else { MODES.0 };
        let unix = socket::bind(path, SocketAccess { mode, group: admin_group });
        let unix = unix.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { path: path.to_owned() },
            _ => ListenError::System { address: format!("unix:{}", path.display()), source },
        })?;
        let tcp = tcp.map(|(address, token)| {
            let bound = TcpListener::bind(address).and_then(|l| l.set_nonblocking(true).map(|()| l));
            let bound =
                bound.map_err(|source| ListenError::System { address: format!("http://{address}"), source });
            bound.map(|listener| (listener, token))
        });
        Ok(ApiListeners { unix, path: path.to_owned(), admin_group, tcp: tcp.transpose()? })
    }

    /// Addresses of the sockets, in the form that `--server` takes.
    pub fn addresses(&self) -> Vec<String> {
        let mut addresses = vec![format!("unix:{}", self.path.display())];
        let tcp = self.tcp.as_ref().and_then(|(tcp, _)| tcp.local_addr().ok());
        addresses.extend(tcp.map(|address| format!("http://{address}")));
        addresses
    }

    /// Serves until `stop` becomes true, then lets running requests end.
    ///
    /// # Errors
    /// If a socket can no longer be served.
    pub async fn serve(&self, router: Router, stop: watch::Receiver<bool>) -> io::Result<()> {
        let unix = tokio::net::UnixListener::from_std(self.unix.try_clone()?)?;
        let door = Door::new(router.clone(), API_CONNECTIONS_RESERVE);
        let accept = || async { Ok(who_is_there(unix.accept().await?.0, self.admin_group)) };
        let unix = door.serve(accept, stop.clone());
        let Some((tcp, token)) = &self.tcp else { return unix.await };
        let tcp = tokio::net::TcpListener::from_std(tcp.try_clone()?)?;
        let door = Door::new(router, 0);
        let accept = || async {
            let (stream, address) = tcp.accept().await?;
            let caller = Caller(address.to_string());
            Ok((
                stream,
                Guest {
                    peer: Peer::at(address.ip()),
                    caller,
                    entrance: Entrance::Tcp { token: token.clone() },
                },
            ))
        };
        tokio::try_join!(unix, door.serve(accept, stop)).map(|_| ())
    }

    /// Removes the Unix socket's file, as the last act of the daemon.
    pub fn remove(self) {
        // A file that is already gone needs no removal.
        let _ = fs::remove_file(&self.path);
    }
}

/// A connected client: its peer for the budget, its name for the audit log, and its listener.
struct Guest {
    peer: Peer,
    caller: Caller,
    entrance: Entrance,
}

/// Identifies the peer of a Unix socket by the kernel's credentials.
fn who_is_there(stream: UnixStream, admin_group: Option<u32>) -> (UnixStream, Guest) {
    let Ok(credentials) = stream.peer_cred() else {
        let entrance = Entrance::Unix { may_administer: false, user: None };
        return (stream, Guest { peer: Peer::Unknown, caller: Caller::default(), entrance });
    };
    let (user, group) = (credentials.uid(), credentials.gid());
    let is_member = |wanted: u32| {
        let others = || weir_reactor::peer_groups(stream.as_fd()).unwrap_or_default();
        group == wanted || others().contains(&wanted)
    };
    let own = rustix::process::geteuid().as_raw();
    let may_administer = user == 0 || user == own || admin_group.is_some_and(is_member);
    let entrance = Entrance::Unix { may_administer, user: Some(user) };
    let caller = Caller::local(user, group, credentials.pid());
    (stream, Guest { peer: Peer::User(user), caller, entrance })
}

/// The connections of one listener.
struct Door {
    service: TowerToHyperService<Router>,
    budget: Budget,
    graceful: GracefulShutdown,
}

impl Door {
    fn new(router: Router, reserve: usize) -> Door {
        let service = TowerToHyperService::new(router);
        let budget = Budget::new(API_CONNECTIONS_MAX, reserve);
        Door { service, budget, graceful: GracefulShutdown::new() }
    }

    /// Accepts clients until `stop` becomes true, then lets running requests end.
    async fn serve<S, F>(self, accept: impl Fn() -> F, mut stop: watch::Receiver<bool>) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = io::Result<(S, Guest)>>,
    {
        loop {
            let accepted = tokio::select! {
                accepted = accept() => accepted,
                // A dropped sender means the same as a stop.
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, guest)) => self.let_in(stream, guest),
                Err(error) => {
                    tracing::warn!(%error, "a client of the API could not be accepted");
                    // If descriptors are short, for example, an immediate retry would only spin.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        tokio::select! {
            () = self.graceful.shutdown() => {}
            () = tokio::time::sleep(DRAIN) => {}
        }
        Ok(())
    }

    fn let_in<S>(&self, stream: S, guest: Guest)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let peer = guest.peer;
        let is_favoured = matches!(guest.entrance, Entrance::Unix { may_administer: true, .. });
        let Some(place) = self.budget.enter(peer, is_favoured) else {
            return tracing::debug!(?peer, "a connection of the API was refused: all are busy");
        };
        let place = Arc::new(place);
        let (service, occupied, guest) = (self.service.clone(), place.clone(), Arc::new(guest));
        let answer = service_fn(move |request| {
            answer(request, service.clone(), guest.clone(), Busy::new(occupied.clone()))
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new());
        builder.header_read_timeout(Duration::from_secs(API_HEADER_SECONDS_MAX));
        builder.max_buf_size(API_CONNECTION_BUFFER_BYTES);
        let stream = Timed::new(stream, Duration::from_secs(API_WRITE_SECONDS_MAX));
        let connection = self.graceful.watch(builder.serve_connection(TokioIo::new(stream), answer));
        tokio::spawn(async move {
            tokio::select! {
                // The client is gone, whatever the result.
                _ = connection => {}
                () = place.sent_away() => tracing::debug!(?peer, "an idle connection of the API was ended"),
            }
        });
    }
}

/// Answers one request, if it is admitted.
async fn answer(
    request: Request<Incoming>,
    service: TowerToHyperService<Router>,
    guest: Arc<Guest>,
    busy: Busy,
) -> Result<Response, Infallible> {
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(ConnectInfo(guest.caller.clone()));
    let response = match admit(&guest.entrance, &parts) {
        Ok(()) => service.call(Request::from_parts(parts, Body::new(Timely::new(body)))).await?,
        Err(refusal) => {
            audit::refused(&guest.caller, &parts, &refusal);
            refusal.into_response()
        }
    };
    Ok(response.map(|body| Body::new(busy.with(body))))
}
