//! The engine: reactor threads that own volumes and serve their connections, the listeners that bring the
//! connections, and the measurement of drives.
//!
//! It knows no catalogue, no names of volumes' owners beyond their identities, and no API.

#![forbid(unsafe_code)]

mod background;
mod busy_poll;
mod checksums;
mod command;
mod connection;
mod data_plane;
mod disk;
mod emulation;
pub mod exports;
mod helper;
mod journals;
pub mod measure;
mod memory;
mod reactor;
mod receive;
mod receive_coalescing;
mod recording;
mod refusals;
mod replica_metadata;
mod replicas;
mod reply_order;
mod resync;
mod resync_throttle;
mod scrubbing;
mod send;
mod serve;
mod served_volume;
mod sharing;
mod snapshot;
mod space;
mod specification;
mod stalled_clients;
mod stalls;
pub mod statistics;
mod status;
#[cfg(test)]
mod tests;
mod token;

pub use background::{JobProgress, ProgressSnapshot};
pub use connection::NewConnection;
pub use data_plane::{Alarm, DataPlane, DataPlaneConfig, DataPlaneError};
pub use emulation::SharedEmulation;
pub use journals::JournalSpec;
pub use recording::Recording;
pub use refusals::{Content, FileIdentity, OpenFile};
pub use scrubbing::{ScrubEnd, ScrubProgress, ScrubSnapshot};
pub use sharing::PolicyLevel;
pub use snapshot::{SnapshotProgress, SnapshotSpec};
pub use space::Look as SpaceLook;
pub use specification::{
    DriveQueueDepth, DriveSpec, NO_HOME, ReclaimSpec, VolumeHome, VolumeLayout, VolumeSpec, home_beyond_list,
};

pub(crate) use data_plane::locked;
