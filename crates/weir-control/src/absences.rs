//! Absence of drives: drives whose folders vanish while the daemon runs, and the conditions for using them
//! again.
//!
//! Every second a check verifies that each drive is in place. The folder must be the one that was opened (the
//! same filesystem and inode) and have the drive's marker. A drive that fails the check is away and is shown
//! as missing. Its replicas are failed where other replicas stand in. The last replica of an extent answers
//! EIO, and its file stays open.
//!
//! A drive that returns unchanged is used again without a restart:
//!
//! * The drive is the same if its folder is the one that was opened, or another folder with its marker. The
//!   default drive has no marker, and must be the same folder.
//! * The last replica of an extent continues if its path leads to the very file that is open. An open file
//!   keeps its filesystem in the kernel, even after a lazy unmount, and no other file gets its inode. So all
//!   acknowledged data is there, flushed or not, and a later flush reports its errors. With any other file in
//!   its place, an acknowledged write may be missing, and the replica fails with that reason.
//! * A write journal continues if its log is the very file that is open. Otherwise the journal is
//!   invalidated, and the replicas behind it are created anew. The data plane would continue with the open
//!   log, and the next start would read the other one.
//! * A failed replica is resynced with the writes that it missed. If its file is another one, the replica is
//!   created anew.
//! * An extent that was not opened has acknowledged nothing since the start. Its file must be whole, as at a
//!   start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_engine_interface::{Content, FileIdentity, OpenFile};
use weir_plan::replica_return::{AfterReturn, FileContent, FoundFile, after_return};
use weir_store::Store;
use weir_types::{DriveId, VolumeId};

use crate::core::Core;
use crate::records::ExtentReplica;

#[derive(Default)]
struct State {
    /// Files of drives that are away, as they were opened.
    away: BTreeMap<DriveId, Store>,
    /// Replicas whose file was replaced by another one; they are created anew.
    replaced: BTreeSet<(DriveId, VolumeId, ExtentReplica)>,
}

/// None
pub struct Absences {
    core: Arc<Core>,
    state: Mutex<State>,
}

impl Absences {
    pub(crate) fn new(core: Arc<Core>) -> Absences {
        Absences { core, state: Default::default() }
    }
}

impl Absences {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files of a drive that is away, as they were opened.
    pub fn of(&self, drive: DriveId) -> Option<Store> {
        self.state().away.get(&drive).cloned()
    }

    /// Forgets that a replica was replaced, because its file is created anew.
    pub fn forget_replica(&self, drive: DriveId, volume: VolumeId, replica: ExtentReplica) {
        self.state().replaced.remove(&(drive, volume, replica));
    }

    /// True if a replica was replaced.
    pub fn is_replaced(&self, drive: DriveId, volume: VolumeId, replica: ExtentReplica) -> bool {
        self.state().replaced.contains(&(drive, volume, replica))
    }
}

fn found_in_place_of(file: &OpenFile) -> FoundFile {
    let Ok(metadata) = fs::symlink_metadata(&file.path) else { return FoundFile::Other };
    let identity = FileIdentity::of(&metadata);
    match metadata.is_file() && metadata.len() == file.size_bytes && identity.inode == file.identity.inode {
        false => FoundFile::Other,
        true if identity == file.identity => FoundFile::Same,
        true => FoundFile::SameNumber,
    }
}

impl Absences {
    /// Takes drives out of use whose folders are gone.
    pub(crate) fn look_for_absences(&self) {
        for (drive, store) in self.core.stores() {
            if let Some(why) = self.core.absence(drive, &store) {
                self.leave_out(drive, store, why);
            }
        }
    }

    /// Takes a drive out of use. The data plane stops requests first, or they would still reach a drive that
    /// is shown as missing.
    fn leave_out(&self, id: DriveId, store: Store, why: String) {
        self.forget_replaced(id);
        self.state().away.insert(id, store);
        self.core.engine.set_drive_away(id, true);
        let name = self.core.update(|model| {
            let drive = model.drives.get_mut(&id).filter(|drive| drive.store.is_ok())?;
            drive.store = Err(why.clone());
            Some(drive.record.name.clone())
        });
        match name {
            Some(name) => tracing::error!(drive = %name, "the drive is away: {why}"),
            // The drive was removed at the same time; no other code takes a drive out of use.
            None => self.forget_absence(id),
        }
    }

