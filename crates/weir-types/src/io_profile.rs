//! The I/O profile of a volume, and the role of a drive that follows from it.

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
}

impl IoProfile {
    /// True for the profile that volumes have unless they ask for another one.
    pub fn is_default(&self) -> bool {
        *self == IoProfile::default()
    }
}

impl fmt::Display for IoProfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            IoProfile::None => "none",
            IoProfile::Journal => "journal",
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
