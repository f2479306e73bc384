//! Lets the simulated machine come to rest: outstanding operations end, and replicas get everything that they lack.

use weir_types::bounds::REPLICA_SLOTS_MAX;

use super::MirrorWorld;
use crate::requests::EXTENTS;

impl MirrorWorld {
    /// Answers all outstanding operations, with all drives working. Refused metadata is written again until a
    /// replica takes it.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.drives.iter_mut().for_each(|drive| (drive.is_silent, drive.is_broken) = (false, false));
        self.end_metadata_faults();
        self.return_all()?;
        while !self.is_all_parked() || !self.orphans.is_empty() || !self.metadata.is_idle() {
            self.now += 1;
            self.answer_one()?;
            if self.is_all_parked() {
                self.come_back()?;
                self.retry_metadata()?;
            }
            self.renew_invalidated()?;
        }
        let left = self.in_flight.len() + self.flushes.len() + self.steps.len();
        if left > 0 && !self.is_journal_jammed() {
            Err(format!("{left} requests were never answered"))
        } else {
            Ok(())
        }
    }

    /// Makes up for everything that replicas lack, without faults.
    pub(super) fn make_up(&mut self) -> Result<(), String> {
        (self.settings.full_per_mille, self.settings.errors_per_mille) = (0, 0);
        // What is said beside a replica at rest is taken back in one turn, and then it counts in the next.
        for _ in 0..3 {
            for (extent, slot) in (0..EXTENTS).flat_map(|e| (0..REPLICA_SLOTS_MAX).map(move |slot| (e, slot)))
            {
                let mut effects = Vec::new();
                loop {
                    let steps = self.steps.len();
                    self.begin_resync(extent, slot, &mut effects);
                    let is_begun = self.steps.len() > steps;
                    self.take(std::mem::take(&mut effects))?;
                    self.settle()?;
                    if !is_begun {
                        break;
                    }
                }
                self.mirror.promote(extent, slot, &mut effects);
                self.take(effects)?;
                self.settle()?;
            }
        }
        Ok(())
    }
}
