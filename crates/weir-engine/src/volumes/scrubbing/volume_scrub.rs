//! The scrub of one volume: its sections, and what is found in them.

use std::sync::Arc;

use weir_engine_interface::{OpenVolume, ScrubEnd, ScrubProgress};
use weir_qos::Pace;
use weir_types::bounds::{BACKGROUND_OPERATIONS_MAX, BLOCK_BYTES, PIECE_BYTES};
use weir_types::{BackgroundPolicy, ExtentIndex, VolumeId};
use weir_volume::geometry::Part;
use weir_volume::mirror::{Effect, MirrorId, SECTIONS, SectionReport, Slots};
use weir_volume::{Content, Mirror, OperationId};

use super::{KIND, PIECE, RETRY_NS, Scrubbing, Scrubs, sum_of, zero_sum};
use crate::io::Io;
use crate::token::VolumeIndex;
use crate::volumes::operations::{Operations, Owner, Purpose};
use crate::volumes::volume_files::VolumeFiles;

/// What the scrub of a volume may use while it works.
pub struct Desk<'a> {
    pub io: &'a mut Io,
    /// The policy of scrubs.
    pub policy: BackgroundPolicy,
    pub scrubs: &'a mut Scrubs,
    pub files: &'a VolumeFiles,
    pub operations: &'a mut Operations,
    /// Where the volume's status and statistics are published.
    pub open: &'a OpenVolume,
    pub mirror: &'a mut Mirror,
    /// Effects of the mirror, which the caller has to carry out.
    pub effects: &'a mut Vec<Effect>,
    /// A command waits until the volume is quiet.
    pub is_ending: bool,
}

/// The scrub of a volume that runs or waits for others, if there is one.
pub struct VolumeScrub {
    volume: VolumeIndex,
    id: VolumeId,
    current: Option<Scrubbing>,
}

impl VolumeScrub {
    pub fn new(volume: VolumeIndex, id: VolumeId) -> VolumeScrub {
        VolumeScrub { volume, id, current: None }
    }

    /// Begins a scrub, unless one runs or waits.
    pub fn begin(&mut self, progress: Arc<ScrubProgress>, desk: &mut Desk<'_>) -> bool {
        if self.current.is_some() {
            return false;
        }
        let sections = u64::from(desk.mirror.extents()) * u64::from(SECTIONS);
        progress.expects(sections);
        self.current = Some(Scrubbing {
            progress,
            extent: ExtentIndex(0),
            section: 0,
            is_in_section: false,
            pieces_under_way: 0,
            rests_until_ns: 0,
            ending: None,
        });
        desk.scrubs.add(self.volume, desk.io.now_ns);
        true
    }

    /// The scrub's turn has come.
    pub fn started(&self, now_ns: u64) {
        if let Some(scrubbing) = &self.current {
            scrubbing.progress.started(now_ns);
        }
    }

    /// Ends the scrub, if there is one, once its pieces under way have ended.
    pub fn end(&mut self, end: ScrubEnd, desk: &mut Desk<'_>) {
        if let Some(scrubbing) = &mut self.current {
            scrubbing.ending.get_or_insert(end);
            desk.mirror.scrubs().abandon_section(scrubbing.extent, desk.effects);
            self.go_on(desk);
        }
    }

    /// Requests the pieces that can be examined now from the mirror. The caller has to carry out the
    /// volume's effects.
    pub fn go_on(&mut self, desk: &mut Desk<'_>) {
        while desk.scrubs.is_running(self.volume) || self.is_to_end() {
            if !self.enter_section(desk) {
                if self.current.is_none() {
                    desk.scrubs.ended(self.volume, desk.io.now_ns);
                }
                return;
            }
            let Some(scrubbing) = &self.current else { return };
            let is_full = scrubbing.pieces_under_way >= BACKGROUND_OPERATIONS_MAX;
            if is_full || !desk.mirror.scrubs().has_piece(scrubbing.extent) {
                return;
            }
            if let Err(rest_until_ns) = self.begin_piece(desk) {
                return desk.scrubs.wake_at(rest_until_ns);
            }
        }
    }

    /// Begins to examine a piece. Answers the time to try again if that may not begin now.
    fn begin_piece(&mut self, desk: &mut Desk<'_>) -> Result<(), u64> {
        let now_ns = desk.io.now_ns;
        let retry_ns = now_ns + RETRY_NS;
        let Some(scrubbing) = &self.current else { return Ok(()) };
        let extent = scrubbing.extent;
        if desk.is_ending {
            return Err(retry_ns);
        }
        let homes = homes_read(extent, desk);
        let ready = homes.iter().map(|home| on_pace(*home, desk, |pace| pace.ready_ns()));
        let ready_ns = ready.max().unwrap_or(0).max(scrubbing.rests_until_ns);
        if ready_ns > now_ns {
            return Err(ready_ns);
        }
        let Some(scrubbing) = &mut self.current else { return Ok(()) };
        let Some(memory) = desk.io.pool.take(PIECE_BYTES as usize) else {
            scrubbing.rests_until_ns = retry_ns;
            return Err(retry_ns);
        };
        if let Some(id) = desk.mirror.scrubs().begin_piece(extent, desk.effects) {
            scrubbing.pieces_under_way += 1;
            let part = Part { extent, offset: 0, length: PIECE_BYTES as u32, position: 0 };
            let owner = Owner::new(Purpose::Scrubbing { extent }, part, Some(memory.into()));
            desk.operations.set_owner(id, owner);
            for home in homes {
                on_pace(home, desk, |pace| pace.asked(now_ns, PIECE));
            }
        }
        Ok(())
    }

