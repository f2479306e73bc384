//! Drives of the simulated machine whose folders go and return, some of them with another file in the place of an open one.
//!
//! The operator puts the original back before the next start, as the daemon asks for it.

use weir_plan::replica_return::{AfterReturn, FileContent, FoundFile, after_return};
use weir_types::ExtentIndex;

use super::MirrorWorld;
use crate::requests::{EXTENTS, random_slot};

impl MirrorWorld {
    /// Has folders of drives go and return.
    pub(super) fn go_and_return(&mut self) -> Result<(), String> {
        let per_ten_thousand = self.daemon.machine.settings.absences_per_ten_thousand;
        if per_ten_thousand == 0 {
            return Ok(());
        }
        let slot = random_slot(&mut self.daemon.machine.random);
        let is_absent = self.daemon.machine.drives[slot].is_absent;
        match is_absent {
            false if self.is_by_chance(per_ten_thousand, 10_000) => self.drive_goes(slot),
            true if self.is_by_chance(1, 30) => {
                let is_changed = self.is_by_chance(1, 4);
                self.drive_returns(slot, is_changed)
            }
            _ => Ok(()),
        }
    }

    fn drive_goes(&mut self, slot: usize) -> Result<(), String> {
        self.daemon.machine.report.absences += 1;
        self.daemon.machine.drives[slot].go_away();
        let mut effects = Vec::new();
        self.daemon
            .mirror
            .leave_to_others(ExtentIndex::first(EXTENTS).map(|extent| (slot, extent)), &mut effects);
        self.daemon.take(effects)
    }

    /// The folder of a drive is there again. What follows for each open file is decided as the daemon does.
    fn drive_returns(&mut self, slot: usize, is_changed: bool) -> Result<(), String> {
        for extent in ExtentIndex::first(EXTENTS) {
            // The file of a replica that is out of service is judged by its metadata when it rejoins.
            if !self.daemon.mirror.is_there(extent, slot) {
                continue;
            }
            let replica = (slot, extent);
            let found = if is_changed { self.daemon.machine.replace_file(replica) } else { FoundFile::Same };
            match after_return(FileContent::Replica, found) {
                AfterReturn::Keep => {}
                AfterReturn::Fail => self.fail_replaced(extent, slot)?,
                AfterReturn::FailAndReplace => {
                    self.daemon.control.is_damaged(extent, slot);
                    self.fail_replaced(extent, slot)?;
                }
                AfterReturn::GiveUpJournal => unreachable!("a replica is no journal"),
            }
        }
        self.daemon.machine.drives[slot].is_absent = false;
        Ok(())
    }

    fn fail_replaced(&mut self, extent: ExtentIndex, slot: usize) -> Result<(), String> {
        self.daemon.failures.file_replaced((slot, extent));
        let mut effects = Vec::new();
        self.daemon.mirror.fail_replica(extent, slot, &mut effects);
        self.daemon.take(effects)
    }

    /// All drives are where they should be.
    pub(super) fn return_all(&mut self) -> Result<(), String> {
        let drives = &self.daemon.machine.drives;
        let absent: Vec<usize> = (0..drives.len()).filter(|slot| drives[*slot].is_absent).collect();
        absent.into_iter().try_for_each(|slot| self.drive_returns(slot, false))
    }
}
