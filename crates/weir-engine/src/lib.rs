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
mod journals;
mod life;
mod locks;
pub mod measure;
mod memory;
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
mod stalls;
mod status;
#[cfg(test)]
mod tests;
mod token;
mod volume_files;

pub use clients::NewConnection;
pub use data_plane::{DataPlane, DataPlaneConfig};
pub use emulation::SharedEmulation;
