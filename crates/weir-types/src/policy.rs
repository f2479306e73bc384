//! The terms of a policy: classes and ceilings.

use serde::{Deserialize, Serialize};

/// What a drive, pool or volume delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Slow media, such as rotating disks.
    Low,
    /// Media between the two others.
    Medium,
    /// Fast media, such as NVMe.
    High,
}

/// A pair of ceilings of which the one reached first holds. `None` means no ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    /// Operations per second, 1 to [`crate::bounds::RATE_IOPS_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes per second, 1 to [`crate::bounds::RATE_BYTES_PER_SECOND_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

impl Throughput {
    /// True if neither dimension has a ceiling.
    pub fn is_unlimited(&self) -> bool {
        self.iops.is_none() && self.bytes_per_second.is_none()
    }
}

/// The ceilings of one policy group: on all operations together, on reads, and on writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Ceiling on reads and writes together.
    #[serde(default)]
    pub total: Throughput,
    /// Ceiling on reads alone.
    #[serde(default)]
    pub read: Throughput,
    /// Ceiling on writes alone (discard and write-zeroes count as writes of one operation and no bytes).
    #[serde(default)]
    pub write: Throughput,
}

impl Limits {
    /// True if no ceiling is set at all: the group only observes.
    pub fn is_unlimited(&self) -> bool {
        self.total.is_unlimited() && !self.is_directional()
    }

    /// True if reads or writes have a ceiling of their own.
    pub fn is_directional(&self) -> bool {
        !(self.read.is_unlimited() && self.write.is_unlimited())
    }
}
