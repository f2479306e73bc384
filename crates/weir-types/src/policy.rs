//! The terms of a policy: classes, ceilings, floors, bursts, weights, and how requests are counted.

use serde::{Deserialize, Serialize};

use crate::{Name, PolicyGroupId, VolumeId};

/// Whose terms they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// A tenant's.
    Tenant(Name),
    /// A policy group's whose members share.
    Group(PolicyGroupId),
    /// A volume's own.
    Volume(VolumeId),
}

/// What a drive, pool or volume delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Slow drives, such as rotating disks.
    Low,
    /// Drives between the two others.
    Medium,
    /// Fast drives, such as NVMe.
    High,
}

impl Class {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Low => "low",
            Class::Medium => "medium",
            Class::High => "high",
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Class {
    /// All classes, the best first.
    pub const ALL: [Class; 3] = [Class::High, Class::Medium, Class::Low];
}

/// What becomes of a volume whose class cannot be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassPolicy {
    /// Nobody asked for a class: it is where nothing better is taken unasked.
    #[default]
    Any,
    /// It gets the next best, and that is shown.
    Prefer,
    /// It is refused.
    Strict,
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

/// How much credit for a burst a workload has when its policy is first bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitialCredit {
    /// None: it is earned below the ceiling first.
    #[default]
    Empty,
    /// All of it, as with QEMU's throttling and the credit buckets of clouds.
    Full,
}

/// Rates above the ceilings that are reached on credit, which is earned below them.
///
/// The credit of each limit is what `seconds` at its burst rate use above the ceiling:
/// `(burst - ceiling) * seconds`. It is earned by what is left unused of the ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// The rates; each needs a ceiling of the same kind, and is at least that.
    pub rates: Limits,
    /// How long a full credit lasts at the burst rate, 1 to [`crate::bounds::BURST_SECONDS_MAX`].
    pub seconds: u32,
    /// What a workload starts with.
    #[serde(default)]
    pub initial_credit: InitialCredit,
}

/// As how many operations a read or write counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationSize {
    /// As one, however large.
    #[default]
    Any,
    /// As its bytes divided by this many, and at least as one.
    Bytes(u32),
    /// By the cost curve that NetApp publishes for Element: 8 KiB count as 1.6 requests of 4 KiB, 1 MiB as 150.
    Curve,
}

/// As how many operations the requests count that move no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Charges {
    /// A discard, as writes.
    pub discard: u32,
    /// A write of zeroes, as writes.
    pub zeroes: u32,
    /// A flush, as writes. It is charged and never held back.
    pub flush: u32,
}

impl Default for Charges {
    fn default() -> Charges {
        Charges { discard: 1, zeroes: 1, flush: 0 }
    }
}

/// A part of what the parent has left, in proportion to the weights of all that want it; 1 to
/// [`crate::bounds::WEIGHT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(pub u32);

impl Default for Weight {
    fn default() -> Weight {
        Weight(100)
    }
}

/// Everything that a policy says of one workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Most that it may do.
    pub limits: Limits,
    /// What it may do above that on credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// What it gets before others share; in one dimension, or none.
    #[serde(default)]
    pub floor: Throughput,
    /// Its part of what is left.
    #[serde(default)]
    pub weight: Weight,
    /// How its reads and writes count.
    #[serde(default)]
    pub operation_size: OperationSize,
    /// How its other requests count.
    #[serde(default)]
    pub charges: Charges,
}

impl Terms {
    /// Terms that say nothing but these ceilings.
    pub fn limited(limits: Limits) -> Terms {
        Terms { limits, ..Terms::default() }
    }
}
