//! Commands: the orders that the rest of the daemon gives to a reactor.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use weir_engine_interface::{JournalSpec, OpenFile, OpenVolume, PolicyLevel, ScrubProgress, VolumeSpec};
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, VolumeId};

use super::background::NewReclaim;
use super::ceilings::PolicyTree;
use super::clients::{NewConnection, Tap};
use super::life::NewSize;
use super::replicas::{ChangeAnswer, NewChange};
use super::snapshot::NewSnapshot;
use super::volume_files::NewHome;

/// A [`JournalSpec`] on its way to a reactor.
pub(crate) struct NewJournal {
    pub spec: JournalSpec,
    pub home: NewHome,
}

/// The policies of a volume: all levels from the top, and the policy tree of its ceilings, if it has
/// ceilings.
pub(super) struct PolicyBinding {
    pub path: Vec<PolicyLevel>,
    pub policy_tree: Option<Arc<PolicyTree>>,
}

/// One order to a reactor. A reactor answers a `done` once the order is in effect.
pub(super) enum Command {
    Open {
        spec: VolumeSpec,
        homes: Vec<NewHome>,
        journals: Vec<NewJournal>,
        open: OpenVolume,
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
    /// Terms were changed in place: release the requests that may run now.
    LookAtPolicyTrees {
        done: SyncSender<()>,
    },
    /// Begin or end recording a volume.
    Tap {
        volume: VolumeId,
        tap: Option<Tap>,
        done: SyncSender<()>,
    },
    /// Reclaim the space of a pending deletion.
    Reclaim(Box<NewReclaim>),
    ChangeBackground {
        kind: BackgroundKind,
        policy: BackgroundPolicy,
        done: SyncSender<()>,
    },
    /// Add, fail or restore a replica of an extent.
    ChangeReplica {
        volume: VolumeId,
        replica: (u32, usize),
        change: NewChange,
        done: SyncSender<ChangeAnswer>,
    },
    /// Control has recorded an added replica.
    ConfirmAdded {
        volume: VolumeId,
        replica: (u32, usize),
    },
    /// Use another journal.
    AddJournal {
        volume: VolumeId,
        journal: Box<NewJournal>,
        done: SyncSender<bool>,
    },
    /// Remove the journal on a drive; false if it is still in use.
    DropJournal {
        volume: VolumeId,
        drive: DriveId,
        done: SyncSender<bool>,
    },
    /// Set the cost of reads on the volume's drives, which decides which replicas are read.
    SetReadCosts {
        volume: VolumeId,
        read_costs: Vec<(DriveId, u32)>,
        done: SyncSender<()>,
    },
    /// Hold back new changes of a volume for a moment. False if no snapshot can be taken now.
    Quiesce {
        volume: VolumeId,
        done: SyncSender<bool>,
    },
    /// Take a snapshot of a volume.
    Snapshot(Box<NewSnapshot>),
    AbandonSnapshot {
        volume: VolumeId,
    },
    /// Scrub a volume; false if no scrub can begin now.
    Scrub {
        volume: VolumeId,
        progress: Arc<ScrubProgress>,
        done: SyncSender<bool>,
    },
    /// End the scrub of a volume, if there is one.
    EndScrub {
        volume: VolumeId,
        done: SyncSender<()>,
    },
    /// A drive went away, or came back with its data.
    SetAway {
        drive: DriveId,
        is_away: bool,
    },
    /// List the files that are open on a drive.
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
