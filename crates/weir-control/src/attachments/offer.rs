//! Offers: block devices in the making, which need a server before they are completed.

use std::path::PathBuf;

use weir_engine_interface::AttachedClient;

/// Why the host did not do what was asked.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// What a block device is like.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTerms {
    /// Its size.
    pub size_bytes: u64,
    /// Whether it refuses writes.
    pub is_read_only: bool,
}

/// A block device that a server is needed for.
pub struct Offer {
    /// The kernel as a client, which the engine serves first.
    pub client: AttachedClient,
    /// Completes the device, and returns it.
    pub complete: Box<dyn FnOnce() -> Result<PathBuf, HostError>>,
}
