//! The configuration of control.

use std::path::PathBuf;

use weir_types::{ClassThresholds, Emulation};

/// A drive in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredDrive {
    /// Directory of the drive.
    pub path: PathBuf,
    /// Emulation of the drive, if it is to be emulated.
    pub emulation: Option<Emulation>,
}

/// Paths and settings for the start of control.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// The state folder: the catalogue, and the default drive `drive`.
    pub state: PathBuf,
    /// Whether to fill an empty catalogue from the record backups beside the extents first.
    pub rebuild_catalogue: bool,
    /// Drives of the configuration. If there are any, the drive in the state folder is not made.
    pub drives: Vec<ConfiguredDrive>,
    /// Thresholds of the drive classes.
    pub classes: ClassThresholds,
    /// Size of new write journals in bytes.
    pub journal_bytes: u64,
    /// Whether to measure the drive in the state folder while it is unmeasured and empty.
    pub measure_default: bool,
    /// Usage from which a pool raises an alarm, in percent.
    pub pool_full_percent: u8,
    /// The zone of the node, if known.
    pub zone: Option<String>,
    /// Folder of the links to the devices of attached volumes.
    pub device_folder: PathBuf,
    /// True if the engine uses io_uring, without which it serves no device of ublk.
    pub has_io_uring: bool,
    /// This program, whose command `keeper` keeps mounts while no daemon runs.
    pub program: PathBuf,
}
