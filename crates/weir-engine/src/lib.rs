//! The engine: reactor threads that own volumes and serve their connections, the listeners that bring the
//! connections, and the measurement of drives.
//!
//! It knows no catalogue, no names of volumes' owners beyond their identities, and no API.

#![forbid(unsafe_code)]

mod alarms;
mod background;
mod background_policies;
mod busy_poll;
mod ceilings;
mod clients;
mod command;
mod data_plane;
mod drive_queue;
mod emulation;
pub mod exports;
mod helper;
mod io;
mod job_progress;
mod locks;
pub mod measure;
mod memory;
mod open_file;
mod operation_time;
mod policy_path;
mod reactor;
mod sharing;
mod space_count;
mod specification;
pub mod statistics;
mod status;
#[cfg(test)]
mod tests;
mod token;
mod volumes;

pub use alarms::Alarm;
pub use clients::{NewConnection, Recording};
pub use data_plane::{DataPlane, DataPlaneConfig, DataPlaneError};
pub use emulation::SharedEmulation;
pub use job_progress::{JobProgress, ProgressSnapshot};
pub use open_file::{Content, FileIdentity, OpenFile};
pub use policy_path::PolicyLevel;
pub use space_count::Look as SpaceLook;
pub use specification::{
    DriveQueueDepth, DriveSpec, NO_HOME, ReclaimSpec, VolumeHome, VolumeLayout, VolumeSpec, home_beyond_list,
};
pub use volumes::journals::JournalSpec;
pub use volumes::scrubbing::{ScrubEnd, ScrubProgress, ScrubSnapshot};
pub use volumes::snapshot::{SnapshotProgress, SnapshotSpec};
