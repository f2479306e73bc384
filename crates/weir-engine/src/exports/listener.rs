//! Listener: accepts NBD clients, does the handshake, and hands each connection to the data plane.
//!
//! The listener has one thread with its own runtime, apart from control and from the reactors. So a client
//! that is slow in its handshake delays no other work, and clients can attach while control is away. Each
//! listener has its own budget of handshakes. A new client never waits behind clients that send nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use weir_engine_interface::{Export, ExportTable};
use weir_nbd::{CloseReason, ExportDirectory, ExportInfo, Handshake, Progress, Session};
use weir_types::bounds::{
    BLOCK_BYTES, HANDSHAKE_SECONDS_MAX, HANDSHAKES_PER_LISTENER_MAX, REQUEST_BYTES_MAX,
};

use super::ListenAddress;
use crate::{DataPlane, NewClient, NewConnection};
use weir_host::budget::{Budget, Place};
use weir_host::line_gate::LineGate;
use weir_host::peer::Peer;
use weir_host::socket::{self, SocketAccess};

/// Rate limit of log lines about clients that could not be accepted.
static UNACCEPTED: LineGate = LineGate::new();
/// Rate limit of log lines about handshakes that led to no connection.
static UNFINISHED: LineGate = LineGate::new();
/// Bytes read at a time during a handshake.
const READ_BYTES: usize = 4096;
/// Pause after a client could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The thread that listens.
pub struct Listeners {
    addresses: Vec<ListenAddress>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// State that every handshake needs.
struct Shared {
    table: Arc<ExportTable>,
    data_plane: Arc<DataPlane>,
}

/// Binds all addresses, Unix sockets with their mode and group, and starts to accept clients.
///
/// # Errors
/// If an address cannot be bound. The error names the address.
pub fn start(
    table: Arc<ExportTable>,
    data_plane: Arc<DataPlane>,
    listen: &[ListenAddress],
    access: SocketAccess,
) -> io::Result<Listeners> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shared = Arc::new(Shared { table, data_plane });
    let (stop, stopped) = watch::channel(false);
    let entered = runtime.enter();
    let sockets = listen.iter().map(|address| bind(address, access)).collect::<io::Result<Vec<_>>>()?;
    drop(entered);
    let addresses = sockets.iter().zip(listen).map(|(socket, asked)| socket.address(asked)).collect();
    let work = move || {
        let local = tokio::task::LocalSet::new();
        for socket in sockets {
            local.spawn_local(accept_until_stopped(socket, Arc::clone(&shared), stopped.clone()));
        }
        runtime.block_on(local);
    };
    let thread = std::thread::Builder::new().name("weir-exports".to_owned()).spawn(work)?;
    Ok(Listeners { addresses, stop, thread })
}

impl Listeners {
    /// Addresses that clients can connect to. If any port was asked for, they have the port that the system
    /// chose.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Accepts no more clients and ends the handshakes under way.
    pub fn stop(self) {
        // The receivers are gone only if the thread has ended, which is the goal.
        let _ = self.stop.send(true);
        let _ = self.thread.join();
    }
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

fn bind(address: &ListenAddress, access: SocketAccess) -> io::Result<Socket> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    match address {
        ListenAddress::Unix(path) => {
            let listener = socket::bind(path, access).map_err(named)?;
            UnixListener::from_std(listener).map(Socket::Unix)
        }
        ListenAddress::Tcp(address) => {
            let listener = std::net::TcpListener::bind(address).map_err(named)?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener).map(Socket::Tcp)
        }
    }
}

async fn accept_until_stopped(socket: Socket, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let mut until_stopped = stopped.clone();
    let budget = Budget::new(HANDSHAKES_PER_LISTENER_MAX, 0);
    let accept_all = async {
        loop {
            let stream = match socket.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    if let Some(left_out) = UNACCEPTED.pass() {
                        tracing::warn!(%error, left_out, "a client could not be accepted");
                    }
                    // Descriptors may be short, for example. An immediate retry would only spin.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let place = budget.enter(stream.peer(), false).expect("a handshake is never busy");
            let (shared, mut stopped) = (Arc::clone(&shared), stopped.clone());
            tokio::task::spawn_local(async move {
                tokio::select! {
                    () = serve_client(stream, &place, &shared) => {}
                    _ = stopped.wait_for(|&stop| stop) => {}
                }
            });
        }
    };
    tokio::select! {
        () = accept_all => {}
        _ = until_stopped.wait_for(|&stop| stop) => {}
    }
    stopped.mark_unchanged();
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// The address that was bound for a configured one.
    fn address(&self, asked: &ListenAddress) -> ListenAddress {
        match self {
            Socket::Tcp(listener) => listener.local_addr().map_or_else(|_| asked.clone(), ListenAddress::Tcp),
            Socket::Unix(_) => asked.clone(),
        }
    }

    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Socket::Unix(listener) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                // A client that vanished silently gives its place back within minutes.
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, Duration::from_secs(60))?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

