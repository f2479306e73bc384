//! NBD devices: the kernel's own NBD client makes a block device of a connection.
//!
//! It is spoken to through its netlink family (`linux/nbd-netlink.h`), and never by ioctl: a device that was made so does
//! not need a process that waits for its end. A device carries the name of what it is for, so that the next daemon
//! finds it. When its connection ends it waits for another one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::block_device::{attributes_of, open_unused};
use crate::error::AttachError;

mod netlink;

use netlink::{Attribute, Request, attribute};

/// Flags of a server (`NBD_FLAG_…` of the protocol): that it has flags, flush, FUA, trim, and zeroes.
const SERVER_FLAGS: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6;
/// Flag of a server that refuses writes.
const READ_ONLY: u64 = 1 << 1;
/// Logical block size in bytes: that of every other kind of attachment, so that a filesystem can go from one to another.
const SECTOR_BYTES: u64 = 512;
/// How long a device waits for another connection: for ever, in effect. An error would end the filesystem on it.
const DEAD_CONNECTION_SECONDS_MAX: u64 = 10 * 365 * 24 * 3600;
/// No request is ever given up: one that a limit holds back is not lost.
const NO_TIMEOUT: u64 = 0;
/// The attributes of the queue. Requests are no longer than what the engine answers in one piece. What a daemon left
/// unanswered is asked again when this time is over, so it is short. A request that limits hold back for longer is
/// noted in the kernel's log, so the queue is short too.
const QUEUE: [(&str, &str); 3] = [("max_sectors_kb", "128"), ("nr_requests", "64"), ("io_timeout", "10000")];
/// How long the kernel may take to see that a connection has ended.
const END_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a device may have requests before it is resized.
const IDLE_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// True if this kernel has the client, which is loaded if it is a module.
pub fn is_available() -> bool {
    let is_loaded = || Path::new("/sys/module/nbd").exists();
    let load = || Command::new("modprobe").arg("nbd").stdin(Stdio::null()).stderr(Stdio::null()).status();
    is_loaded() || load().is_ok_and(|status| status.success() && is_loaded())
}

/// A new connection: the end of the server, and that of the client.
///
/// # Errors
/// If the process has too many files.
pub fn connection() -> Result<(OwnedFd, OwnedFd), AttachError> {
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    pair.map_err(AttachError::system("create", "a pair of sockets"))
}

/// Makes a device of a connection, whose other end is served already. It is found by its name from then on.
///
/// # Errors
/// If the kernel has no NBD client, or no further device.
pub fn connect(
    name: &str,
    client: impl AsFd,
    size_bytes: u64,
    is_read_only: bool,
) -> Result<PathBuf, AttachError> {
    if !is_available() {
        let why = io::Error::new(io::ErrorKind::NotFound, "the kernel has none ('modprobe nbd' loads it)");
        return Err(AttachError::system("use", "the kernel's NBD client")(why));
    }
    let flags = SERVER_FLAGS | if is_read_only { READ_ONLY } else { 0 };
    let attributes = vec![
        attribute(Attribute::SizeBytes, size_bytes),
        attribute(Attribute::BlockSizeBytes, SECTOR_BYTES),
        attribute(Attribute::Timeout, NO_TIMEOUT),
        attribute(Attribute::ServerFlags, flags),
        attribute(Attribute::DeadConnectionTimeout, DEAD_CONNECTION_SECONDS_MAX),
        attribute(Attribute::Backend, name),
        netlink::socket(client.as_fd().as_raw_fd()),
    ];
    let index = netlink::ask(Request::Connect, attributes).map_err(failed("connect", "an NBD device"))?;
    let device = match index {
        Some(index) => PathBuf::from(format!("/dev/nbd{index}")),
        None => find(name).ok_or_else(|| lost(name))?,
    };
    tune(&device);
    Ok(device)
}

/// Gives a device whose server has gone another connection. Returns the end of the server, who is sent the requests that
/// were not answered.
///
/// # Errors
/// If the device is gone, or its connection has not ended.
pub fn reconnect(device: &Path, name: &str) -> Result<OwnedFd, AttachError> {
    let until = Instant::now() + END_TIME_MAX;
    loop {
        let (server, client) = connection()?;
        // Nothing else: to change its size, the kernel would wait for requests that wait for this connection.
        let mut attributes = of(device, name);
        attributes.push(netlink::socket(client.as_raw_fd()));
        netlink::ask(Request::Reconfigure, attributes).map_err(failed("connect", device))?;
        drop(client);
        if !has_hung_up(&server) {
            return Ok(server);
        }
        // The kernel does not say so, but it takes none before it has noticed the end of the earlier one.
        if Instant::now() >= until {
            let why = io::Error::other("its earlier connection has not ended");
            return Err(AttachError::system("connect", device)(why));
        }
        std::thread::sleep(PAUSE);
    }
}