    /// A piece was examined.
    pub fn piece_ended(&mut self, extent: ExtentIndex, desk: &mut Desk<'_>) {
        let now_ns = desk.io.now_ns;
        for home in homes_read(extent, desk) {
            on_pace(home, desk, |pace| pace.moved(now_ns, PIECE, PIECE_BYTES as u32));
        }
        if let Some(scrubbing) = &mut self.current {
            scrubbing.pieces_under_way -= 1;
        }
        self.go_on(desk);
    }

    /// A section was scrubbed, or abandoned.
    pub fn section_ended(&mut self, extent: ExtentIndex, report: &SectionReport, desk: &mut Desk<'_>) {
        self.tell_of(extent, report, desk.files);
        desk.open.publish_checksums(extent, desk.mirror);
        if let Some(scrubbing) = &mut self.current {
            scrubbing.progress.take(report);
            desk.open.statistics.checksums.scrubbed(report);
            scrubbing.section_done();
        }
        self.go_on(desk);
    }

    /// Ends the scrub of a volume that is closed.
    pub fn interrupt(&mut self) {
        if let Some(scrubbing) = self.current.take() {
            scrubbing.progress.ended(scrubbing.ending.unwrap_or(ScrubEnd::Interrupted));
        }
    }

    /// True if the scrub is only to be ended.
    fn is_to_end(&self) -> bool {
        self.current.as_ref().is_some_and(|scrubbing| scrubbing.ending.is_some())
    }

    /// Enters the next section if none is being scrubbed. False if no section is left.
    fn enter_section(&mut self, desk: &mut Desk<'_>) -> bool {
        while let Some(scrubbing) = &mut self.current {
            if scrubbing.is_in_section {
                return true;
            }
            let is_done = !scrubbing.extent.is_within(desk.mirror.extents());
            if let Some(end) = scrubbing.ending.or(is_done.then_some(ScrubEnd::Completed)) {
                scrubbing.progress.ended(end);
                self.current = None;
                return false;
            }
            let (extent, section) = (scrubbing.extent, scrubbing.section);
            match desk.mirror.scrubs().begin_section(extent, section, zero_sum(), desk.effects) {
                true => scrubbing.is_in_section = true,
                false => scrubbing.pass_over_extent(),
            }
        }
        false
    }

    /// Hands the checksums of the blocks that were read to the mirror.
    pub fn examine(
        &self,
        id: MirrorId,
        (slot, operation): (usize, OperationId),
        content: Content,
        desk: &mut Desk<'_>,
    ) {
        let (_, blocks) = desk.mirror.scrubs().last_read(id);
        let block_checksums: Vec<u32> = match content {
            Content::Data => {
                let memory = desk.operations.context(slot, operation).memory.as_ref();
                let read = memory.expect("what was read is there until it ends").filled();
                read.chunks_exact(BLOCK_BYTES as usize).take(blocks).map(sum_of).collect()
            }
            Content::Hole => vec![zero_sum(); blocks],
        };
        desk.mirror.scrubs().examined(id, &block_checksums, desk.effects);
    }

    /// Logs the findings in a section.
    fn tell_of(&self, extent: ExtentIndex, report: &SectionReport, files: &VolumeFiles) {
        let volume = self.id;
        let at = |block: u32| u64::from(block) * BLOCK_BYTES;
        for (slot, found) in report.found.iter().enumerate().filter(|(_, found)| **found > 0) {
            let (repaired, home) = (report.repaired[slot], files.home_of(slot, extent));
            let drive = home.map(|home| files.homes[home].drive.to_string()).unwrap_or_default();
            let first_offset = report.first_found.map(at);
            tracing::warn!(%volume, extent = extent.0, slot, drive, found, repaired, first_offset, "a replica had bad blocks");
        }
        if report.damaged > 0 {
            let (damaged, first_offset) = (report.damaged, report.first_damaged.map(at));
            tracing::error!(%volume, extent = extent.0, damaged, first_offset, "blocks of which no replica is known to be good");
        }
    }
}

/// Acts on the pace of scrubs on a home's drive.
fn on_pace<T>(home: usize, desk: &Desk<'_>, act: impl FnOnce(&mut Pace) -> T) -> T {
    desk.files.homes[home].queue.shared().with_pace((KIND, desk.policy), desk.io.now_ns, act)
}

/// The homes of the readable replicas of an extent.
fn homes_read(extent: ExtentIndex, desk: &Desk<'_>) -> Vec<usize> {
    let slots: Slots = desk.mirror.readable(extent, 0, 0);
    slots.iter().filter_map(|slot| desk.files.home_of(slot, extent)).collect()
}