impl Stream {
    fn peer(&self) -> Peer {
        match self {
            Stream::Unix(stream) => stream.peer_cred().map_or(Peer::Unknown, |peer| Peer::User(peer.uid())),
            Stream::Tcp(stream) => stream.peer_addr().map_or(Peer::Unknown, |address| Peer::at(address.ip())),
        }
    }

    async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(bytes).await,
            Stream::Tcp(stream) => stream.read(bytes).await,
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.write_all(bytes).await,
            Stream::Tcp(stream) => stream.write_all(bytes).await,
        }
    }

    /// The bare socket in blocking mode. The ring waits for readiness only on blocking sockets.
    fn into_blocking(self) -> io::Result<OwnedFd> {
        match self {
            Stream::Unix(stream) => {
                let stream = stream.into_std()?;
                stream.set_nonblocking(false)?;
                Ok(stream.into())
            }
            Stream::Tcp(stream) => {
                let stream = stream.into_std()?;
                stream.set_nonblocking(false)?;
                Ok(stream.into())
            }
        }
    }
}

async fn serve_client(stream: Stream, place: &Place, shared: &Shared) {
    let timeout = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(timeout, shake_hands(stream, shared)) => outcome,
        () = place.sent_away() => {
            return tracing::debug!("an idle handshake was ended, because others came");
        }
    };
    match outcome {
        Ok(Ok(Ended::Handed | Ended::Closed(CloseReason::Aborted))) => {}
        Ok(Ok(Ended::Closed(reason))) => {
            if let Some(left_out) = UNFINISHED.pass() {
                tracing::info!(%reason, left_out, "a handshake ended without a connection");
            }
        }
        Ok(Err(error)) => tracing::debug!(%error, "a client went away during its handshake"),
        Err(_) => tracing::debug!("a handshake took longer than {HANDSHAKE_SECONDS_MAX} s and was ended"),
    }
}

/// Result of a handshake.
enum Ended {
    /// The data plane has the connection.
    Handed,
    /// There is no connection.
    Closed(CloseReason),
}

async fn shake_hands(mut stream: Stream, shared: &Shared) -> io::Result<Ended> {
    stream.write_all(&Handshake::greeting()).await?;
    let mut handshake = Handshake::new();
    let (mut unread, mut output) = (Vec::new(), Vec::new());
    loop {
        let step = handshake.advance(&unread, &Directory(&shared.table), &mut output);
        unread.drain(..step.consumed);
        stream.write_all(&output).await?;
        output.clear();
        match step.progress {
            Progress::SendOutput => {}
            Progress::NeedInput => {
                let mut bytes = [0; READ_BYTES];
                let count = stream.read(&mut bytes).await?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                unread.extend_from_slice(&bytes[..count]);
            }
            Progress::Close(reason) => return Ok(Ended::Closed(reason)),
            Progress::Transmission(session) => return hand_over(stream, session, unread, shared),
        }
    }
}

fn hand_over(stream: Stream, session: Session, leftover: Vec<u8>, shared: &Shared) -> io::Result<Ended> {
    // The volume may be gone since the client chose it. Then the connection just ends.
    if let Some(export) = shared.table.find(&session.export.name) {
        let socket = stream.into_blocking()?;
        let new = NewConnection { socket, session, leftover, is_attached: false };
        shared.data_plane.serve(export.volume, NewClient::Nbd(new));
    }
    Ok(Ended::Handed)
}

/// The table of exports, as a handshake asks it.
struct Directory<'a>(&'a ExportTable);

impl ExportDirectory for Directory<'_> {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        let export = self.0.find(name)?;
        Some(describe(name, &export))
    }

    fn list(&self) -> Vec<(String, String)> {
        self.0.list().into_iter().map(|(name, export)| (name, export.description)).collect()
    }
}

fn describe(name: &str, export: &Export) -> ExportInfo {
    ExportInfo {
        name: name.to_owned(),
        description: export.description.clone(),
        size_bytes: export.size_bytes,
        read_only: export.read_only,
        block_size_minimum: 1,
        block_size_preferred: BLOCK_BYTES as u32,
        block_size_maximum: REQUEST_BYTES_MAX,
    }
}
