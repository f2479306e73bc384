//! The engine: reactor threads that own volumes and serve their connections, the listeners that bring the
//! connections, and the measurement of drives.
//!
//! It knows no catalogue, no names of volumes' owners beyond their identities, and no API.

#![forbid(unsafe_code)]

mod alarms;
mod background;
mod background_policies;
mod block_status;
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
mod locks;
pub mod measure;
mod memory;
mod operation_time;
mod policy_path;
mod reactor;
mod shared_state;
mod space_count;
#[cfg(test)]
mod tests;
mod token;
mod volumes;

pub use clients::{NewClient, NewConnection};
pub use data_plane::{DataPlane, DataPlaneConfig};
pub use emulation::SharedEmulation;
pub use weir_reactor::IoMethod;
