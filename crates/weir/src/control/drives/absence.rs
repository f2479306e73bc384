//! Drives whose folders vanish while the daemon runs, and what they must be to be used again.
//!
//! Once a second it is looked whether each drive is where it should be: its folder is the one that was opened (the same
//! filesystem and inode), and has the drive's marker. A drive that is not is away: it is shown as missing, replicas there
//! that others stand in for are failed, and the last replica of an extent answers EIO, with its file left open.
//!
//! What comes back unchanged is used again without a restart:
//!
//! * The drive is the same if its folder is the one that was opened, or another one with its marker; the default drive
//!   has no marker, and must be the same folder.
//! * The last replica of an extent goes on if its path leads to the very file that is open. While a file is open, its
//!   filesystem stays in the kernel, even where it was unmounted lazily, and the inode is nobody else's: so everything
//!   that was acknowledged is there, flushed or not, and an error of a later flush is seen. With any other file in that
//!   place, an acknowledged write may be missing: the replica fails with that reason.
//! * A write journal is used further if its log is that very file. Otherwise it is given up, and what is behind it is made
//!   anew: the data plane would go on with the open log, and the next start would read the other one.
//! * A failed replica is brought up to date by what it missed, unless its file is another one: then it is made anew.
//! * An extent that was not opened has acknowledged nothing since the start; its file must be whole, as at a start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_plan::replica_return::{AfterReturn, FileContent, FoundFile, after_return};
use weir_types::{DriveId, VolumeId};

use super::super::Control;
use super::super::journals::ExtentReplica;
use crate::dataplane::{Content, FileIdentity, OpenFile};
use weir_store::{Marker, Store};

/// Drives that went away while the daemon ran, and what was found changed of those that came back.
#[derive(Default)]
pub(in crate::control) struct Absences(Mutex<State>);

#[derive(Default)]
struct State {
    /// The files of drives that are away, as they were opened.
    away: BTreeMap<DriveId, Store>,
    /// Replicas in whose place another file was found: they are made anew.
    replaced: BTreeSet<(DriveId, VolumeId, ExtentReplica)>,
}

impl Absences {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files of a drive that is away, as they were opened.
    pub fn of(&self, drive: DriveId) -> Option<Store> {
        self.state().away.get(&drive).cloned()
    }

    /// Forgets that a replica was found replaced: its file is made anew.
    pub fn forget_replica(&self, drive: DriveId, volume: VolumeId, replica: ExtentReplica) {
        self.state().replaced.remove(&(drive, volume, replica));
    }

    /// True if a replica was found replaced.
    pub fn is_replaced(&self, drive: DriveId, volume: VolumeId, replica: ExtentReplica) -> bool {
        self.state().replaced.contains(&(drive, volume, replica))
    }
}

impl Control {
    /// Takes drives out of use whose folders are gone.
    pub(in crate::control) fn look_for_absences(&self) {
        for (drive, store) in self.stores() {
            if let Some(why) = self.absence(drive, &store) {
                self.leave_out(drive, store, why);
            }
        }
    }

    /// Why a drive is not where it should be, if it is not. One that cannot be read is there.
    pub(in crate::control) fn absence(&self, drive: DriveId, store: &Store) -> Option<String> {
        let marker = (drive != DriveId::DEFAULT).then(|| Marker::new(self.node, drive));
        store.absence(marker.as_ref())
    }

    /// The data plane learns of it first, or the drive would be shown as missing while requests still reach it.
    fn leave_out(&self, id: DriveId, store: Store, why: String) {
        self.forget_replaced(id);
        self.absences.state().away.insert(id, store);
        self.data_plane.set_drive_away(id, true);
        let name = self.update(|model| {
            let drive = model.drives.get_mut(&id).filter(|drive| drive.store.is_ok())?;
            drive.store = Err(why.clone());
            Some(drive.record.name.clone())
        });
        match name {
            Some(name) => tracing::error!(drive = %name, "the drive is away: {why}"),
            // It was removed at the same time: nobody else takes a drive out of use.
            None => self.forget_absence(id),
        }
    }

    /// Ends the absence of a drive that is back, or removed.
    pub(super) fn forget_absence(&self, drive: DriveId) {
        self.data_plane.set_drive_away(drive, false);
        self.absences.state().away.remove(&drive);
    }

    /// Forgets which replicas on a drive were found replaced.
    pub(super) fn forget_replaced(&self, drive: DriveId) {
        self.absences.state().replaced.retain(|(other, ..)| *other != drive);
    }

    /// Lets the data plane go on with a drive that is back, apart from files that are not what they were.
    ///
    /// # Errors
    /// Why it is away, if it went again meanwhile: what is not in place then says nothing of it.
    pub(in crate::control) fn go_on_with(&self, drive: DriveId, store: &Store) -> Result<(), String> {
        if self.absences.of(drive).is_none() {
            return Ok(());
        }
        let mut files = self.data_plane.open_files(drive);
        // Twice: a drive may have been gone just while its files were looked at.
        for _ in 0..2 {
            files.retain(|file| found_in_place_of(file) != FoundFile::Same);
            self.absence(drive, store).map_or(Ok(()), Err)?;
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
                self.absences.state().replaced.insert((drive, file.volume, replica));
                self.fail_replaced(replica, file);
            }
            (AfterReturn::Keep | AfterReturn::Fail | AfterReturn::FailAndReplace, _) => {}
        }
    }

    fn leave_replaced_journal(&self, drive: DriveId, file: &OpenFile) {
        // The alarm is that of the replicas behind it.
        tracing::error!(
            volume = %file.volume,
            "a write journal is not the one that was open before its drive was away, and is given up: {}",
            file.path.display()
        );
        self.data_plane.give_up_journal(file.volume, drive);
    }

    fn fail_replaced(&self, replica: ExtentReplica, file: &OpenFile) {
        let message = format!(
            "is not the file that was open before its drive was away; acknowledged writes may be missing in {}: put \
             the original back and restart the daemon, or restore a snapshot",
            file.path.display()
        );
        self.data_plane.fail_replica(file.volume, replica, message);
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

#[cfg(test)]
mod tests {
    use weir_types::bounds::EXTENT_BYTES;

    use super::*;

    #[test]
    fn only_the_same_whole_file_is_taken_for_the_one_that_was_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("extent");
        fs::File::create(&path).unwrap().set_len(EXTENT_BYTES).unwrap();
        let identity = FileIdentity::of(&path.metadata().unwrap());
        let volume = VolumeId(uuid::Uuid::nil());
        let (content, size_bytes) = (Content::Replica(0, 0), EXTENT_BYTES);
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
