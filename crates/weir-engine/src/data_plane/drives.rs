//! Commands about drives: whether a drive is there, which of its files are open, and whether its space counts.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use weir_engine_interface::{OpenFile, SpaceLook};
use weir_types::DriveId;

use super::DataPlane;
use crate::command::Command;
use crate::locks::locked;
use crate::volumes::space_permission::IsCounted;

impl DataPlane {
    /// Stops all operations except syncs on a drive whose folder is gone, or resumes them. In effect for
    /// all later commands.
    pub fn set_drive_away(&self, drive: DriveId, is_away: bool) {
        for reactor in &self.reactors {
            reactor.send(Command::SetAway { drive, is_away });
        }
    }

    /// The files that volumes have open on a drive.
    pub fn open_files(&self, drive: DriveId) -> Vec<OpenFile> {
        let mut files = Vec::new();
        for reactor in &self.reactors {
            let (done, answer): (SyncSender<Vec<OpenFile>>, _) = sync_channel(1);
            reactor.send(Command::OpenFiles { drive, done });
            // A reactor that has stopped has no open files.
            files.extend(answer.recv().unwrap_or_default());
        }
        files
    }

    /// Whether space taken on a drive counts.
    pub(crate) fn is_counted(&self, drive: DriveId) -> Arc<IsCounted> {
        Arc::clone(locked(&self.counted).entry(drive).or_default())
    }

    /// Begins a look at the filesystem of the state folder.
    pub fn begin_look_at_space(&self) -> SpaceLook {
        self.shared_state.space.begin_look()
    }

    /// Sets the reserve and reports the free space of the filesystem of the state folder, both in bytes.
    /// Volumes leave the reserve free. The values hold until the next call.
    pub fn set_space_aside(&self, look: SpaceLook, reserve_bytes: u64, free_bytes: u64) {
        self.shared_state.space.set_reserve(reserve_bytes);
        self.shared_state.space.end_look(look, free_bytes);
    }

    /// Sets whether a drive is on the filesystem of the state folder.
    pub fn set_is_counted(&self, drive: DriveId, is_counted: bool) {
        self.is_counted(drive).set(is_counted);
    }
}
