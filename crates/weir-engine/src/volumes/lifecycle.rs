//! Lifecycle: the commands that end a volume, resize it or make it read-only, until the volume is quiet enough.

use std::sync::mpsc::SyncSender;

use weir_types::{DriveId, ExtentIndex};
use weir_volume::mirror::RecoveredExtent;

use crate::volumes::volume_files::NewHome;

/// New size and layout of a volume.
pub struct NewSize {
    pub size_bytes: u64,
    /// The present homes in their order, followed by new homes.
    pub homes: Vec<NewHome>,
    pub replicas: Vec<Vec<u8>>,
    /// Recovered state of the new extents.
    pub recovered_extents: Vec<RecoveredExtent>,
    /// The new extent replicas that are behind a journal, with the drive of the journal.
    pub bindings: Vec<((ExtentIndex, usize), DriveId)>,
}

/// The commands to a volume that wait until it is quiet, and what it permits.
pub struct VolumeLife {
    /// The caller that closes the volume.
    closing: Option<SyncSender<()>>,
    /// A new size and its caller. A shrink is deferred until the volume is quiet.
    resizing: Option<(NewSize, SyncSender<()>)>,
    /// The journals are forgetting the data that the volume loses.
    is_cutting: bool,
    /// Clients may only read.
    is_read_only: bool,
    /// The caller that makes the volume read-only; it is answered once no write is under way.
    becoming_read_only: Option<SyncSender<()>>,
}

impl VolumeLife {
    pub fn new(is_read_only: bool) -> VolumeLife {
        VolumeLife {
            closing: None,
            resizing: None,
            is_cutting: false,
            is_read_only,
            becoming_read_only: None,
        }
    }

    /// True if a command waits for the volume to become quiet.
    pub fn is_ending(&self) -> bool {
        self.closing.is_some() || self.resizing.is_some() || self.becoming_read_only.is_some()
    }

    pub fn close(&mut self, done: SyncSender<()>) {
        self.closing = Some(done);
    }

    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    pub fn resize(&mut self, resizing: NewSize, done: SyncSender<()>) {
        self.resizing = Some((resizing, done));
    }

    pub fn is_resizing(&self) -> bool {
        self.resizing.is_some()
    }

    /// The command for a new size, to carry out now or to defer again by [`VolumeLife::resize`].
    pub fn take_resize(&mut self) -> Option<(NewSize, SyncSender<()>)> {
        self.resizing.take()
    }

    /// The journals have to forget data that the volume loses. True the first time.
    pub fn begin_cutting(&mut self) -> bool {
        !std::mem::replace(&mut self.is_cutting, true)
    }

    pub fn end_cutting(&mut self) {
        self.is_cutting = false;
    }

    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Permits or refuses writes. Answers the caller if nothing has to wait; with `None`, writes may be under
    /// way, and the caller is answered once they have ended.
    pub fn set_read_only(&mut self, is_read_only: bool, done: SyncSender<()>) -> Option<SyncSender<()>> {
        let was_read_only = std::mem::replace(&mut self.is_read_only, is_read_only);
        if was_read_only || !is_read_only {
            return Some(done);
        }
        self.becoming_read_only = Some(done);
        None
    }

    /// No write is under way: the caller that made the volume read-only.
    pub fn take_read_only(&mut self) -> Option<SyncSender<()>> {
        self.becoming_read_only.take()
    }

    /// The volume is closed: the caller that closed it.
    pub fn take_closing(&mut self) -> Option<SyncSender<()>> {
        self.closing.take()
    }
}

/// Tells the caller of a command that it is in effect. The caller may have stopped waiting.
pub fn answer(done: SyncSender<()>) {
    let _ = done.send(());
}
