//! The filesystem's mapping of a file: how much of a range is allocated, and how much is in shared extents.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// Number of runs that one question returns; a range with more runs costs further questions.
const RUNS: usize = 64;

/// `FS_IOC_FIEMAP` of linux/fs.h, the same on all machines whose ioctl numbers are the generic ones.
const MAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;

/// `FIEMAP_EXTENT_LAST` of linux/fiemap.h: the last run of the file.
const IS_LAST: u32 = 0x1;

/// `FIEMAP_EXTENT_SHARED` of linux/fiemap.h: another file has the run too.
const IS_SHARED: u32 = 0x2000;

/// `struct fiemap_extent` of linux/fiemap.h: a run of allocated bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Run {
    offset: u64,
    place: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap` of linux/fiemap.h, with space for runs.
#[repr(C)]
struct Question {
    offset: u64,
    length: u64,
    flags: u32,
    runs_found: u32,
    runs_max: u32,
    reserved: u32,
    runs: [Run; RUNS],
}

impl Run {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Returns the part of a range that the run holds.
    fn within(&self, range: &Range<u64>) -> Mapped {
        let bytes = self.end().min(range.end).saturating_sub(self.offset.max(range.start));
        let is_shared = self.flags & IS_SHARED != 0;
        let (own_bytes, shared_bytes) = if is_shared { (0, bytes) } else { (bytes, 0) };
        Mapped { own_bytes, shared_bytes }
    }
}

/// The allocated part of a range of a file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Bytes that can be overwritten in their place.
    pub own_bytes: u64,
    /// Bytes in shared extents: another file has them too, so the filesystem writes them elsewhere.
    pub shared_bytes: u64,
}

impl Mapped {
    fn and(self, other: Mapped) -> Mapped {
        Mapped {
            own_bytes: self.own_bytes + other.own_bytes,
            shared_bytes: self.shared_bytes + other.shared_bytes,
        }
    }
}

/// Returns the allocated part of a range of a file. Written bytes that have no place on the disk yet may be
/// missing.
///
/// # Errors
/// The errors of `ioctl(2)`: some filesystems do not report a mapping, for example tmpfs.
pub fn mapped(file: &impl AsFd, range: Range<u64>) -> io::Result<Mapped> {
    let (mut position, mut mapped) = (range.start, Mapped::default());
    while position < range.end {
        let rest = position..range.end;
        let question = ask(file, rest.clone())?;
        let runs = &question.runs[..RUNS.min(question.runs_found as usize)];
        mapped = runs.iter().map(|run| run.within(&rest)).fold(mapped, Mapped::and);
        match runs.last() {
            Some(last) if last.flags & IS_LAST == 0 && last.end() > position => position = last.end(),
            _ => break,
        }
    }
    Ok(mapped)
}

fn ask(file: &impl AsFd, range: Range<u64>) -> io::Result<Question> {
    let mut question = Question {
        offset: range.start,
        length: range.end - range.start,
        flags: 0,
        runs_found: 0,
        runs_max: RUNS as u32,
        reserved: 0,
        runs: [Run::default(); RUNS],
    };
    // SAFETY: the descriptor is open as long as it is borrowed. The kernel reads the head of the question,
    // and writes to it and to at most `runs_max` runs after it. The question has room for that many runs, and
    // all of it outlives the call.
    let answer = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), MAP, &raw mut question) };
    if answer == 0 { Ok(question) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_shared_extents_are_not_own_bytes() {
        let within = |offset, length, flags, range| {
            let Mapped { own_bytes, shared_bytes } =
                Run { offset, length, flags, ..Run::default() }.within(&range);
            (own_bytes, shared_bytes)
        };
        assert_eq!(within(0, 4096, 0, 0..4096), (4096, 0));
        assert_eq!(within(0, 4096, IS_LAST, 1024..8192), (3072, 0));
        assert_eq!(within(4096, 4096, 0, 0..5120), (1024, 0));
        assert_eq!(within(4096, 4096, 0, 0..4096), (0, 0));
        assert_eq!(within(0, 4096, IS_SHARED, 0..4096), (0, 4096));
    }

    #[test]
    fn question_has_the_layout_of_the_kernel() {
        assert_eq!((size_of::<Run>(), std::mem::offset_of!(Run, flags)), (56, 40));
        assert_eq!(std::mem::offset_of!(Question, runs), 32);
    }
}
