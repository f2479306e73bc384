//! The daemon's side: the keeper of a state folder, which is started when it is needed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::message::{Answer, Question, receive, send};

/// How long a keeper may take to listen.
const START_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause between two tries to reach a keeper that starts.
const START_PAUSE: Duration = Duration::from_millis(5);

/// The keeper did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// It cannot be started or reached.
    #[error("the process that keeps mounts cannot be reached")]
    Unreachable(#[source] io::Error),
    /// It answered otherwise.
    #[error("the process that keeps mounts refused")]
    Refused,
}

/// The keeper of a state folder. One that is gone while the daemon runs is replaced at once.
#[derive(Debug)]
pub struct Keeper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    /// The program with the command `keeper`.
    program: PathBuf,
    link: Mutex<Link>,
}

/// The connection to the keeper, and what the keeper has.
#[derive(Debug, Default)]
struct Link {
    connection: Option<OwnedFd>,
    /// Number of connections so far: it tells whose end a watcher saw.
    connections: u64,
    /// The daemon's own hold on each device, to be given to the next keeper.
    kept: BTreeMap<String, OwnedFd>,
}

impl Keeper {
    /// The keeper at a socket. It is started when it is first needed, by `program keeper --socket SOCKET`.
    pub fn new(socket: PathBuf, program: PathBuf) -> Keeper {
        Keeper(Arc::new(Shared { socket, program, link: Mutex::default() }))
    }

    /// Keeps a device under a name. It outlives the daemon from then on.
    ///
    /// # Errors
    /// If the keeper cannot be started, or has too many devices.
    pub fn keep(&self, name: &str, device: impl AsFd) -> Result<(), KeeperError> {
        let own = device.as_fd().try_clone_to_owned().map_err(KeeperError::Unreachable)?;
        let mut link = self.0.link();
        match self.0.ask(&mut link, &Question::Keep(name.to_owned()), Some(device.as_fd()))? {
            (Answer::Done, _) => _ = link.kept.insert(name.to_owned(), own),
            _ => return Err(KeeperError::Refused),
        }
        Ok(())
    }

    /// Gets a device back; `None` if no keeper has it.
    ///
    /// # Errors
    /// If the keeper runs and does not answer.
    pub fn give(&self, name: &str) -> Result<Option<OwnedFd>, KeeperError> {
        let mut link = self.0.link();
        match self.0.ask(&mut link, &Question::Give(name.to_owned()), None)? {
            (Answer::Here, Some(device)) => {
                let own = device.try_clone().map_err(KeeperError::Unreachable)?;
                link.kept.insert(name.to_owned(), own);
                Ok(Some(device))
            }
            (Answer::Nothing, _) => Ok(None),
            _ => Err(KeeperError::Refused),
        }
    }

    /// Lets go of a device. One that it does not have is no error.
    ///
    /// # Errors
    /// If the keeper runs and does not answer.
    pub fn let_go(&self, name: &str) -> Result<(), KeeperError> {
        let mut link = self.0.link();
        link.kept.remove(name);
        match self.0.ask(&mut link, &Question::Drop(name.to_owned()), None)? {
            (Answer::Done | Answer::Nothing, _) => Ok(()),
            _ => Err(KeeperError::Refused),
        }
    }
}

