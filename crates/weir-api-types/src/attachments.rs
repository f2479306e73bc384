//! Request and answer bodies about attachments.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// How a volume is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum AttachMethod {
    /// A block device: a FUSE filesystem of one file, with a loop device on it.
    Fuse,
    /// A file: a FUSE filesystem of one file. Limits of cgroups apply to the processes that use it.
    FuseFile,
    /// A block device of the kernel's NBD client.
    Nbd,
    /// A block device of the kernel's ublk driver.
    Ublk,
}

/// An attachment: a volume that is a block device or a file of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attachment {
    /// ID of the attachment.
    pub id: Uuid,
    /// Tenant of the volume.
    pub tenant: String,
    /// Name of the volume.
    pub volume: String,
    /// How the volume is attached.
    pub method: AttachMethod,
    /// Why it is attached so.
    #[schema(example = "the best way that this kernel has")]
    pub method_reason: String,
    /// Path of the block device, or of the file; absent while it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Path of a link to the block device or file. The path stays the same.
    pub link: String,
    /// True if the block device or file refuses writes.
    pub read_only: bool,
    /// The consumer of the attachment, in its own words.
    pub consumer: String,
    /// ID of the node of the block device or file.
    pub node: Uuid,
    /// Time at which the attachment was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// All attachments.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttachmentList {
    /// Attachments, ordered by tenant and volume.
    pub items: Vec<Attachment>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// An attachment to create.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachmentCreate {
    /// How to attach the volume; by default, as a block device, in the best way that the host has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<AttachMethod>,
    /// True if the block device or file refuses writes. A read-only volume can be attached only so.
    #[serde(default)]
    pub read_only: bool,
    /// The consumer of the attachment, in its own words; at most 255 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
}
