//! The numbers of the FUSE protocol, by the names of `linux/fuse.h` and `linux/falloc.h`.

/// Version of the protocol.
pub const FUSE_KERNEL_VERSION: u32 = 7;
/// Newest minor version whose messages the crate makes.
pub const FUSE_KERNEL_MINOR_VERSION: u32 = 31;

/// Length of the head of every message, in bytes.
pub const FUSE_IN_HEADER_BYTES: usize = 40;
/// Length of a message up to the payload of a write, in bytes. All fields that the crate reads lie within.
pub const HEAD_BYTES: usize = FUSE_IN_HEADER_BYTES + 40;
/// Length of the head of every answer, in bytes.
pub const FUSE_OUT_HEADER_BYTES: usize = 16;
/// Shortest buffer that a read of `/dev/fuse` takes, in bytes.
pub const FUSE_MIN_READ_BUFFER: usize = 8192;

pub(crate) const FUSE_LOOKUP: u32 = 1;
pub(crate) const FUSE_FORGET: u32 = 2;
pub(crate) const FUSE_GETATTR: u32 = 3;
pub(crate) const FUSE_SETATTR: u32 = 4;
pub(crate) const FUSE_OPEN: u32 = 14;
pub(crate) const FUSE_READ: u32 = 15;
pub(crate) const FUSE_WRITE: u32 = 16;
pub(crate) const FUSE_STATFS: u32 = 17;
pub(crate) const FUSE_RELEASE: u32 = 18;
pub(crate) const FUSE_FSYNC: u32 = 20;
pub(crate) const FUSE_INIT: u32 = 26;
pub(crate) const FUSE_INTERRUPT: u32 = 36;
pub(crate) const FUSE_DESTROY: u32 = 38;
pub(crate) const FUSE_IOCTL: u32 = 39;
pub(crate) const FUSE_BATCH_FORGET: u32 = 42;
pub(crate) const FUSE_FALLOCATE: u32 = 43;

pub(crate) const FUSE_ASYNC_READ: u64 = 1 << 0;
pub(crate) const FUSE_BIG_WRITES: u64 = 1 << 5;
pub(crate) const FUSE_ASYNC_DIO: u64 = 1 << 15;
pub(crate) const FUSE_ABORT_ERROR: u64 = 1 << 21;
pub(crate) const FUSE_MAX_PAGES: u64 = 1 << 22;
pub(crate) const FUSE_INIT_EXT: u64 = 1 << 30;
pub(crate) const FUSE_HAS_RESEND: u64 = 1 << 39;

pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

pub(crate) const FATTR_MODE: u32 = 1 << 0;
pub(crate) const FATTR_UID: u32 = 1 << 1;
pub(crate) const FATTR_GID: u32 = 1 << 2;
pub(crate) const FATTR_SIZE: u32 = 1 << 3;

pub(crate) const FUSE_NOTIFY_INVAL_INODE: i32 = 2;
pub(crate) const FUSE_NOTIFY_RESEND: i32 = 7;

/// Number of the root of the filesystem, which is the file itself.
pub(crate) const FUSE_ROOT_ID: u64 = 1;

pub(crate) const FALLOC_FL_KEEP_SIZE: u32 = 0x01;
pub(crate) const FALLOC_FL_PUNCH_HOLE: u32 = 0x02;
pub(crate) const FALLOC_FL_ZERO_RANGE: u32 = 0x10;

/// Access mode of an open file, and the mode that only reads.
pub(crate) const O_ACCMODE: u32 = 0o3;
pub(crate) const O_RDONLY: u32 = 0o0;

/// Type and permissions of the file: its owner reads and writes it.
pub(crate) const FILE_MODE: u32 = 0o100_600;

/// Largest read or write that the kernel sends, in bytes: one piece, so that one buffer holds it.
pub const IO_BYTES_MAX: u32 = weir_types::bounds::PIECE_BYTES as u32;
/// Largest number of requests in flight that no system call waits for. The kernel keeps further ones, of whichever
/// process: with fewer, one process that is limited and asks for much would hold up the others.
pub(crate) const BACKGROUND_MAX: u16 = 512;
