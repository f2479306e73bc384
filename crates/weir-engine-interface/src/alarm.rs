//! Alarm: a fault that an operator must see.

use weir_types::{DriveId, ExtentIndex, VolumeId};

/// A fault that an operator must see, with its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The volume.
    pub volume: VolumeId,
    /// The drive that failed, if one did.
    pub drive: Option<DriveId>,
    /// The extent within the volume.
    pub extent: ExtentIndex,
    /// The fault, in words.
    pub message: String,
}