impl Shared {
    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and asks a new keeper if the old one has gone. Without a keeper that has something, none is started
    /// for a question.
    fn ask(
        self: &Arc<Self>,
        link: &mut Link,
        question: &Question,
        device: Option<BorrowedFd<'_>>,
    ) -> Result<(Answer, Option<OwnedFd>), KeeperError> {
        let mut failed = None;
        for _ in 0..2 {
            if link.connection.is_none() {
                let is_needed = device.is_some() || !link.kept.is_empty();
                if !self.connect(link, is_needed).map_err(KeeperError::Unreachable)? {
                    return Ok((Answer::Nothing, None));
                }
            }
            let connection = link.connection.as_ref().expect("the keeper is connected");
            match exchange(connection, question, device) {
                Ok((answer, given)) => return Ok((answer.ok_or(KeeperError::Refused)?, given)),
                Err(error) => failed = Some(error),
            }
            // Its watcher holds it too, and a keeper serves one connection at a time.
            let _ = rustix::net::shutdown(connection, rustix::net::Shutdown::Both);
            link.connection = None;
        }
        Err(KeeperError::Unreachable(failed.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())))
    }

    /// Connects to the keeper, or to a new one, which gets all that the old one had. False if there is none and
    /// none is needed.
    fn connect(self: &Arc<Self>, link: &mut Link, is_needed: bool) -> io::Result<bool> {
        let until = Instant::now() + START_TIME_MAX;
        let connection = loop {
            match self.connect_once(link, is_needed) {
                // A keeper that ends takes connections until its socket is closed.
                Err(error) if has_ended(&error) && Instant::now() < until => std::thread::sleep(START_PAUSE),
                connected => break connected?,
            }
        };
        let Some(connection) = connection else { return Ok(false) };
        link.connections += 1;
        self.watch(connection.try_clone()?, link.connections)?;
        link.connection = Some(connection);
        Ok(true)
    }

    fn connect_once(&self, link: &Link, is_needed: bool) -> io::Result<Option<OwnedFd>> {
        let connection = match connect(&self.socket) {
            Err(error) if is_absent(&error) && !is_needed => return Ok(None),
            Err(error) if is_absent(&error) => self.start()?,
            connected => connected?,
        };
        for (name, device) in &link.kept {
            exchange(&connection, &Question::Keep(name.clone()), Some(device.as_fd()))?;
        }
        Ok(Some(connection))
    }

    /// Replaces the keeper behind a connection when it has gone.
    fn watch(self: &Arc<Self>, connection: OwnedFd, number: u64) -> io::Result<()> {
        let shared = Arc::downgrade(self);
        let watch = move || {
            let mut watched = [PollFd::new(&connection, PollFlags::RDHUP)];
            while rustix::event::poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
            let Some(shared) = shared.upgrade() else { return };
            let mut link = shared.link();
            if link.connections != number {
                return;
            }
            link.connection = None;
            if link.kept.is_empty() {
                return;
            }
            tracing::warn!("the process that keeps mounts has gone, and is replaced");
            if let Err(error) = shared.connect(&mut link, true) {
                tracing::error!(%error, "mounts of attached volumes would end with this daemon: nothing keeps them");
            }
        };
        std::thread::Builder::new().name("keeper-watch".to_owned()).spawn(watch).map(drop)
    }

    /// Starts a keeper in a session of its own, so that no signal to the daemon reaches it.
    fn start(&self) -> io::Result<OwnedFd> {
        let mut command = Command::new("setsid");
        command.arg("--fork").arg(&self.program).args(["keeper", "--socket"]).arg(&self.socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A keeper must not hold the folder that the daemon was started in.
        let status = command.current_dir("/").status()?;
        if !status.success() {
            return Err(io::Error::other(format!("setsid: {status}")));
        }
        let until = Instant::now() + START_TIME_MAX;
        loop {
            match connect(&self.socket) {
                Err(error) if is_absent(&error) && Instant::now() < until => std::thread::sleep(START_PAUSE),
                result => return result,
            }
        }
    }
}

/// One question and its answer; `None` for an answer that is not understood.
fn exchange(
    connection: &OwnedFd,
    question: &Question,
    device: Option<BorrowedFd<'_>>,
) -> io::Result<(Option<Answer>, Option<OwnedFd>)> {
    send(connection, question.encode().as_bytes(), device)?;
    match receive(connection)? {
        (packet, _) if packet.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        (packet, given) => Ok((Answer::decode(&packet), given)),
    }
}

/// True if a keeper has gone while it was spoken to.
fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn connect(socket: &Path) -> io::Result<OwnedFd> {
    let connection =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&connection, &SocketAddrUnix::new(socket)?)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeper_that_ends_as_it_is_spoken_to_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("keeper.sock");
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let listener = listener.unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        rustix::net::listen(&listener, 4).unwrap();
        let served = std::thread::spawn(move || {
            // The first takes the connection and ends, the next has each device that it is given.
            drop(rustix::net::accept(&listener).unwrap());
            let connection = rustix::net::accept(&listener).unwrap();
            [(); 2].map(|()| {
                let (question, _) = receive(&connection).unwrap();
                send(&connection, Answer::Done.encode().as_bytes(), None).unwrap();
                question
            })
        });
        let keeper = Keeper::new(socket, PathBuf::from("/nowhere"));
        let device = std::fs::File::open("/dev/null").unwrap();
        keeper.0.link().kept.insert("before".to_owned(), device.try_clone().unwrap().into());
        keeper.keep("now", &device).unwrap();
        assert_eq!(served.join().unwrap(), [b"keep before".to_vec(), b"keep now".to_vec()]);
    }
}
