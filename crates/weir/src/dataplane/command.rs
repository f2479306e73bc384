//! What the rest of the daemon tells a reactor.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use weir_types::{Limits, PolicyGroupId, VolumeId};

use super::VolumeSpec;
use super::budget::SharedCeiling;
use super::connection::NewConnection;
use super::emulation::SharedMedia;
use crate::statistics::VolumeStatistics;

/// A policy for one volume, with the shared ceiling if the group has one.
pub(super) struct Binding {
    pub group: PolicyGroupId,
    pub limits: Limits,
    pub shared: Option<SharedCeiling>,
}

/// The model of a volume's drive, if that is emulated.
type Media = Option<SharedMedia>;

/// One order to a reactor. Those with a `done` are answered once they hold.
pub(super) enum Command {
    Open { spec: VolumeSpec, media: Media, statistics: Arc<VolumeStatistics>, done: SyncSender<()> },
    Close { volume: VolumeId, done: SyncSender<()> },
    Resize { volume: VolumeId, size_bytes: u64, done: SyncSender<()> },
    SetReadOnly { volume: VolumeId, is_read_only: bool, done: SyncSender<()> },
    Bind { volume: VolumeId, binding: Option<Binding>, done: SyncSender<()> },
    ChangeLimits { group: PolicyGroupId, limits: Limits, done: SyncSender<()> },
    Retire { volume: VolumeId, extent: u32, message: String },
    Serve { volume: VolumeId, connection: Box<NewConnection> },
    Stop,
}