/// True if nobody has the other end of a connection.
fn has_hung_up(server: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(server, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut watched, Some(&now)).is_ok() && watched[0].revents().contains(PollFlags::HUP)
}

/// Lets a device be as large as its volume is now. The kernel waits for all requests first, and a daemon that is killed
/// then would leave it waiting. So this is done in a moment without requests.
///
/// # Errors
/// If the device is gone, or never without requests.
pub fn resize(device: &Path, name: &str, size_bytes: u64) -> Result<(), AttachError> {
    if size_of(device) == Some(size_bytes) {
        return Ok(());
    }
    let until = Instant::now() + IDLE_TIME_MAX;
    while !is_idle(device) {
        if Instant::now() >= until {
            let why = io::Error::other("it is never without requests; it grows when it is attached again");
            return Err(AttachError::system("resize", device)(why));
        }
        std::thread::sleep(PAUSE);
    }
    let mut attributes = of(device, name);
    attributes.push(attribute(Attribute::SizeBytes, size_bytes));
    netlink::ask(Request::Reconfigure, attributes).map(drop).map_err(failed("resize", device))
}

/// True if a device has no request under way.
fn is_idle(device: &Path) -> bool {
    let counts = fs::read_to_string(attributes_of(device).join("inflight")).unwrap_or_default();
    counts.split_whitespace().all(|count| count == "0")
}

/// Size of a device in bytes.
fn size_of(device: &Path) -> Option<u64> {
    let sectors: u64 =
        fs::read_to_string(attributes_of(device).join("size")).ok()?.trim_end().parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

/// Gives a device back that nobody uses. One that has another name is no error.
///
/// # Errors
/// If the device is in use.
pub fn detach(device: &Path, name: &str) -> Result<(), AttachError> {
    if name_of(device).as_deref() != Some(name) {
        return Ok(());
    }
    let alone = open_unused(device)?;
    let ended = disconnect(device);
    drop(alone);
    ended
}

/// Ends the device with this name, if there is one. Whoever uses it gets errors.
///
/// # Errors
/// If the kernel refuses.
pub fn end(name: &str) -> Result<(), AttachError> {
    find(name).map_or(Ok(()), |device| disconnect(&device))
}

fn disconnect(device: &Path) -> Result<(), AttachError> {
    let index = vec![attribute(Attribute::Index, index_of(device))];
    netlink::ask(Request::Disconnect, index).map(drop).map_err(failed("disconnect", device))
}

/// The name of a device; `None` if it has no connection.
pub fn name_of(device: &Path) -> Option<String> {
    fs::read_to_string(attributes_of(device).join("backend")).ok().map(|name| name.trim_end().to_owned())
}

/// True if this is such a device.
pub fn is_nbd(device: &Path) -> bool {
    let name = device.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("nbd"))
}

/// The device with a name.
fn find(name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let devices: BTreeSet<PathBuf> = entries.map(|entry| Path::new("/dev").join(entry.file_name())).collect();
    devices.into_iter().find(|device| is_nbd(device) && name_of(device).as_deref() == Some(name))
}

fn lost(name: &str) -> AttachError {
    AttachError::system("find", format!("the NBD device of {name}"))(io::Error::from(io::ErrorKind::NotFound))
}

/// What tells the kernel a device, and that it is still this one.
fn of(device: &Path, name: &str) -> Vec<netlink::Encoded> {
    vec![attribute(Attribute::Index, index_of(device)), attribute(Attribute::Backend, name)]
}

fn index_of(device: &Path) -> u32 {
    let name = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.trim_start_matches("nbd").parse().unwrap_or(u32::MAX)
}

/// Sets the attributes of the queue. The device works without them, less well.
fn tune(device: &Path) {
    for (name, value) in QUEUE {
        let attribute = attributes_of(device).join("queue").join(name);
        if let Err(error) = fs::write(&attribute, value) {
            tracing::warn!(%error, attribute = %attribute.display(), value, "an attribute of a device is not set");
        }
    }
}

fn failed(action: &'static str, what: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> AttachError {
    AttachError::system(action, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_known_by_its_number() {
        assert!(is_nbd(Path::new("/dev/nbd7")) && !is_nbd(Path::new("/dev/loop7")));
        assert_eq!(index_of(Path::new("/dev/nbd12")), 12);
        // No device has this number, so the kernel refuses it.
        assert_eq!(index_of(Path::new("/dev/loop1")), u32::MAX);
    }
}
