//! The daemon's side: the keeper of a state folder, which is started when it is needed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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

/// The keeper of a state folder.
#[derive(Debug)]
pub struct Keeper {
    socket: PathBuf,
    /// The program with the command `keeper`.
    program: PathBuf,
    connection: Mutex<Option<OwnedFd>>,
}

impl Keeper {
    /// The keeper at a socket. It is started when it is first needed, by `program keeper --socket SOCKET`.
    pub fn new(socket: PathBuf, program: PathBuf) -> Keeper {
        Keeper { socket, program, connection: Mutex::new(None) }
    }

    /// Keeps a device under a name. It outlives the daemon from then on.
    ///
    /// # Errors
    /// If the keeper cannot be started, or has too many devices.
    pub fn keep(&self, name: &str, device: impl AsFd) -> Result<(), KeeperError> {
        match self.ask(&Question::Keep(name.to_owned()), Some(device.as_fd()), true)? {
            (Answer::Done, _) => Ok(()),
            _ => Err(KeeperError::Refused),
        }
    }

    /// Gets a device back; `None` if no keeper has it.
    ///
    /// # Errors
    /// If the keeper runs and does not answer.
    pub fn give(&self, name: &str) -> Result<Option<OwnedFd>, KeeperError> {
        match self.ask(&Question::Give(name.to_owned()), None, false)? {
            (Answer::Here, device) => Ok(device),
            (Answer::Nothing, _) => Ok(None),
            _ => Err(KeeperError::Refused),
        }
    }

    /// Lets go of a device. One that it does not have is no error.
    ///
    /// # Errors
    /// If the keeper runs and does not answer.
    pub fn let_go(&self, name: &str) -> Result<(), KeeperError> {
        match self.ask(&Question::Drop(name.to_owned()), None, false)? {
            (Answer::Done | Answer::Nothing, _) => Ok(()),
            _ => Err(KeeperError::Refused),
        }
    }

    /// Asks. A keeper that does not run has nothing, unless it is to be started.
    fn ask(
        &self,
        question: &Question,
        device: Option<std::os::fd::BorrowedFd<'_>>,
        is_started: bool,
    ) -> Result<(Answer, Option<OwnedFd>), KeeperError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.is_none() {
            match connect(&self.socket) {
                Ok(connected) => *connection = Some(connected),
                Err(error) if !is_absent(&error) => return Err(KeeperError::Unreachable(error)),
                Err(_) if !is_started => return Ok((Answer::Nothing, None)),
                Err(_) => *connection = Some(self.start().map_err(KeeperError::Unreachable)?),
            }
        }
        let socket = connection.as_ref().expect("the keeper is connected");
        let exchange = || -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
            send(socket, question.encode().as_bytes(), device)?;
            receive(socket)
        };
        match exchange() {
            Ok((packet, given)) if !packet.is_empty() => {
                Ok((Answer::decode(&packet).ok_or(KeeperError::Refused)?, given))
            }
            ended => {
                *connection = None;
                let cause = ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                Err(KeeperError::Unreachable(cause))
            }
        }
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

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn connect(socket: &Path) -> io::Result<OwnedFd> {
    let connection =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&connection, &SocketAddrUnix::new(socket)?)?;
    Ok(connection)
}
