//! The interface between control and the engine: commands, descriptions, status and statistics.
//!
//! It knows neither how a command is carried out nor why it is given. Control is built on it without the engine.

#![forbid(unsafe_code)]

mod alarm;
mod attached_client;
mod cgroup_limit;
mod engine;
mod error;
mod export_table;
mod job_progress;
mod journal_spec;
pub mod measure;
mod open_file;
mod policy_level;
mod recording;
mod scrub;
mod snapshot;
mod space_look;
mod specification;
pub mod statistics;
mod volume_status;

pub use alarm::Alarm;
pub use attached_client::{AttachedClient, ServedFile, ServedQueue, ServedSocket};
pub use cgroup_limit::CgroupLimit;
pub use engine::Engine;
pub use error::EngineError;
pub use export_table::{Export, ExportTable};
pub use job_progress::{JobProgress, ProgressSnapshot};
pub use journal_spec::JournalSpec;
pub use open_file::{Content, FileIdentity, OpenFile};
pub use policy_level::PolicyLevel;
pub use recording::Recording;
pub use scrub::{ScrubEnd, ScrubProgress, ScrubSnapshot};
pub use snapshot::{SnapshotProgress, SnapshotSpec};
pub use space_look::SpaceLook;
pub use specification::{
    DriveQueueDepth, DriveSpec, FlushWindow, NO_HOME, ReclaimSpec, VolumeHome, VolumeLayout, VolumeSpec,
    home_beyond_list,
};
pub use volume_status::{OpenVolume, PublishedStatus, VolumeFaults, VolumeStatus};
