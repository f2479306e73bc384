//! Open files and sockets as the reactor uses them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FallocateFlags, Mode, OFlags};

/// A file or socket. It closes once the last clone is gone, and every operation in flight holds one, so the
/// kernel never sees its number reused.
#[derive(Clone, Debug)]
pub struct Descriptor(Rc<OwnedFd>);

/// What to do with a range of a file's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Reserve space; what was never written reads as zeroes.
    Reserve,
    /// Give the space back; the range reads as zeroes.
    Release,
    /// Make the range read as zeroes and keep its space reserved.
    Zero,
}

impl Placement {
    pub(crate) fn mode(self) -> i32 {
        let flags = match self {
            Placement::Reserve => FallocateFlags::KEEP_SIZE,
            Placement::Release => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Placement::Zero => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        flags.bits() as i32
    }
}

impl Descriptor {
    /// Opens an existing file for reading and writing past the page cache, or, where the filesystem has no
    /// direct I/O, through it.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open_direct(path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Err(rustix::io::Errno::INVAL) => Ok(rustix::fs::open(path, flags, Mode::empty())?),
            result => Ok(result?),
        }
    }

    /// Ends a socket's connection in both directions; operations in flight on it come back soon.
    pub fn shutdown(&self) {
        // A socket that is no longer connected is what was wanted.
        let _ = rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Both);
    }

    /// Ends a socket's incoming direction only.
    pub fn shutdown_receive(&self) {
        let _ = rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Read);
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<OwnedFd> for Descriptor {
    fn from(fd: OwnedFd) -> Descriptor {
        Descriptor(Rc::new(fd))
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
