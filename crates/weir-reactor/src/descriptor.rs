//! Open files and sockets as the reactor uses them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FallocateFlags, Mode, OFlags};

use crate::fence::fence;

/// A file or socket. It closes once the last clone is gone. Every operation in flight holds a clone, so the
/// kernel never sees its number reused.
#[derive(Clone, Debug)]
pub struct Descriptor {
    fd: Rc<OwnedFd>,
    kind: Kind,
    /// Number of the filesystem of a file, else 0.
    filesystem: u64,
}

/// The kind of an open descriptor, as far as it matters to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file on a drive, whose operations take time.
    DriveFile,
    /// A file in memory: reading and writing it never waits.
    MemoryFile,
    /// A connection.
    Socket,
    /// A device that gives and takes messages.
    Device,
    /// The server's side of a block device.
    BlockServer,
}

/// `statfs` types of filesystems whose files are in memory: `TMPFS_MAGIC` and `RAMFS_MAGIC`.
const MEMORY_FILESYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// The change of a file's space in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Reserve space; bytes that were never written read as zeroes.
    Reserve,
    /// Give the space back; the range reads as zeroes.
    Release,
    /// Make the range read as zeroes and keep its space reserved.
    Zero,
}

impl FallocateMode {
    pub(crate) fn mode(self) -> i32 {
        let flags = match self {
            FallocateMode::Reserve => FallocateFlags::KEEP_SIZE,
            FallocateMode::Release => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateMode::Zero => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        flags.bits() as i32
    }
}

impl Descriptor {
    /// Opens an existing file for reading and writing with direct I/O, or through the page cache if the
    /// filesystem has no direct I/O. The call waits until all operations that an earlier process issued
    /// through its own descriptor of this kind have ended; see [`fence`](mod@crate::fence).
    ///
    /// # Errors
    /// The errors of `open(2)`, and of locking the file.
    pub fn open_direct(path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Err(rustix::io::Errno::INVAL) => rustix::fs::open(path, flags, Mode::empty())?,
            result => result?,
        };
        fence(&file)?;
        Ok(file)
    }

    /// Takes over an open file. If its filesystem is in memory, the ring reads and writes it directly.
    pub fn file(fd: OwnedFd) -> Descriptor {
        let kind = rustix::fs::fstatfs(&fd).map(|filesystem| filesystem.f_type as u64);
        let is_in_memory = kind.is_ok_and(|kind| MEMORY_FILESYSTEMS.contains(&kind));
        let kind = if is_in_memory { Kind::MemoryFile } else { Kind::DriveFile };
        let filesystem = rustix::fs::fstat(&fd).map_or(0, |file| file.st_dev);
        Descriptor { fd: Rc::new(fd), kind, filesystem }
    }

    /// Takes over a connected socket.
    pub fn socket(fd: OwnedFd) -> Descriptor {
        Descriptor::other(fd, Kind::Socket)
    }

    /// Takes over a device that gives and takes messages, like `/dev/fuse`. It must not block.
    pub fn device(fd: OwnedFd) -> Descriptor {
        Descriptor::other(fd, Kind::Device)
    }

    /// Takes over the server's side of a block device, `/dev/ublkcN`.
    pub fn block_server(fd: OwnedFd) -> Descriptor {
        Descriptor::other(fd, Kind::BlockServer)
    }

    fn other(fd: OwnedFd, kind: Kind) -> Descriptor {
        Descriptor { fd: Rc::new(fd), kind, filesystem: 0 }
    }

    /// Number of the filesystem of a file: files of one filesystem wait for the same drives.
    pub(crate) fn filesystem(&self) -> u64 {
        self.filesystem
    }

    /// Returns true if operations on the descriptor end only when a driver has something to ask.
    pub(crate) fn is_block_server(&self) -> bool {
        self.kind == Kind::BlockServer
    }

    /// Returns true if reading and writing never waits for a drive. Asynchronous I/O then gains nothing: the
    /// kernel would give every operation to a worker thread, because it has no other way for these files.
    pub fn is_in_memory(&self) -> bool {
        self.kind == Kind::MemoryFile
    }

    /// Returns true if operations on the descriptor end when a drive has carried them out.
    pub(crate) fn is_on_drive(&self) -> bool {
        self.kind == Kind::DriveFile
    }

    /// Ends a socket's connection in both directions; operations in flight on it complete soon.
    pub fn shutdown(&self) {
        // An error means that the socket is no longer connected, which is the goal.
        let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Both);
    }

    /// Ends a socket's incoming direction only.
    pub fn shutdown_receive(&self) {
        let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Read);
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
