//! Scrubs in the simulated machine: random ones in between, and whole ones of a volume at rest, before and after its
//! blocks rot.

use weir_types::ExtentIndex;
use weir_volume::mirror::{Effect, SECTIONS};

use super::MirrorWorld;
use super::daemon::StepKind;
use super::machine::sum_of;
use super::settings::Rot;
use crate::disk::Block;
use crate::requests::{EXTENTS, random_extent};

/// Sections in which simulated clients write.
const HOT_SECTIONS: [u32; 2] = [0, SECTIONS - 1];

impl MirrorWorld {
    /// Begins to scrub a random section, or continues with one.
    pub(super) fn scrub_some(&mut self) -> Result<(), String> {
        let extent = random_extent(&mut self.daemon.machine.random);
        let section = HOT_SECTIONS[self.daemon.machine.random.below(2) as usize];
        let in_sync = self.daemon.mirror.readable(extent, 0, 0).iter().count();
        let settings = &self.daemon.machine.settings;
        if settings.rot == Rot::Always && in_sync < settings.replicas {
            // Without the missing replica a later scrub cannot tell the correct content.
            return Ok(());
        }
        let mut effects = Vec::new();
        if self.is_by_chance(1, 60) {
            self.daemon.mirror.scrubs().abandon_section(extent, &mut effects);
        } else if !self.daemon.mirror.scrubs().begin_section(
            extent,
            section,
            sum_of(&Block::default()),
            &mut effects,
        ) {
            self.begin_piece(extent, &mut effects);
        }
        self.daemon.take(effects)
    }

    pub(super) fn begin_piece(&mut self, extent: ExtentIndex, effects: &mut Vec<Effect>) {
        if let Some(id) = self.daemon.mirror.scrubs().begin_piece(extent, effects) {
            self.daemon.steps.begin(id, StepKind::Scrub);
        }
    }

    /// Scrubs all sections while no other work runs.
    pub(super) fn scrub_all(&mut self) -> Result<(), String> {
        for (extent, section) in
            ExtentIndex::first(EXTENTS).flat_map(|extent| HOT_SECTIONS.map(|section| (extent, section)))
        {
            self.finish_section(extent)?;
            let mut effects = Vec::new();
            let zero_sum = sum_of(&Block::default());
            self.daemon.mirror.scrubs().begin_section(extent, section, zero_sum, &mut effects);
            self.daemon.take(effects)?;
            self.settle()?;
            self.finish_section(extent)?;
        }
        Ok(())
    }

    pub(super) fn finish_section(&mut self, extent: ExtentIndex) -> Result<(), String> {
        while self.daemon.mirror.scrubs().has_piece(extent) {
            let mut effects = Vec::new();
            self.begin_piece(extent, &mut effects);
            self.daemon.take(effects)?;
            self.settle()?;
        }
        self.settle()
    }

    /// Scrubs a volume at rest, corrupts blocks, and scrubs the volume again.
    pub(super) fn rot_some(&mut self) -> Result<(), String> {
        if self.daemon.machine.settings.rot == Rot::None {
            return Ok(());
        }
        self.daemon.machine.is_resting = true;
        self.make_up()?;
        self.scrub_all()?;
        let is_alone = self.daemon.machine.settings.replicas == 1;
        if self.daemon.machine.settings.rot == Rot::AtRest {
            (0..40).for_each(|_| self.daemon.machine.rot_a_block());
            if self.is_by_chance(1, 2) {
                self.crash()?;
                self.make_up()?;
            }
            self.scrub_all()?;
            let mut rotten = self.daemon.machine.rotten.blocks();
            let damaged = |extent| self.daemon.mirror.damaged(extent).iter();
            let is_reported = |extent, block| damaged(extent).any(|damaged| damaged.block == block);
            if is_alone && rotten.any(|(extent, block)| !is_reported(extent, block)) {
                return Err("a block that rotted is not reported".to_owned());
            }
        }
        // With more than one replica, the second scrub has repaired all corrupt blocks.
        if !is_alone {
            self.daemon.machine.rotten.clear();
        }
        Ok(())
    }
}