    /// Ends the absence of a drive that is back or removed.
    pub(crate) fn forget_absence(&self, drive: DriveId) {
        self.core.engine.set_drive_away(drive, false);
        self.state().away.remove(&drive);
    }

    /// Forgets the replaced replicas on a drive.
    pub(crate) fn forget_replaced(&self, drive: DriveId) {
        self.state().replaced.retain(|(other, ..)| *other != drive);
    }

    /// Lets the data plane continue with a drive that is back, except for files that are not the same.
    ///
    /// # Errors
    /// The reason why the drive is away, if it went away again. Files that are not in place then prove
    /// nothing.
    pub(crate) fn go_on_with(&self, drive: DriveId, store: &Store) -> Result<(), String> {
        if self.of(drive).is_none() {
            return Ok(());
        }
        let mut files = self.core.engine.open_files(drive);
        // Twice, because the drive may have been away just while its files were checked.
        for _ in 0..2 {
            files.retain(|file| found_in_place_of(file) != FoundFile::Same);
            self.core.absence(drive, store).map_or(Ok(()), Err)?;
        }
        files.iter().for_each(|file| self.go_on_without(drive, file));
        self.forget_absence(drive);
        Ok(())
    }

    /// Does for an open file what follows from the file in its place.
    fn go_on_without(&self, drive: DriveId, file: &OpenFile) {
        let (content, replica) = match file.content {
            Content::Replica(extent, slot) => (FileContent::Replica, Some((extent, slot))),
            Content::Journal => (FileContent::Journal, None),
        };
        // It was another one each time before: that the same file is there now again says nothing of what came between.
        let found = match found_in_place_of(file) {
            FoundFile::Same => FoundFile::SameNumber,
            other => other,
        };
        match (after_return(content, found), replica) {
            (AfterReturn::GiveUpJournal, _) => self.leave_replaced_journal(drive, file),
            (AfterReturn::Fail, Some(replica)) => self.fail_replaced(replica, file),
            (AfterReturn::FailAndReplace, Some(replica)) => {
                self.state().replaced.insert((drive, file.volume, replica));
                self.fail_replaced(replica, file);
            }
            (AfterReturn::Keep | AfterReturn::Fail | AfterReturn::FailAndReplace, _) => {}
        }
    }

    fn leave_replaced_journal(&self, drive: DriveId, file: &OpenFile) {
        // The replicas behind the journal raise the alarm.
        tracing::error!(
            volume = %file.volume,
            "a write journal is not the one that was open before its drive was away, and is given up: {}",
            file.path.display()
        );
        self.core.engine.give_up_journal(file.volume, drive);
    }

    fn fail_replaced(&self, replica: ExtentReplica, file: &OpenFile) {
        let message = format!(
            "is not the file that was open before its drive was away; acknowledged writes may be missing in {}: put \
             the original back and restart the daemon, or restore a snapshot",
            file.path.display()
        );
        self.core.engine.fail_replica(file.volume, replica, message);
    }
}

#[cfg(test)]
mod tests {
    use weir_types::ExtentIndex;
    use weir_types::bounds::EXTENT_BYTES;

    use super::*;

    #[test]
    fn only_the_same_whole_file_counts_as_the_open_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("extent");
        fs::File::create(&path).unwrap().set_len(EXTENT_BYTES).unwrap();
        let identity = FileIdentity::of(&path.metadata().unwrap());
        let volume = VolumeId(uuid::Uuid::nil());
        let (content, size_bytes) = (Content::Replica(ExtentIndex(0), 0), EXTENT_BYTES);
        let file = OpenFile { volume, content, path: path.clone(), identity, size_bytes };
        assert_eq!(found_in_place_of(&file), FoundFile::Same);
        let elsewhere = FileIdentity { device: identity.device + 1, ..identity };
        assert_eq!(
            found_in_place_of(&OpenFile { identity: elsewhere, ..file.clone() }),
            FoundFile::SameNumber
        );
        let other = FileIdentity { inode: identity.inode + 1, ..identity };
        assert_eq!(found_in_place_of(&OpenFile { identity: other, ..file.clone() }), FoundFile::Other);
        fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert_eq!(found_in_place_of(&file), FoundFile::Other);
        fs::remove_file(&path).unwrap();
        assert_eq!(found_in_place_of(&file), FoundFile::Other);
    }
}
