//! The keeper's loop: one daemon at a time, question by question.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::DEVICES_MAX;
use super::message::{Answer, Question, receive, send};

/// Connections that wait while a daemon is served.
const WAITING_MAX: i32 = 16;

/// Keeps devices for the daemons that connect to a socket, until it holds none and its daemon has gone.
///
/// # Errors
/// If the socket cannot be made.
pub fn run(socket: &Path) -> io::Result<()> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(socket)?)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&listener, WAITING_MAX)?;
    let mut devices = BTreeMap::new();
    loop {
        let daemon = match rustix::net::accept_with(&listener, SocketFlags::CLOEXEC) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => continue,
            result => result?,
        };
        // A daemon that was killed is like one that has gone.
        let _ = serve(&daemon, &mut devices);
        if devices.is_empty() {
            return fs::remove_file(socket);
        }
    }
}

fn serve(daemon: &OwnedFd, devices: &mut BTreeMap<String, OwnedFd>) -> io::Result<()> {
    loop {
        let (packet, device) = receive(daemon)?;
        if packet.is_empty() {
            return Ok(());
        }
        let (answer, name) = answer(Question::decode(&packet), device, devices);
        let given = name.and_then(|name| devices.get(&name)).map(AsFd::as_fd);
        send(daemon, answer.encode().as_bytes(), given)?;
    }
}

/// The answer, and the name of the device that goes with it.
fn answer(
    question: Option<Question>,
    device: Option<OwnedFd>,
    devices: &mut BTreeMap<String, OwnedFd>,
) -> (Answer, Option<String>) {
    match (question, device) {
        (Some(Question::Keep(name)), Some(device))
            if devices.len() < DEVICES_MAX || devices.contains_key(&name) =>
        {
            devices.insert(name, device);
            (Answer::Done, None)
        }
        (Some(Question::Give(name)), None) if devices.contains_key(&name) => (Answer::Here, Some(name)),
        (Some(Question::Give(_)), None) => (Answer::Nothing, None),
        (Some(Question::Drop(name)), None) => match devices.remove(&name) {
            Some(_) => (Answer::Done, None),
            None => (Answer::Nothing, None),
        },
        _ => (Answer::Refused, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_kept_given_and_let_go() {
        let mut devices = BTreeMap::new();
        let device = || Some(OwnedFd::from(tempfile::tempfile().unwrap()));
        let name = || "a".to_owned();
        let mut ask = |question, device| answer(question, device, &mut devices);
        assert_eq!(ask(Some(Question::Give(name())), None), (Answer::Nothing, None));
        assert_eq!(ask(Some(Question::Keep(name())), None), (Answer::Refused, None));
        assert_eq!(ask(Some(Question::Keep(name())), device()), (Answer::Done, None));
        assert_eq!(ask(Some(Question::Give(name())), None), (Answer::Here, Some(name())));
        assert_eq!(ask(None, device()), (Answer::Refused, None));
        assert_eq!(ask(Some(Question::Drop(name())), None), (Answer::Done, None));
        assert_eq!(ask(Some(Question::Drop(name())), None), (Answer::Nothing, None));
    }
}
