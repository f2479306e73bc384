//! The fence: waiting until all operations that other processes issued on a file have been carried out.
//!
//! A process that is killed leaves direct writes that the drive has still to carry out. They land whenever
//! the drive gets to them, even after the next process has read or written the block. A lock waits for them:
//!
//! * io_uring holds the open file of a request until the request has ended (`io_put_file` of
//!   `io_uring/io_uring.c`, when the request is freed). A direct write ends after the drive has answered
//!   (`iomap_dio_complete`). Requests that the drive does not have yet are cancelled or carried out before
//!   the process is gone (`io_uring_cancel_generic`).
//! * A thread that waits for a drive in a direct write cannot be killed on a local filesystem. It keeps the files of
//!   its process open until the write has landed (`exit_files`), so the process has not ended either.
//! * A lock of an open file description (`F_OFD_SETLK`) ends with its last reference (`__fput`,
//!   `locks_remove_file`). It does not end when a descriptor is closed or the process ends.
//!
//! Each process takes a lock on every file before it writes there. The lock therefore lasts until the
//! process's last write has landed. This works on any filesystem that has locks, without privileges, and
//! without stopping any other process. Each process locks one byte of its own, shared, which lets it open a
//! file more than once. Before that it waits for the bytes of all others. A drive that never answers holds up
//! only the files with writes in flight there.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

/// Returns the byte that this process locks. It is random, because process numbers are reused, in a container
/// at once.
fn own_byte() -> i64 {
    static OWN: OnceLock<i64> = OnceLock::new();
    // The byte is positive, with room on both sides.
    *OWN.get_or_init(|| ((RandomState::new().build_hasher().finish() >> 2) | 1) as i64)
}

/// Waits until nothing is in flight on a file that another process opened with [`fence`]. Then it locks the
/// file for this process, until the descriptor is closed and all operations issued through it have ended. The
/// file must be open for reading and writing.
///
/// # Errors
/// The errors of `fcntl(2)`: the filesystem has no locks.
pub fn fence(file: &impl AsFd) -> io::Result<()> {
    fence_as(file, own_byte())
}

fn fence_as(file: &impl AsFd, own: i64) -> io::Result<()> {
    let others = [(0, own), (own + 1, 0)];
    for range in others {
        lock(file, libc::F_WRLCK, range)?;
        lock(file, libc::F_UNLCK, range)?;
    }
    lock(file, libc::F_RDLCK, (own, 1))
}

/// Locks this many bytes of a file from an offset on, or all if the length is 0; waits until the lock is
/// free.
fn lock(file: &impl AsFd, kind: libc::c_int, (start, length): (i64, i64)) -> io::Result<()> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    loop {
        // SAFETY: the descriptor is open as long as it is borrowed, and the kernel only reads the lock, which
        // outlives the call.
        let answer = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) };
        if answer == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::path::Path;
    use std::sync::mpsc::channel;

    /// A byte that this process does not lock: it stands for another process.
    const OTHER: i64 = 6;

    fn open(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("weir-fence-{name}-{}", std::process::id()))
    }

    #[test]
    fn process_opens_a_file_more_than_once() {
        let path = path("twice");
        let (one, two) = (open(&path), open(&path));
        fence(&one).unwrap();
        fence(&two).unwrap();
        fence(&two).unwrap();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn fence_waits_for_the_last_reference_of_another_process() {
        let path = path("other");
        let earlier = open(&path);
        fence_as(&earlier, OTHER).unwrap();
        // The clone keeps the file open, as a request in flight does.
        let reference = earlier.try_clone().unwrap();
        let (told, tells) = channel();
        let later = {
            let path = path.clone();
            std::thread::spawn(move || {
                let file = open(&path);
                let is_free = lock_now(&file).is_ok();
                told.send(is_free).unwrap();
                fence(&file).unwrap();
                told.send(true).unwrap();
            })
        };
        assert!(!tells.recv().unwrap(), "the file is another's");
        drop(earlier);
        assert!(lock_now(&open(&path)).is_err(), "a reference is left");
        drop(reference);
        assert!(tells.recv().unwrap());
        later.join().unwrap();
        std::fs::remove_file(path).unwrap();
    }

    /// Takes the lock of the other process's byte if it is free.
    fn lock_now(file: &File) -> io::Result<()> {
        let lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: OTHER,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open, and the kernel only reads the lock, which outlives the call.
        let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
