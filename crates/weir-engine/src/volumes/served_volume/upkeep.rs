//! Upkeep: work that is due at a time, and work that was deferred until the volume is quiet.

use weir_engine_interface::NO_HOME;
use weir_types::ExtentIndex;
use weir_types::bounds::EXTENT_BYTES;
use weir_volume::geometry::extent_count;

use super::ServedVolume;
use crate::volumes::lifecycle::{NewSize, answer};
use crate::volumes::volume_desk::Desk;

impl ServedVolume {
    /// Begins the resync of a volume that may have several replicas.
    pub fn begin_resync(&mut self, desk: &mut Desk<'_>) {
        self.disk(desk).set_read_costs();
        let (resync, mut resync_desk) = self.resync(desk);
        resync.begin(&mut resync_desk);
        self.open.status.publish_replicas(&self.mirror);
        self.go_on_with_resync(desk);
    }

    /// Takes all steps for the volume's replicas that can be taken now.
    pub fn go_on_with_resync(&mut self, desk: &mut Desk<'_>) {
        let (resync, mut desk) = self.resync(desk);
        resync.go_on(&mut desk);
    }

    /// The obstacle to the promotion of an extent's replica may be gone, so the replica is checked again at
    /// once.
    pub(super) fn look_at_replicas_again(&mut self, extent: ExtentIndex, desk: &mut Desk<'_>) {
        if !self.mirror.wanting(extent).is_empty() {
            self.resync.look_at(extent);
            self.go_on_with_resync(desk);
        }
    }

    /// Retries refused writes of replica metadata and checksum headers.
    pub fn retry_refused(&mut self, desk: &mut Desk<'_>) {
        if !self.is_ending() && !desk.io.is_stopping {
            self.mirror.retry_refused(&mut self.effects);
        }
        self.metadata.retry(desk.io.now_ns);
    }

    /// Publishes the number of bytes left to resync.
    pub fn publish_resync(&self) {
        self.resync.publish(&self.mirror, &self.open.statistics);
    }

    /// Does the work that was deferred until the volume is quiet. True if the volume is closed.
    pub fn settle(&mut self, has_clients: bool, desk: &mut Desk<'_>) -> bool {
        if let Some((resizing, done)) = self.life.take_resize() {
            let is_growing = resizing.size_bytes >= self.size_bytes;
            let is_in_use = !is_growing && (has_clients || !self.is_quiet());
            if is_in_use || !self.are_journals_cut(&resizing, desk) {
                self.life.resize(resizing, done);
                return false;
            }
            self.take_size(resizing, desk);
            answer(done);
        }
        if has_clients || !self.is_quiet() {
            return false;
        }
        self.life.take_read_only().into_iter().for_each(answer);
        self.life.is_closing() && self.journals.stop()
    }

    /// Makes journals forget the data that a shrinking volume loses. True once they have forgotten it for good.
    fn are_journals_cut(&mut self, resizing: &NewSize, desk: &mut Desk<'_>) -> bool {
        let (old_bytes, size_bytes) = (self.size_bytes, resizing.size_bytes);
        if size_bytes < old_bytes && self.life.begin_cutting() {
            self.disk(desk).cut_journals(size_bytes);
        }
        !self.journals.is_cutting(extent_count(size_bytes.min(old_bytes)))
    }

    fn take_size(&mut self, mut resizing: NewSize, desk: &mut Desk<'_>) {
        let homes = self.disk(desk).add_new_homes(std::mem::take(&mut resizing.homes));
        for home in resizing.replicas.iter_mut().flatten().filter(|home| **home != NO_HOME) {
            *home = homes[usize::from(*home)];
        }
        let bindings = std::mem::take(&mut resizing.bindings);
        self.set_size(resizing);
        self.life.end_cutting();
        let mut disk = self.disk(desk);
        disk.attach_new(bindings);
        disk.set_read_costs();
        if self.mirror.has_replicas() {
            self.open.status.publish_replicas(&self.mirror);
            desk.schedules.resyncs.add(self.index);
            desk.schedules.resyncs.wake_at(desk.io.now_ns);
        }
    }

    /// Takes over a new size. Files beyond the end are closed.
    fn set_size(&mut self, resizing: NewSize) {
        let NewSize { size_bytes, replicas, recovered_extents, .. } = resizing;
        let tail = size_bytes % EXTENT_BYTES;
        if size_bytes < self.size_bytes && tail > 0 {
            // The files are cut there.
            self.mirror.invalidate_checksums_from(ExtentIndex::holding(size_bytes), tail as u32);
        }
        self.size_bytes = size_bytes;
        self.set_layout(replicas);
        self.mirror.resize(size_bytes, recovered_extents);
        self.metadata.truncate(self.mirror.extents());
        self.files.truncate(self.mirror.extents());
        self.resync.look_at_all(&self.mirror);
        self.open.publish_all_checksums(&self.mirror);
    }

    /// Lets go of what the volume shares with others, because it is closed.
    pub fn leave(&mut self, desk: &mut Desk<'_>) {
        desk.schedules.resyncs.remove(self.index);
        self.files.homes.drain(..).for_each(|mut home| home.queue.leave());
        desk.schedules.coalesced_flushes.forget(self.index);
        desk.schedules.scrubs.forget(self.index);
        self.scrub.interrupt();
        desk.io.alarms.clear_volume(self.id);
    }
}
