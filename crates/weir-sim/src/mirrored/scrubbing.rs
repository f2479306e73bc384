//! Scrubs in the simulated machine: random ones in between, and whole ones of a volume at rest, before and after its
//! blocks rot.

use weir_volume::mirror::Effect;

use super::MirrorWorld;
use super::checksums::{HOT_SECTIONS, sum_of};
use super::settings::Rot;
use crate::disk::Block;
use crate::requests::EXTENTS;

impl MirrorWorld {
    /// Begins to scrub a random section, or continues with one.
    pub(super) fn scrub_some(&mut self) -> Result<(), String> {
        let extent = self.random.below(EXTENTS.into()) as u32;
        let section = HOT_SECTIONS[self.random.below(2) as usize];
        let in_sync = self.mirror.readable(extent, 0, 0).iter().count();
        if self.settings.rot == Rot::Always && in_sync < self.settings.replicas {
            // Without the missing replica a later scrub cannot tell the correct content.
            return Ok(());
        }
        let mut effects = Vec::new();
        if self.random.chance(1, 60) {
            self.mirror.scrubs().abandon_section(extent, &mut effects);
        } else if !self.mirror.scrubs().begin_section(
            extent,
            section,
            sum_of(&Block::default()),
            &mut effects,
        ) {
            self.begin_piece(extent, &mut effects);
        }
        self.take(effects)
    }

    pub(super) fn begin_piece(&mut self, extent: u32, effects: &mut Vec<Effect>) {
        if let Some(id) = self.mirror.scrubs().begin_piece(extent, effects) {
            self.scrubs.pieces.insert(id);
            self.steps.insert(id, super::foreign_piece());
        }
    }

    /// Scrubs all sections while no other work runs.
    pub(super) fn scrub_all(&mut self) -> Result<(), String> {
        for (extent, section) in (0..EXTENTS).flat_map(|extent| HOT_SECTIONS.map(|section| (extent, section)))
        {
            self.finish_section(extent)?;
            let mut effects = Vec::new();
            self.mirror.scrubs().begin_section(extent, section, sum_of(&Block::default()), &mut effects);
            self.take(effects)?;
            self.settle()?;
            self.finish_section(extent)?;
        }
        Ok(())
    }

    pub(super) fn finish_section(&mut self, extent: u32) -> Result<(), String> {
        while self.mirror.scrubs().has_piece(extent) {
            let mut effects = Vec::new();
            self.begin_piece(extent, &mut effects);
            self.take(effects)?;
            self.settle()?;
        }
        self.settle()
    }

    /// Scrubs a volume at rest, corrupts blocks, and scrubs the volume again.
    pub(super) fn rot_some(&mut self) -> Result<(), String> {
        if self.settings.rot == Rot::None {
            return Ok(());
        }
        self.is_resting = true;
        self.make_up()?;
        self.scrub_all()?;
        let is_alone = self.settings.replicas == 1;
        if self.settings.rot == Rot::AtRest {
            (0..40).for_each(|_| self.rot_a_block(self.now as u32 % EXTENTS));
            if self.random.chance(1, 2) {
                self.crash()?;
                self.make_up()?;
            }
            self.scrub_all()?;
            if is_alone && self.scrubs.rotten.iter().any(|(extent, block)| !self.is_reported(*extent, *block))
            {
                return Err("a block that rotted is not reported".to_owned());
            }
        }
        // With more than one replica, the second scrub has repaired all corrupt blocks.
        if !is_alone {
            self.scrubs.rotten.clear();
        }
        Ok(())
    }

    pub(super) fn is_reported(&self, extent: u32, block: u32) -> bool {
        self.mirror.damaged(extent).iter().any(|damaged| damaged.block == block)
    }
}
