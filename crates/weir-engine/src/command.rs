//! Commands: what the rest of the daemon tells a reactor to do.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use weir_engine_interface::{AttachedClient, OpenFile, OpenVolume, VolumeSpec};
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, VolumeId};

use super::background::NewReclaim;
use super::ceilings::PolicyTree;
use super::clients::{NewClient, Tap};
use super::policy_path::VolumePolicy;
use super::volumes::command::{NewJournal, VolumeCommand};
use super::volumes::lifecycle::NewSize;
use super::volumes::volume_files::NewHome;

/// The policy of a volume, and the policy tree of its ceilings, if it has ceilings.
pub(super) struct PolicyBinding {
    pub policy: VolumePolicy,
    pub policy_tree: Option<Arc<PolicyTree>>,
}

/// One command to a reactor. A reactor answers a `done` once the command is in effect.
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
    /// A command to a volume.
    Volume {
        volume: VolumeId,
        command: VolumeCommand,
    },
    Serve {
        volume: VolumeId,
        client: Box<NewClient>,
    },
    /// Answered with false if the volume takes no further client.
    ServeAttached {
        volume: VolumeId,
        client: Box<AttachedClient>,
        done: SyncSender<bool>,
    },
    /// End the service of the kernel of this host for a volume.
    EndAttached {
        volume: VolumeId,
        done: SyncSender<()>,
    },
    Stop,
}
