//! What the rest of the daemon tells a reactor.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, VolumeId};
use weir_volume::mirror::RecoveredExtent;

use super::VolumeSpec;
use super::background::NewReclaim;
use super::connection::NewConnection;
use super::emulation::SharedEmulation;
use super::journals::NewJournal;
use super::recording::Tap;
use super::refusals::OpenFile;
use super::replicas::{ChangeAnswer, NewChange};
use super::scrubbing::ScrubProgress;
use super::sharing::{PolicyLevel, PolicyTree, SharedDriveQueue};
use super::snapshot::NewSnapshot;
use super::space::IsCounted;
use crate::statistics::VolumeStatistics;

/// What a volume is to be under: all levels from the top, and the tree of its ceilings if it has any.
pub(super) struct PolicyBinding {
    pub path: Vec<PolicyLevel>,
    pub policy_tree: Option<Arc<PolicyTree>>,
}

/// A drive that a volume is on, with what volumes share there.
pub(super) struct NewHome {
    pub drive: DriveId,
    pub directory: PathBuf,
    pub read_cost: u32,
    pub is_counted: Arc<IsCounted>,
    /// Its model, if it is emulated.
    pub emulated: Option<SharedEmulation>,
    pub drive_queue: SharedDriveQueue,
}

/// How large a volume becomes, and on which drives it is then.
pub(super) struct NewSize {
    pub size_bytes: u64,
    /// Those that it has, in their order, and others behind them.
    pub homes: Vec<NewHome>,
    pub replicas: Vec<Vec<u8>>,
    /// How extents begin that are new.
    pub recovered_extents: Vec<RecoveredExtent>,
    /// Which replicas of them are behind the journals on which drives.
    pub bindings: Vec<((u32, usize), DriveId)>,
}

/// One order to a reactor. Those with a `done` are answered once they hold.
pub(super) enum Command {
    Open {
        spec: VolumeSpec,
        homes: Vec<NewHome>,
        journals: Vec<NewJournal>,
        statistics: Arc<VolumeStatistics>,
        done: SyncSender<()>,
    },
    Close {
        volume: VolumeId,
        done: SyncSender<()>,
    },
    Resize {
        volume: VolumeId,
        resizing: NewSize,
        done: SyncSender<()>,
    },
    SetReadOnly {
        volume: VolumeId,
        is_read_only: bool,
        done: SyncSender<()>,
    },
    Bind {
        volume: VolumeId,
        binding: PolicyBinding,
        done: SyncSender<()>,
    },
    /// Terms were changed where they stand: what may go now is let go.
    LookAtPolicyTrees {
        done: SyncSender<()>,
    },
    /// Begin to record a volume, or end it.
    Tap {
        volume: VolumeId,
        tap: Option<Tap>,
        done: SyncSender<()>,
    },
    /// Give back the space of what was condemned.
    Reclaim(Box<NewReclaim>),
    ChangeBackground {
        kind: BackgroundKind,
        policy: BackgroundPolicy,
        done: SyncSender<()>,
    },
    /// Add, give up or take back a replica of an extent.
    ChangeReplica {
        volume: VolumeId,
        replica: (u32, usize),
        change: NewChange,
        done: SyncSender<ChangeAnswer>,
    },
    /// A replica that was added is recorded.
    ConfirmAdded {
        volume: VolumeId,
        replica: (u32, usize),
    },
    /// Use one more journal.
    AddJournal {
        volume: VolumeId,
        journal: Box<NewJournal>,
        done: SyncSender<bool>,
    },
    /// Give up the journal on a drive.
    DropJournal {
        volume: VolumeId,
        drive: DriveId,
        done: SyncSender<bool>,
    },
    /// Read from other replicas: how long reads take on the volume's drives.
    SetReadCosts {
        volume: VolumeId,
        read_costs: Vec<(DriveId, u32)>,
        done: SyncSender<()>,
    },
    /// Begin no change of a volume for a moment; false if it cannot be captured now.
    Quiesce {
        volume: VolumeId,
        done: SyncSender<bool>,
    },
    /// Capture what a volume holds.
    Snapshot(Box<NewSnapshot>),
    AbandonSnapshot {
        volume: VolumeId,
    },
    /// Scrub a volume; false if it cannot be now.
    Scrub {
        volume: VolumeId,
        progress: Arc<ScrubProgress>,
        done: SyncSender<bool>,
    },
    /// Give up the scrub of a volume, if there is one.
    EndScrub {
        volume: VolumeId,
        done: SyncSender<()>,
    },
    /// A drive is away, or back with what it had.
    SetAway {
        drive: DriveId,
        is_away: bool,
    },
    /// Tell which files are open on a drive.
    OpenFiles {
        drive: DriveId,
        done: SyncSender<Vec<OpenFile>>,
    },
    FailReplica {
        volume: VolumeId,
        replica: (u32, usize),
        message: String,
    },
    GiveUpJournal {
        volume: VolumeId,
        drive: DriveId,
    },
    Serve {
        volume: VolumeId,
        connection: Box<NewConnection>,
    },
    Stop,
}
