//! The file as the kernel sees it.

/// The one file of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Size in bytes; that of the volume.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub is_read_only: bool,
}
