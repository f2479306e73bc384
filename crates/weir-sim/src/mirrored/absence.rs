//! Drives of the imagined machine whose folders go and return, some of them with another file in the place of an open one.
//!
//! The operator puts the original back before the next start, as the daemon asks for it.

use weir_plan::replica_return::{AfterReturn, FileContent, FoundFile, after_return};
use weir_types::bounds::REPLICA_SLOTS_MAX;

use super::MirrorWorld;
use crate::disk::File;
use crate::requests::EXTENTS;

impl MirrorWorld {
    /// Has folders of drives go and return.
    pub(super) fn go_and_return(&mut self) -> Result<(), String> {
        let per_ten_thousand = self.settings.absences_per_ten_thousand;
        if per_ten_thousand == 0 {
            return Ok(());
        }
        let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
        let is_absent = self.drives[slot].is_absent;
        match is_absent {
            false if self.random.chance(per_ten_thousand, 10_000) => self.drive_goes(slot),
            true if self.random.chance(1, 30) => {
                let is_changed = self.random.chance(1, 4);
                self.drive_returns(slot, is_changed)
            }
            _ => Ok(()),
        }
    }

    fn drive_goes(&mut self, slot: usize) -> Result<(), String> {
        self.report.absences += 1;
        (self.drives[slot].is_absent, self.drives[slot].has_failed) = (true, true);
        let mut effects = Vec::new();
        self.mirror.leave_to_others((0..EXTENTS).map(|extent| (slot, extent)), &mut effects);
        self.take(effects)
    }

    /// The folder of a drive is there again. What follows for each open file is decided as the daemon does.
    fn drive_returns(&mut self, slot: usize, is_changed: bool) -> Result<(), String> {
        for extent in 0..EXTENTS {
            // The file of a replica that is out of service is judged by its metadata when it rejoins.
            if !self.mirror.is_there(extent, slot) {
                continue;
            }
            let found = if is_changed { self.change_file(extent, slot) } else { FoundFile::Same };
            match after_return(FileContent::Replica, found) {
                AfterReturn::Keep => {}
                AfterReturn::Fail => self.fail_replaced(extent, slot)?,
                AfterReturn::FailAndReplace => {
                    self.control.is_damaged(extent, slot);
                    self.fail_replaced(extent, slot)?;
                }
                AfterReturn::GiveUpJournal => unreachable!("a replica is no journal"),
            }
        }
        self.drives[slot].is_absent = false;
        Ok(())
    }

    fn fail_replaced(&mut self, extent: u32, slot: usize) -> Result<(), String> {
        self.failures.file_replaced((slot, extent));
        let mut effects = Vec::new();
        self.mirror.fail_replica(extent, slot, &mut effects);
        self.take(effects)
    }

    /// Puts another file in the place of an open one, now and then, unless something is still under way there: an empty
    /// file, or the same one after a power loss of its drive.
    fn change_file(&mut self, extent: u32, slot: usize) -> FoundFile {
        let index = extent as usize;
        if self.touches(extent, slot) || !self.drives[slot].is_made[index] || self.random.chance(1, 2) {
            return FoundFile::Same;
        }
        let file = self.drives[slot].files[index].clone();
        self.originals.entry((slot, extent)).or_insert(file);
        if self.random.chance(1, 2) {
            self.drives[slot].files[index] = File::default();
            return FoundFile::Other;
        }
        self.drives[slot].files[index].crash(&mut self.random);
        FoundFile::SameNumber
    }

    /// All drives are where they should be.
    pub(super) fn return_all(&mut self) -> Result<(), String> {
        let absent: Vec<usize> = (0..REPLICA_SLOTS_MAX).filter(|slot| self.drives[*slot].is_absent).collect();
        absent.into_iter().try_for_each(|slot| self.drive_returns(slot, false))
    }

    /// The operator puts originals back, before the daemon starts.
    pub(super) fn put_originals_back(&mut self) {
        self.failures.files_put_back();
        self.drives.iter_mut().for_each(|drive| drive.is_absent = false);
        for ((slot, extent), file) in std::mem::take(&mut self.originals) {
            self.drives[slot].files[extent as usize] = file;
        }
    }

    /// A file was made anew where another one had been put: that one is gone.
    pub(super) fn forget_original(&mut self, extent: u32, slot: usize) {
        self.originals.remove(&(slot, extent));
    }
}

/// The file that was open before another one was put in its place.
pub(super) type Originals = std::collections::BTreeMap<(usize, u32), File>;
