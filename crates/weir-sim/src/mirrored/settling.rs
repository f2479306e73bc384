//! Lets the simulated machine come to rest: outstanding operations end, and replicas get everything that they lack.

use weir_types::ExtentIndex;
use weir_types::bounds::REPLICA_SLOTS_MAX;

use super::MirrorWorld;
use super::daemon::Daemon;
use super::machine::Journaling;
use crate::requests::EXTENTS;

impl MirrorWorld {
    /// Answers all outstanding operations, with all drives working. Refused metadata is written again until a
    /// replica takes it.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.daemon.machine.end_faults();
        self.return_all()?;
        while !self.is_at_rest() {
            self.daemon.machine.now += 1;
            self.daemon.answer_one()?;
            if self.daemon.machine.is_all_parked() {
                self.daemon.machine.carry_out_orphan();
                self.daemon.retry_metadata()?;
            }
            self.renew_invalidated()?;
        }
        let left = self.daemon.clients.unanswered() + self.daemon.steps.count();
        let Daemon { machine, mirror, .. } = &self.daemon;
        let is_jammed = |journal: &Journaling| journal.is_jammed(|extent| mirror.is_lost(extent));
        if left > 0 && !machine.journaling.as_ref().is_some_and(is_jammed) {
            Err(format!("{left} requests were never answered"))
        } else {
            Ok(())
        }
    }

    fn is_at_rest(&self) -> bool {
        let Daemon { machine, metadata, .. } = &self.daemon;
        machine.is_all_parked() && machine.orphans.is_empty() && metadata.is_idle()
    }

    /// Makes up for everything that replicas lack, without faults.
    pub(super) fn make_up(&mut self) -> Result<(), String> {
        let settings = &mut self.daemon.machine.settings;
        (settings.full_per_mille, settings.errors_per_mille) = (0, 0);
        // What is said beside a replica at rest is taken back in one turn, and then it counts in the next.
        for _ in 0..3 {
            for (extent, slot) in
                ExtentIndex::first(EXTENTS).flat_map(|e| (0..REPLICA_SLOTS_MAX).map(move |slot| (e, slot)))
            {
                let mut effects = Vec::new();
                loop {
                    let steps = self.daemon.steps.count();
                    self.begin_resync(extent, slot, &mut effects);
                    let is_begun = self.daemon.steps.count() > steps;
                    self.daemon.take(std::mem::take(&mut effects))?;
                    self.settle()?;
                    if !is_begun {
                        break;
                    }
                }
                self.daemon.mirror.promote(extent, slot, &mut effects);
                self.daemon.take(effects)?;
                self.settle()?;
            }
        }
        Ok(())
    }
}
