//! Power cuts, kills, and the recovery after them.

use weir_types::bounds::BLOCK_BYTES;

use super::machine::Pending;
use super::requests::InFlight;
use super::{Cell, FILE_BLOCKS, JournalWorld, Sabotage};
use crate::{Stamp, journal_file};

const BLOCK: u32 = BLOCK_BYTES as u32;

impl JournalWorld {
    /// Crashes the machine and recovers the journal. A power cut may lose everything that was not stable. A
    /// kill may lose only operations in flight.
    pub(super) fn crash(&mut self, is_power_cut: bool) -> Result<(), String> {
        self.report.crashes += 1;
        self.end_what_is_under_way(is_power_cut);
        self.in_flight.clear();
        if is_power_cut {
            self.journal_file.crash(&mut self.random);
            self.slow.iter_mut().for_each(|slow| slow.file.crash(&mut self.random));
        }
        if self.has_journal_failed {
            return self.replace_journal();
        }
        self.journal = journal_file::recover_at_last(
            &mut self.journal_file,
            self.geometry,
            self.identity,
            &mut self.random,
        )?;
        for index in 0..self.slow.len() {
            self.slow[index].id = self.open(index)?;
            (self.slow[index].is_forgetting, self.slow[index].is_away) = (false, false);
        }
        self.check_after_crash(is_power_cut)?;
        self.slow.iter_mut().for_each(|slow| slow.has_failed = false);
        for index in 0..self.slow.len() {
            if self.slow[index].is_pending_deletion {
                self.forget(index)?;
            }
        }
        Ok(())
    }

    /// Ends all operations in flight: drives carry them out wholly, in part or not at all. All of that
    /// happens before the next start, because a start waits for it.
    fn end_what_is_under_way(&mut self, is_power_cut: bool) {
        let under_way = std::mem::take(&mut self.pending);
        self.unfenced.clear();
        if self.settings.sabotage == Sabotage::StartsUnfenced && !is_power_cut {
            self.unfenced = under_way;
        } else {
            under_way.into_iter().for_each(|pending| self.carry_out_in_part(pending));
        }
    }

    /// Sometimes carries out an operation that was requested before the last start.
    pub(super) fn carry_out_unfenced(&mut self) {
        if !self.unfenced.is_empty() && self.random.chance(1, 10) {
            let index = self.random.below(self.unfenced.len() as u64) as usize;
            let pending = self.unfenced.swap_remove(index);
            self.carry_out_in_part(pending);
        }
    }

    /// Carries out an operation in flight wholly, in part, or not at all.
    fn carry_out_in_part(&mut self, pending: Pending) {
        if self.random.chance(1, 3) {
            return;
        }
        let is_part = self.random.chance(2, 3);
        match pending {
            Pending::Record { block, cells, .. } => self.write_record(block, cells, false, is_part),
            Pending::Superblock { block, cell } => {
                self.journal_file.write(block, if is_part { Cell::torn() } else { cell }, false);
            }
            Pending::DestageWrite { file, block, stamps, is_placement, .. } => {
                if !(is_placement && self.settings.is_without_fallocate) {
                    self.write_slow((file, block), &stamps, false, is_part);
                }
            }
            Pending::PassBy { file, block, stamps, .. } => {
                self.write_slow((file, block), &stamps, false, is_part);
            }
            Pending::JournalSync(point) if !is_part && self.is_honest() => self.journal_file.sync(point),
            Pending::SlowSync { file, point } if !is_part && self.is_honest() => {
                self.slow[file].file.sync(point);
            }
            Pending::JournalSync(_)
            | Pending::SlowSync { .. }
            | Pending::DestageRead { .. }
            | Pending::Read(_) => {}
        }
    }

    fn is_honest(&self) -> bool {
        self.settings.sabotage == Sabotage::None
    }

    fn check_after_crash(&mut self, is_power_cut: bool) -> Result<(), String> {
        for index in 0..self.slow.len() {
            if self.slow[index].is_pending_deletion {
                continue;
            }
            let stamps = self.read_all(index)?;
            for block in self.slow[index].history.sectors() {
                let (stamp, now) = (stamps[block as usize], self.now);
                let slow = &mut self.slow[index];
                // A kill loses no acknowledged data, but a failed sync may have lost some. The remaining
                // content is no more stable than it was before.
                let result = match (is_power_cut, slow.has_failed) {
                    (true, _) => slow.history.check_after_crash(block, stamp, now),
                    (false, true) => slow.history.check_after_kill(block, stamp, now),
                    (false, false) => slow.history.check_read(block, stamp, now, now),
                };
                result.map_err(|error| format!("after a crash, file {index}: {error}"))?;
            }
        }
        Ok(())
    }

    /// Content of a file, including its blocks in the journal.
    fn read_all(&mut self, index: usize) -> Result<Vec<Stamp>, String> {
        let mut parts = Vec::new();
        let id = self.slow[index].id;
        let pin = self.journal.read(id, 0, FILE_BLOCKS * BLOCK, &mut parts);
        let pin = pin.map_err(|fault| format!("after a crash, file {index}: {fault}"))?;
        let mut stamps = Vec::new();
        for part in parts {
            match part {
                weir_journal::Part::Journal { position_bytes, length } => {
                    let first = (position_bytes / BLOCK_BYTES) as u32;
                    stamps.extend((first..first + length / BLOCK).map(|block| self.journal_stamp(block)));
                }
                weir_journal::Part::Slow { offset, length } => {
                    let first = offset / BLOCK;
                    let file = &self.slow[index].file;
                    stamps.extend((first..first + length / BLOCK).map(|block| file.read(block)));
                }
                weir_journal::Part::Zero { length } => {
                    stamps.extend(std::iter::repeat_n(0, (length / BLOCK) as usize));
                }
            }
        }
        let mut actions = Vec::new();
        self.journal.read_ended(pin, &mut actions);
        self.take(actions)?;
        Ok(stamps)
    }

    /// Replaces a failed journal by a new one, and creates all files again.
    pub(super) fn replace_journal(&mut self) -> Result<(), String> {
        if let Some((ticket, InFlight { file, .. })) = self.in_flight.first_key_value() {
            return Err(format!("{ticket:?} of file {file} was not answered when the journal failed"));
        }
        self.pending.clear();
        self.unfenced.clear();
        self.identity += 1;
        self.journal_file.crash(&mut self.random);
        self.journal = journal_file::make(&mut self.journal_file, self.geometry, self.identity)?;
        self.has_journal_failed = false;
        (0..self.slow.len()).try_for_each(|index| self.renew(index))
    }
}
