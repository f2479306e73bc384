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
mod checksums;
mod clients;
mod command;
mod data_plane;
mod disk;
mod drive_queue;
mod emulation;
pub mod exports;
mod helper;
mod io;
mod job_progress;
mod journals;
mod life;
mod locks;
pub mod measure;
mod memory;
mod open_file;
mod operation_time;
mod operations;
mod orphans;
mod policy_path;
mod reactor;
mod refusals;
mod replica_metadata;
mod replicas;
mod resync;
mod resync_throttle;
mod scrubbing;
mod served_volume;
mod sharing;
mod snapshot;
mod space_count;
mod space_permission;
mod specification;
mod stalls;
pub mod statistics;
mod status;
#[cfg(test)]
mod tests;
mod token;
mod volume_files;
mod volume_status;

pub use alarms::Alarm;
pub use clients::{NewConnection, Recording};
pub use data_plane::{DataPlane, DataPlaneConfig, DataPlaneError};
pub use emulation::SharedEmulation;
pub use job_progress::{JobProgress, ProgressSnapshot};
pub use journals::JournalSpec;
pub use open_file::{Content, FileIdentity, OpenFile};
pub use policy_path::PolicyLevel;
pub use scrubbing::{ScrubEnd, ScrubProgress, ScrubSnapshot};
pub use snapshot::{SnapshotProgress, SnapshotSpec};
pub use space_count::Look as SpaceLook;
pub use specification::{
    DriveQueueDepth, DriveSpec, NO_HOME, ReclaimSpec, VolumeHome, VolumeLayout, VolumeSpec, home_beyond_list,
};
pub use volume_status::{OpenVolume, PublishedStatus, VolumeFaults, VolumeStatus};
