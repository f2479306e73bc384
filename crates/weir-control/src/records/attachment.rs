//! The record of an attachment: a volume that is a device of this host.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_types::{AttachmentId, VolumeId};

/// How a volume becomes a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachMethod {
    /// A FUSE filesystem of one file, with a loop device on it.
    Fuse,
    /// A FUSE filesystem of one file, which stays in sight. The kernel tells which process makes each request.
    FuseFile,
    /// A block device of the kernel's NBD client.
    Nbd,
    /// A block device of the kernel's ublk driver.
    Ublk,
}

/// An attachment. The record exists before anything is made on the host, and until all of it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentRecord {
    /// Its identity.
    pub id: AttachmentId,
    /// The volume.
    pub volume: VolumeId,
    /// The node whose device it is.
    pub node: Uuid,
    /// How the volume becomes a device.
    pub method: AttachMethod,
    /// Why in this way, in words.
    #[serde(default)]
    pub method_reason: String,
    /// Whether the device refuses writes.
    pub is_read_only: bool,
    /// Who asked for it, in the consumer's own words.
    pub consumer: String,
    /// The block device, or the file that takes its place. It is recorded before it is made; `None` while nothing
    /// needs it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// The identity of the file that the device is on, as the kernel has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// True once the device and its link are made: before, it may be another program's.
    #[serde(default)]
    pub is_made: bool,
    /// The boot of the host in which it is made. Of an earlier one nothing is left, and the numbers of devices and
    /// filesystems are used again.
    #[serde(default)]
    pub boot: String,
    /// The stable name of the device.
    pub link: PathBuf,
    /// When it was asked for.
    pub created_at: Timestamp,
}
