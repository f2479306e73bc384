//! The terms of a policy: classes, ceilings, floors, bursts, weights, and how requests are counted.

use serde::{Deserialize, Serialize};

use crate::{CgroupBindingId, Name, PolicyGroupId, VolumeId};

/// Owner of policy terms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// A tenant.
    Tenant(Name),
    /// A policy group whose members share its terms.
    Group(PolicyGroupId),
    /// A single volume.
    Volume(VolumeId),
    /// The processes of a cgroup, in what they do to one volume.
    Cgroup(CgroupBindingId),
}

/// Performance class of a drive, pool or volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Slow drives, like rotating disks.
    Low,
    /// Drives between the two other classes.
    Medium,
    /// Fast drives, like NVMe.
    High,
}

impl Class {
    /// Name of the class.
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

/// Behaviour if the wanted class of a volume is not available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassPolicy {
    /// No class is wanted. The volume gets the slowest class that has room, so faster drives stay free.
    #[default]
    Any,
    /// The volume gets the next worse class, else the next better one, and its status shows the difference.
    Prefer,
    /// The volume is refused.
    Strict,
}

/// A pair of ceilings, of which the first one reached holds. `None` means no ceiling.
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
    /// Ceiling on writes alone. Discard and write-zeroes count as writes of one operation and no bytes.
    #[serde(default)]
    pub write: Throughput,
}

impl Limits {
    /// True if no ceiling is set. The group then only observes.
    pub fn is_unlimited(&self) -> bool {
        self.total.is_unlimited() && !self.is_directional()
    }

    /// True if reads or writes have a ceiling of their own.
    pub fn is_directional(&self) -> bool {
        !(self.read.is_unlimited() && self.write.is_unlimited())
    }
}

/// Burst credit of a workload when its policy is first bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitialCredit {
    /// No credit: the workload must earn it below the ceiling first.
    #[default]
    Empty,
    /// Full credit, as in QEMU's throttling and the credit buckets of cloud providers.
    Full,
}

/// Rates above the ceilings, reached on credit that is earned below them.
///
/// The credit of each limit covers `seconds` at its burst rate: `(burst - ceiling) * seconds`. The unused
/// part of the ceiling earns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Burst rates. Each needs a ceiling in the same dimension, and is at least that ceiling.
    pub rates: Limits,
    /// Time for which a full credit lasts at the burst rate, in seconds, 1 to
    /// [`crate::bounds::BURST_SECONDS_MAX`].
    pub seconds: u32,
    /// Credit that a workload starts with.
    #[serde(default)]
    pub initial_credit: InitialCredit,
}

/// Number of operations as which a read or write counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationSize {
    /// One, whatever its size.
    #[default]
    Any,
    /// Its bytes divided by this many, and at least one.
    Bytes(u32),
    /// By the cost curve that NetApp publishes for Element: 8 KiB count as 1.6 requests of 4 KiB, 1 MiB as
    /// 150.
    Curve,
}

/// Charges for requests that move no data, in operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Charges {
    /// Charge for a discard, as writes.
    pub discard: u32,
    /// Charge for a write of zeroes, as writes.
    pub zeroes: u32,
    /// Charge for a flush, as writes. A flush is charged and never held back.
    pub flush: u32,
}

impl Default for Charges {
    fn default() -> Charges {
        Charges { discard: 1, zeroes: 1, flush: 0 }
    }
}

/// Part of the parent's remaining rate, in proportion to the weights of all siblings that want it. From 1 to
/// [`crate::bounds::WEIGHT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(pub u32);

impl Default for Weight {
    fn default() -> Weight {
        Weight(100)
    }
}

/// All terms of a policy for one workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Ceilings.
    pub limits: Limits,
    /// Burst above the ceilings, on credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Guaranteed minimum, served before others share; in one dimension, or none.
    #[serde(default)]
    pub floor: Throughput,
    /// Share of the remaining rate.
    #[serde(default)]
    pub weight: Weight,
    /// Count of reads and writes.
    #[serde(default)]
    pub operation_size: OperationSize,
    /// Count of other requests.
    #[serde(default)]
    pub charges: Charges,
}

impl Terms {
    /// Terms with these ceilings and defaults for all else.
    pub fn limited(limits: Limits) -> Terms {
        Terms { limits, ..Terms::default() }
    }
}
