//! Scrubbing: orders of control, and letting the scrubs of volumes go on.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use weir_engine_interface::{ScrubEnd, ScrubProgress};
use weir_types::VolumeId;

use crate::reactor::Reactor;
use crate::scrubbing::KIND;
use crate::served_volume::BackgroundDesk;
use crate::token::VolumeIndex;

impl Reactor {
    /// Begins to scrub a volume, now or after others.
    pub(crate) fn begin_scrub(&mut self, id: VolumeId, progress: Arc<ScrubProgress>, done: SyncSender<bool>) {
        let known = self.by_id.get(&id).copied();
        let index = known.filter(|index| !self.volumes[*index].is_ending() && !self.io.is_stopping);
        let begun = index.filter(|index| self.volumes[*index].begin_scrub(progress));
        begun.into_iter().for_each(|index| self.scrubs.add(index, self.io.now_ns));
        // The caller may have stopped waiting.
        let _ = done.send(begun.is_some());
    }

    /// Ends the scrub of a volume, if there is one.
    pub(crate) fn end_scrub(&mut self, index: VolumeIndex, end: ScrubEnd) {
        if self.volumes[index].end_scrub(end) {
            self.ask_for_pieces(index);
            self.carry_out(index);
        }
    }

    /// Does all work that is due for scrubs.
    pub(crate) fn look_at_scrubs(&mut self) {
        if !self.scrubs.take_due(self.io.now_ns) {
            return;
        }
        while let Some(index) = self.scrubs.begin_next() {
            if let Some(scrubbing) = &self.volumes[index].scrubbing {
                scrubbing.progress.started(self.io.now_ns);
            }
        }
        for index in self.scrubs.running() {
            self.ask_for_pieces(index);
            self.carry_out(index);
            self.settle_volume(index);
        }
    }

    /// Requests the pieces of a volume that can be examined now. The caller has to carry out the volume's
    /// effects.
    pub(crate) fn ask_for_pieces(&mut self, index: VolumeIndex) {
        let mut desk = BackgroundDesk { policy: self.policies.of(KIND), io: &mut self.io };
        self.volumes[index].ask_for_pieces(index, &mut self.scrubs, &mut desk);
    }
}
