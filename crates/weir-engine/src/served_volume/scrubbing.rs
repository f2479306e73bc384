//! The scrub of a volume: its sections, and what is found in them.

use super::{BackgroundDesk, ServedVolume};

use std::sync::Arc;

use weir_engine_interface::{ScrubEnd, ScrubProgress};
use weir_qos::Pace;
use weir_types::BackgroundPolicy;
use weir_types::bounds::{BACKGROUND_OPERATIONS_MAX, BLOCK_BYTES, PIECE_BYTES};
use weir_volume::geometry::Part;
use weir_volume::mirror::{MirrorId, SECTIONS, SectionReport, Slots};
use weir_volume::{Content, OperationId};

use crate::operations::{Owner, Purpose};
use crate::scrubbing::{KIND, PIECE, RETRY_NS, Scrubbing, Scrubs};
use crate::scrubbing::{sum_of, zero_sum};
use crate::token::VolumeIndex;

impl ServedVolume {
    /// Begins a scrub, unless one runs or waits.
    pub fn begin_scrub(&mut self, progress: Arc<ScrubProgress>) -> bool {
        if self.scrubbing.is_some() {
            return false;
        }
        let sections = u64::from(self.mirror.extents()) * u64::from(SECTIONS);
        progress.expects(sections);
        self.scrubbing = Some(Scrubbing {
            progress,
            extent: 0,
            section: 0,
            is_in_section: false,
            pieces_under_way: 0,
            rests_until_ns: 0,
            ending: None,
        });
        true
    }

    /// Ends the scrub, once its pieces under way have ended. True if there is one.
    pub fn end_scrub(&mut self, end: ScrubEnd) -> bool {
        let Some(scrubbing) = &mut self.scrubbing else { return false };
        scrubbing.ending.get_or_insert(end);
        self.mirror.scrubs().abandon_section(scrubbing.extent, &mut self.effects);
        true
    }

    /// Requests the pieces that can be examined now from the mirror. The caller has to carry out the
    /// volume's effects.
    pub fn ask_for_pieces(&mut self, index: VolumeIndex, scrubs: &mut Scrubs, desk: &mut BackgroundDesk<'_>) {
        while scrubs.is_running(index) || self.is_to_end_scrub() {
            if !self.enter_section() {
                if self.scrubbing.is_none() {
                    scrubs.ended(index, desk.io.now_ns);
                }
                return;
            }
            let Some(scrubbing) = &self.scrubbing else { return };
            let is_full = scrubbing.pieces_under_way >= BACKGROUND_OPERATIONS_MAX;
            if is_full || !self.mirror.scrubs().has_piece(scrubbing.extent) {
                return;
            }
            if let Err(rest_until_ns) = self.begin_piece(desk) {
                return scrubs.wake_at(rest_until_ns);
            }
        }
    }

    /// Begins to examine a piece. Answers the time to try again if that may not begin now.
    fn begin_piece(&mut self, desk: &mut BackgroundDesk<'_>) -> Result<(), u64> {
        let (now_ns, policy) = (desk.io.now_ns, desk.policy);
        let retry_ns = now_ns + RETRY_NS;
        let Some(scrubbing) = &self.scrubbing else { return Ok(()) };
        let extent = scrubbing.extent;
        if self.is_ending() {
            return Err(retry_ns);
        }
        let homes = self.homes_read(extent);
        let ready = homes.iter().map(|home| self.scrub_pace(*home, now_ns, policy, |pace| pace.ready_ns()));
        let ready_ns = ready.max().unwrap_or(0).max(scrubbing.rests_until_ns);
        if ready_ns > now_ns {
            return Err(ready_ns);
        }
        let Some(scrubbing) = &mut self.scrubbing else { return Ok(()) };
        let Some(memory) = desk.io.pool.take(PIECE_BYTES as usize) else {
            scrubbing.rests_until_ns = retry_ns;
            return Err(retry_ns);
        };
        if let Some(id) = self.mirror.scrubs().begin_piece(extent, &mut self.effects) {
            scrubbing.pieces_under_way += 1;
            let part = Part { extent, offset: 0, length: PIECE_BYTES as u32, position: 0 };
            let owner = Owner::new(Purpose::Scrubbing { extent }, part, Some(memory.into()));
            self.operations.set_owner(id, owner);
            for home in homes {
                self.scrub_pace(home, now_ns, policy, |pace| pace.asked(now_ns, PIECE));
            }
        }
        Ok(())
    }

