//! Scrubbing: beginning the pieces of scrubs, and their ends.

use crate::operations::{Owner, Purpose};
use crate::reactor::Reactor;
use crate::scrubbing::{KIND, PIECE, RETRY_NS, ScrubEnd, ScrubProgress, Scrubbing};
use crate::token::VolumeIndex;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use weir_qos::Pace;
use weir_types::VolumeId;
use weir_types::bounds::{BACKGROUND_OPERATIONS_MAX, PIECE_BYTES, SCRUBS_PER_REACTOR_MAX};
use weir_volume::geometry::Part;
use weir_volume::mirror::{SECTIONS, SectionReport};

impl Reactor {
    /// Begins to scrub a volume, now or after others.
    pub(crate) fn begin_scrub(&mut self, id: VolumeId, progress: Arc<ScrubProgress>, done: SyncSender<bool>) {
        let known = self.by_id.get(&id).copied();
        let index = known.filter(|index| !self.volumes[*index].is_ending() && !self.io.is_stopping);
        let is_begun = index.is_some_and(|index| self.volumes[index].scrubbing.is_none());
        if let Some(index) = index.filter(|_| is_begun) {
            let volume = &mut self.volumes[index];
            let sections = u64::from(volume.mirror.extents()) * u64::from(SECTIONS);
            progress.sections_left.store(sections, Relaxed);
            volume.scrubbing = Some(Scrubbing {
                progress,
                extent: 0,
                section: 0,
                is_in_section: false,
                pieces_under_way: 0,
                rests_until_ns: 0,
                ending: None,
            });
            self.scrubs.waiting.push_back(index);
            self.wake_scrubs();
        }
        // The caller may have stopped waiting.
        let _ = done.send(is_begun);
    }

    /// Cancels the scrub of a volume.
    pub(crate) fn end_scrub(&mut self, id: VolumeId) {
        if let Some(&index) = self.by_id.get(&id) {
            self.end_scrub_of(index, ScrubEnd::Cancelled);
        }
    }

    /// Interrupts the scrub of a volume that is about to close or to become smaller.
    pub(crate) fn interrupt_scrub(&mut self, index: VolumeIndex) {
        self.end_scrub_of(index, ScrubEnd::Interrupted);
    }

    /// Interrupts all scrubs, because the daemon ends.
    pub(crate) fn interrupt_scrubs(&mut self) {
        let all: Vec<_> = self.scrubs.running.iter().chain(&self.scrubs.waiting).copied().collect();
        all.into_iter().for_each(|index| self.interrupt_scrub(index));
    }

    fn end_scrub_of(&mut self, index: VolumeIndex, end: ScrubEnd) {
        let volume = &mut self.volumes[index];
        let Some(scrubbing) = &mut volume.scrubbing else { return };
        scrubbing.ending.get_or_insert(end);
        volume.mirror.scrubs().abandon_section(scrubbing.extent, &mut volume.effects);
        self.ask_for_pieces(index);
        self.carry_out(index);
    }

    /// Schedules a check of the scrubs in this round.
    pub(crate) fn wake_scrubs(&mut self) {
        self.wake_scrubs_at(self.io.now_ns);
    }

    fn wake_scrubs_at(&mut self, at_ns: u64) {
        self.scrubs.wake_ns = Some(self.scrubs.wake_ns.map_or(at_ns, |wake_ns| wake_ns.min(at_ns)));
    }

    /// Does all work that is due for scrubs.
    pub(crate) fn look_at_scrubs(&mut self) {
        if self.scrubs.wake_ns.is_none_or(|wake_ns| wake_ns > self.io.now_ns) {
            return;
        }
        self.scrubs.wake_ns = None;
        while self.scrubs.running.len() < SCRUBS_PER_REACTOR_MAX
            && let Some(index) = self.scrubs.waiting.pop_front()
        {
            self.scrubs.running.insert(index);
            if let Some(scrubbing) = &self.volumes[index].scrubbing {
                scrubbing.progress.started_ns.store(self.io.now_ns.max(1), Relaxed);
            }
        }
        for index in self.scrubs.running.clone() {
            self.ask_for_pieces(index);
            self.carry_out(index);
            self.settle_volume(index);
        }
    }

