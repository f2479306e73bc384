//! Requests for the volume, with the process that made them.

/// Number by which the kernel knows a request. The answer repeats it, with the bit of a request that is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unique(pub u64);

/// The process whose system call caused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Process, in the process namespace of the daemon; 0 if it is in none that the daemon sees.
    pub process: u32,
    /// User.
    pub user: u32,
    /// Group.
    pub group: u32,
}

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the range.
    Read,
    /// Write the range. The payload is in the message.
    Write,
    /// Make every write that was answered before stable. The command has no range.
    Flush,
    /// Give the range back: it reads as zeroes, and its space is free.
    Punch,
    /// Make the range read as zeroes, and keep its space.
    Zero,
}

/// A request that is valid for the file. Its range lies within the file, and is not empty except for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number to be repeated in the answer.
    pub unique: Unique,
    /// First byte of the range; 0 for a flush.
    pub offset: u64,
    /// Length of the range in bytes; 0 for a flush.
    pub length: u64,
    /// Command.
    pub command: Command,
    /// Process that asks.
    pub caller: Caller,
}
