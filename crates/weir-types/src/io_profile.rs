//! The I/O profile of a volume, what belongs to it, and the role of a drive that follows from it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a write of a volume is stable first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoProfile {
    /// On the drives of its replicas, except where a template puts slow replicas behind write journals.
    #[default]
    None,
    /// In write journals on journal drives. Each replica has one, and is written later.
    Journal,
    /// On the drives of its replicas, a moment after a flush was answered: the memory of two replicas at least holds the
    /// data until then ([`FlushTerms`]).
    DbRemote,
    /// As [`IoProfile::DbRemote`] while several replicas are in different zones or racks that an operator has named, or
    /// else as [`IoProfile::None`].
    Auto,
}

/// How flushes are owed with [`IoProfile::DbRemote`]. [`IoProfile::Auto`] has the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushTerms {
    /// Longest time in milliseconds from the answer to a flush to its begin, 1 to [`FlushTerms::WINDOW_MS_MAX`].
    pub window_ms: u32,
    /// Whether replicas may share a failure domain.
    pub may_share_failure_domain: bool,
    /// Whether a request that is to be durable by itself (FUA) counts as one without and a flush. Records from before
    /// there was a choice lack it.
    #[serde(default)]
    pub covers_fua: bool,
}

impl FlushTerms {
    /// Longest window in milliseconds. More would lose too much with all replicas.
    pub const WINDOW_MS_MAX: u32 = 10_000;

    /// True for the terms that volumes have unless they ask for others.
    pub fn is_default(&self) -> bool {
        *self == FlushTerms::default()
    }
}

impl Default for FlushTerms {
    fn default() -> FlushTerms {
        FlushTerms { window_ms: 100, may_share_failure_domain: false, covers_fua: false }
    }
}

impl IoProfile {
    /// True for the profile of a record that names none. Such a record may be from before there were others.
    pub fn is_default(&self) -> bool {
        *self == IoProfile::default()
    }
}

impl fmt::Display for IoProfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            IoProfile::None => "none",
            IoProfile::Journal => "journal",
            IoProfile::DbRemote => "db_remote",
            IoProfile::Auto => "auto",
        })
    }
}

/// What a drive is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveRole {
    /// Replicas, and the write journals of hybrid volumes. The drive is in a pool.
    #[default]
    Data,
    /// The write journals of volumes with the I/O profile [`IoProfile::Journal`]. The drive is in no pool.
    Journal,
}

impl DriveRole {
    /// True for the role that drives have unless they ask for another one.
    pub fn is_default(&self) -> bool {
        *self == DriveRole::default()
    }
}