    /// Requests the pieces that can be examined now from the mirror. The caller has to carry out the
    /// volume's effects.
    pub(crate) fn ask_for_pieces(&mut self, index: VolumeIndex) {
        while self.scrubs.running.contains(&index) || self.volumes[index].is_to_end_scrub() {
            if !self.volumes[index].enter_section() {
                return self.forget_scrub_if_ended(index);
            }
            let volume = &mut self.volumes[index];
            let Some(scrubbing) = &volume.scrubbing else { return };
            let is_full = scrubbing.pieces_under_way >= BACKGROUND_OPERATIONS_MAX;
            if is_full || !volume.mirror.scrubs().has_piece(scrubbing.extent) || !self.begin_piece(index) {
                return;
            }
        }
    }

    fn forget_scrub_if_ended(&mut self, index: VolumeIndex) {
        if self.volumes[index].scrubbing.is_none() {
            self.scrubs.forget(index);
            if !self.scrubs.waiting.is_empty() {
                self.wake_scrubs();
            }
        }
    }

    /// Begins to examine a piece, if that may begin now.
    fn begin_piece(&mut self, index: VolumeIndex) -> bool {
        let (now_ns, policy) = (self.io.now_ns, self.policies.of(KIND));
        let volume = &mut self.volumes[index];
        let Some(scrubbing) = &volume.scrubbing else { return false };
        let extent = scrubbing.extent;
        if volume.is_ending() {
            self.wake_scrubs_at(now_ns + RETRY_NS);
            return false;
        }
        let homes = volume.homes_read(extent);
        let ready = homes.iter().map(|home| {
            volume.files.homes[*home]
                .queue
                .shared()
                .with_pace((KIND, policy), now_ns, |pace: &mut Pace| pace.ready_ns())
        });
        let Some(scrubbing) = &mut volume.scrubbing else { return false };
        let ready_ns = ready.max().unwrap_or(0).max(scrubbing.rests_until_ns);
        if ready_ns > now_ns {
            self.wake_scrubs_at(ready_ns);
            return false;
        }
        let Some(memory) = self.io.pool.take(PIECE_BYTES as usize) else {
            scrubbing.rests_until_ns = now_ns + RETRY_NS;
            self.wake_scrubs_at(now_ns + RETRY_NS);
            return false;
        };
        if let Some(id) = volume.mirror.scrubs().begin_piece(extent, &mut volume.effects) {
            scrubbing.pieces_under_way += 1;
            let part = Part { extent, offset: 0, length: PIECE_BYTES as u32, position: 0 };
            volume
                .operations
                .set_owner(id, Owner::new(Purpose::Scrubbing { extent }, part, Some(memory.into())));
            for home in homes {
                volume.files.homes[home]
                    .queue
                    .shared()
                    .with_pace((KIND, policy), now_ns, |pace| pace.asked(now_ns, PIECE));
            }
        }
        true
    }

    /// A piece was examined.
    pub(crate) fn piece_scrubbed(&mut self, index: VolumeIndex, extent: u32, owner: Owner) {
        let (now_ns, policy) = (self.io.now_ns, self.policies.of(KIND));
        drop(owner);
        let volume = &mut self.volumes[index];
        for home in volume.homes_read(extent) {
            let moved = |pace: &mut Pace| pace.moved(now_ns, PIECE, PIECE_BYTES as u32);
            volume.files.homes[home].queue.shared().with_pace((KIND, policy), now_ns, moved);
        }
        if let Some(scrubbing) = &mut volume.scrubbing {
            scrubbing.pieces_under_way -= 1;
        }
        self.ask_for_pieces(index);
    }

    /// A section was scrubbed, or abandoned.
    pub(crate) fn section_scrubbed(&mut self, index: VolumeIndex, extent: u32, report: &SectionReport) {
        let volume = &mut self.volumes[index];
        volume.tell_of(extent, report);
        volume.publish_checksums(extent);
        if let Some(scrubbing) = &mut volume.scrubbing {
            scrubbing.progress.take(report);
            volume.statistics.checksums.scrubbed(report);
            scrubbing.section_done();
        }
        self.ask_for_pieces(index);
    }
}