    /// A piece was examined.
    pub fn piece_scrubbed(&mut self, extent: u32, now_ns: u64, policy: BackgroundPolicy) {
        for home in self.homes_read(extent) {
            let moved = |pace: &mut Pace| pace.moved(now_ns, PIECE, PIECE_BYTES as u32);
            self.scrub_pace(home, now_ns, policy, moved);
        }
        if let Some(scrubbing) = &mut self.scrubbing {
            scrubbing.pieces_under_way -= 1;
        }
    }

    /// A section was scrubbed, or abandoned.
    pub fn section_scrubbed(&mut self, extent: u32, report: &SectionReport) {
        self.tell_of(extent, report);
        self.publish_checksums(extent);
        if let Some(scrubbing) = &mut self.scrubbing {
            scrubbing.progress.take(report);
            self.open.statistics.checksums.scrubbed(report);
            scrubbing.section_done();
        }
    }

    /// Acts on the pace of scrubs on a home's drive.
    fn scrub_pace<T>(
        &self,
        home: usize,
        now_ns: u64,
        policy: BackgroundPolicy,
        act: impl FnOnce(&mut Pace) -> T,
    ) -> T {
        self.files.homes[home].queue.shared().with_pace((KIND, policy), now_ns, act)
    }

    /// Ends the scrub of a volume that is closed.
    pub fn drop_scrub(&mut self) {
        if let Some(scrubbing) = self.scrubbing.take() {
            scrubbing.progress.ended(scrubbing.ending.unwrap_or(ScrubEnd::Interrupted));
        }
    }

    /// True if the scrub is only to be ended.
    fn is_to_end_scrub(&self) -> bool {
        self.scrubbing.as_ref().is_some_and(|scrubbing| scrubbing.ending.is_some())
    }

    /// Enters the next section if none is being scrubbed. False if no section is left.
    fn enter_section(&mut self) -> bool {
        while let Some(scrubbing) = &mut self.scrubbing {
            if scrubbing.is_in_section {
                return true;
            }
            let is_done = scrubbing.extent >= self.mirror.extents();
            if let Some(end) = scrubbing.ending.or(is_done.then_some(ScrubEnd::Completed)) {
                scrubbing.progress.ended(end);
                self.scrubbing = None;
                return false;
            }
            let (extent, section) = (scrubbing.extent, scrubbing.section);
            match self.mirror.scrubs().begin_section(extent, section, zero_sum(), &mut self.effects) {
                true => scrubbing.is_in_section = true,
                false => scrubbing.pass_over_extent(),
            }
        }
        false
    }

    /// The homes of the readable replicas of an extent.
    fn homes_read(&self, extent: u32) -> Vec<usize> {
        let slots: Slots = self.mirror.readable(extent, 0, 0);
        slots.iter().filter_map(|slot| self.files.home_of(slot, extent)).collect()
    }

    /// Hands the checksums of the blocks that were read to the mirror.
    pub fn examine(&mut self, id: MirrorId, (slot, operation): (usize, OperationId), content: Content) {
        let (_, blocks) = self.mirror.scrubs().last_read(id);
        let block_checksums: Vec<u32> = match content {
            Content::Data => {
                let memory = self.operations.context(slot, operation).memory.as_ref();
                let read = memory.expect("what was read is there until it ends").filled();
                read.chunks_exact(BLOCK_BYTES as usize).take(blocks).map(sum_of).collect()
            }
            Content::Hole => vec![zero_sum(); blocks],
        };
        self.mirror.scrubs().examined(id, &block_checksums, &mut self.effects);
    }

    /// Logs the findings in a section.
    fn tell_of(&self, extent: u32, report: &SectionReport) {
        let volume = self.id;
        let at = |block: u32| u64::from(block) * BLOCK_BYTES;
        for (slot, found) in report.found.iter().enumerate().filter(|(_, found)| **found > 0) {
            let (repaired, home) = (report.repaired[slot], self.files.home_of(slot, extent));
            let drive = home.map(|home| self.files.homes[home].drive.to_string()).unwrap_or_default();
            let first_offset = report.first_found.map(at);
            tracing::warn!(%volume, extent, slot, drive, found, repaired, first_offset, "a replica had bad blocks");
        }
        if report.damaged > 0 {
            let (damaged, first_offset) = (report.damaged, report.first_damaged.map(at));
            tracing::error!(%volume, extent, damaged, first_offset, "blocks of which no replica is known to be good");
        }
    }
}
