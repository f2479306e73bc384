//! Commands to a volume that is open, and their answers.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use weir_engine_interface::{FlushWindow, JournalSpec, ScrubProgress};
use weir_types::{DriveId, ExtentIndex};

use super::replicas::{ChangeAnswer, NewChange, tell};
use super::snapshot::NewSnapshot;
use super::volume_files::NewHome;

/// A [`JournalSpec`] on its way to a reactor.
pub struct NewJournal {
    pub spec: JournalSpec,
    pub home: NewHome,
}

/// One command to a volume that is open.
pub enum VolumeCommand {
    /// Add, fail or restore a replica of an extent.
    ChangeReplica {
        replica: (ExtentIndex, usize),
        change: NewChange,
        done: SyncSender<ChangeAnswer>,
    },
    /// Control has recorded an added replica.
    ConfirmAdded {
        replica: (ExtentIndex, usize),
    },
    /// Use another journal.
    AddJournal {
        journal: Box<NewJournal>,
        done: SyncSender<bool>,
    },
    /// Remove the journal on a drive; false if it is still in use.
    DropJournal {
        drive: DriveId,
        done: SyncSender<bool>,
    },
    /// Invalidate the journal on a drive and all replicas behind it.
    GiveUpJournal {
        drive: DriveId,
    },
    /// Set the cost of reads on the volume's drives, which decides which replicas are read.
    SetReadCosts {
        read_costs: Vec<(DriveId, u32)>,
        done: SyncSender<()>,
    },
    /// Let flushes be owed within this window, or carry out each of them before its answer.
    SetFlushWindow {
        window: Option<FlushWindow>,
        done: SyncSender<()>,
    },
    /// Hold back new changes of the volume for a moment. False if no snapshot can be taken now.
    Quiesce {
        done: SyncSender<bool>,
    },
    /// Take a snapshot of the volume.
    Snapshot(Box<NewSnapshot>),
    AbandonSnapshot,
    /// Scrub the volume; false if no scrub can begin now.
    Scrub {
        progress: Arc<ScrubProgress>,
        done: SyncSender<bool>,
    },
    /// End the scrub of the volume, if there is one.
    EndScrub {
        done: SyncSender<()>,
    },
    /// Fail a replica that is damaged.
    FailReplica {
        replica: (ExtentIndex, usize),
        message: String,
    },
}

/// The answer to a command, which is sent once the command is in effect.
pub enum Reply {
    /// No caller waits, or the caller is told later.
    Nothing,
    Done(SyncSender<()>),
    Whether(SyncSender<bool>, bool),
}

impl Reply {
    /// Answers the caller, which may have stopped waiting.
    pub fn send(self) {
        match self {
            Reply::Nothing => {}
            Reply::Done(done) => _ = done.send(()),
            Reply::Whether(done, is_so) => _ = done.send(is_so),
        }
    }
}

impl VolumeCommand {
    /// Answers a command to a volume that is not open any more.
    pub fn refuse(self) {
        let reply = match self {
            VolumeCommand::ChangeReplica { done, .. } => return tell(done, false),
            VolumeCommand::Snapshot(new) => return new.refuse(),
            VolumeCommand::DropJournal { done, .. } => Reply::Whether(done, true),
            VolumeCommand::AddJournal { done, .. }
            | VolumeCommand::Quiesce { done }
            | VolumeCommand::Scrub { done, .. } => Reply::Whether(done, false),
            VolumeCommand::SetReadCosts { done, .. }
            | VolumeCommand::SetFlushWindow { done, .. }
            | VolumeCommand::EndScrub { done } => Reply::Done(done),
            VolumeCommand::ConfirmAdded { .. }
            | VolumeCommand::GiveUpJournal { .. }
            | VolumeCommand::AbandonSnapshot
            | VolumeCommand::FailReplica { .. } => Reply::Nothing,
        };
        reply.send();
    }
}
