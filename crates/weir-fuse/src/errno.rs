//! Error numbers that answer a request.

/// Error number of Linux, as the caller of the system call sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Errno {
    /// The file cannot be changed in this way.
    NotPermitted,
    /// The drive failed.
    Io,
    /// The daemon is short of memory.
    NoMemory,
    /// The mount is read-only.
    ReadOnly,
    /// The file is no folder.
    NotFolder,
    /// The range does not fit the file.
    Invalid,
    /// The range is beyond the end of the volume, or a drive is full.
    NoSpace,
    /// The daemon does not know the operation. The kernel remembers some of these answers and asks no more.
    NotImplemented,
    /// The operation is known, but not with these parameters.
    NotSupported,
    /// The file has no such control operation (`ENOTTY`).
    NotTerminal,
}

impl Errno {
    /// Returns the number, as in `errno(3)` on Linux.
    pub fn number(self) -> i32 {
        match self {
            Errno::NotPermitted => 1,
            Errno::Io => 5,
            Errno::NoMemory => 12,
            Errno::NotFolder => 20,
            Errno::Invalid => 22,
            Errno::NotTerminal => 25,
            Errno::NoSpace => 28,
            Errno::ReadOnly => 30,
            Errno::NotImplemented => 38,
            Errno::NotSupported => 95,
        }
    }
}
