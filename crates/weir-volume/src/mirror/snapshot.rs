//! Snapshots in progress: taking the data of a volume at one instant, for a snapshot or clone, while clients
//! change it.
//!
//! * At that instant all regions of all extents are owed to the snapshot.
//! * A change of an owed region waits until the region is in the snapshot. The executor shares the region's
//!   extents with the files of the snapshot, or duplicates its data.
//! * Regions that changes wait for come first, so that a change waits for a few regions only, whatever the
//!   size of the volume.
//! * A change that began before the instant is part of the snapshot. So the executor takes a region only when
//!   no change is under way in it.
//!
//! To take several volumes at the same instant, the caller quiesces all of them first: a quiesced volume
//! begins no change. This module knows nothing of other volumes.

use std::collections::VecDeque;
use std::ops::Range;

use weir_types::bounds::REGION_BYTES;

use super::extent::Slots;
use super::regions::{RegionSet, regions_of};
use super::{Effect, Mirror, MirrorId};
use crate::action::Request;

/// A snapshot in progress of all extents.
#[derive(Debug)]
pub(super) struct Snapshot {
    extents: Vec<Owed>,
    /// Extents with changes that wait for the snapshot.
    urgent: VecDeque<u32>,
    /// First extent that owes any region.
    next: u32,
    /// Extent and regions that the executor is working on.
    under_way: Option<(u32, Range<u32>)>,
    /// Number of owed regions in all extents.
    regions_left: u64,
}

/// Owed regions of an extent, and the replicas that they are taken from.
#[derive(Debug)]
struct Owed {
    slots: Slots,
    regions: RegionSet,
}

/// Error: an extent has no replica that a snapshot could be taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("extent {0} has no replica that has everything and can be reached")]
pub struct NothingToSnapshot(pub u32);

impl Mirror {
    /// Quiesces the volume: no change begins until [`Mirror::release`] or [`Mirror::begin_snapshot`].
    pub fn quiesce(&mut self) {
        self.is_quiesced = true;
    }

    /// Ends quiescing: changes may begin again.
    pub fn release(&mut self, effects: &mut Vec<Effect>) {
        self.is_quiesced = false;
        (0..self.extents()).for_each(|extent| self.enqueue_again(extent, effects));
    }

    /// True while a snapshot is in progress, or the volume is quiesced for one.
    pub fn has_snapshot_in_progress(&self) -> bool {
        self.is_quiesced || self.snapshot.is_some()
    }

    /// Bytes that are not in the snapshot yet.
    pub fn snapshot_bytes_left(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.regions_left * REGION_BYTES)
    }

    /// Begins a snapshot of the volume's present data: everything acknowledged, and a part of the changes
    /// under way. It continues by [`Effect::Snapshot`] and ends with [`Effect::SnapshotEnded`]. One snapshot
    /// is in progress at a time.
    ///
    /// # Errors
    /// If an extent has no replica that a snapshot could be taken from; then nothing was begun. In either
    /// case the volume is no longer quiesced.
    pub fn begin_snapshot(&mut self, effects: &mut Vec<Effect>) -> Result<(), NothingToSnapshot> {
        assert!(self.snapshot.is_none(), "one snapshot is in progress at a time");
        let owed: Result<Vec<Owed>, NothingToSnapshot> =
            (0..self.extents()).map(|extent| self.owed_of(extent)).collect();
        let begun = owed.map(|extents| {
            let regions_left = extents.len() as u64 * u64::from(super::REGIONS);
            let (urgent, next, under_way) = (VecDeque::new(), 0, None);
            self.snapshot = Some(Snapshot { extents, urgent, next, under_way, regions_left });
        });
        self.release(effects);
        self.go_on_with_snapshot(effects);
        begun
    }

    fn owed_of(&self, index: u32) -> Result<Owed, NothingToSnapshot> {
        let slots = self.alike(index);
        if slots.is_empty() {
            Err(NothingToSnapshot(index))
        } else {
            Ok(Owed { slots, regions: RegionSet::all() })
        }
    }

    /// Replicas that have everything in all regions.
    fn alike(&self, index: u32) -> Slots {
        let extent = &self.extents[index as usize];
        extent.in_sync().filter(|slot| extent.behind[slot].is_empty())
    }

    /// True if a change must wait for a snapshot.
    pub(super) fn is_owed(&mut self, request: &Request) -> bool {
        let Some(snapshot) = &mut self.snapshot else { return self.is_quiesced };
        let owed = &snapshot.extents[request.extent as usize].regions;
        let is_owed = regions_of(request.offset, request.length).any(|region| owed.contains(region));
        if is_owed && !snapshot.urgent.contains(&request.extent) {
            snapshot.urgent.push_back(request.extent);
        }
        self.is_quiesced || is_owed
    }

    /// Gives the executor the next regions, if it is idle.
    pub(super) fn go_on_with_snapshot(&mut self, effects: &mut Vec<Effect>) {
        if self.snapshot.as_ref().is_none_or(|snapshot| snapshot.under_way.is_some()) {
            return;
        }
        let Some((extent, regions)) = self.next_urgent().or_else(|| self.next_at_leisure()) else {
            return self.end_snapshot_if_done(effects);
        };
        let alike = self.alike(extent);
        let snapshot = self.snapshot.as_mut().expect("it was just looked at");
        let owed = &mut snapshot.extents[extent as usize];
        // A change that failed may have left some replicas different.
        owed.slots = owed.slots.iter().filter(|slot| alike.contains(*slot)).collect();
        if owed.slots.is_empty() {
            return self.abandon_snapshot(effects);
        }
        let (offset, length) =
            (regions.start * REGION_BYTES as u32, regions.len() as u32 * REGION_BYTES as u32);
        effects.push(Effect::Snapshot { extent, slots: owed.slots, offset, length });
        snapshot.under_way = Some((extent, regions));
    }

    fn end_snapshot_if_done(&mut self, effects: &mut Vec<Effect>) {
        if let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.regions_left == 0) {
            let replicas = snapshot.extents.iter().map(|owed| owed.slots).collect();
            effects.push(Effect::SnapshotEnded { replicas: Some(replicas) });
        }
    }

    /// Next regions that a change waits for.
    fn next_urgent(&mut self) -> Option<(u32, Range<u32>)> {
        let snapshot = self.snapshot.as_mut()?;
        let waits = |extent: &u32| !self.extents[*extent as usize].waiting.is_empty();
        snapshot.urgent.retain(waits);
        // Extents take turns, so that changes of one extent do not wait for all changes of another.
        let turns = snapshot.urgent.len();
        (0..turns).find_map(|_| {
            let extent = self.snapshot.as_mut()?.urgent.pop_front()?;
            self.snapshot.as_mut()?.urgent.push_back(extent);
            Some((extent, self.waited_for(extent)?))
        })
    }

    /// Regions of an extent, beginning with the first one that a waiting change needs and that can be taken
    /// now.
    fn waited_for(&self, extent: u32) -> Option<Range<u32>> {
        let (owed, busy) = (&self.snapshot.as_ref()?.extents[extent as usize].regions, self.changing(extent));
        let can_be_in_snapshot = |region: u32| owed.contains(region) && !busy.contains(region);
        let mut waiting = self.extents[extent as usize].waiting.iter();
        let first = waiting.find_map(|id| {
            let request = self.operations[id.0 as usize]?.request;
            regions_of(request.offset, request.length).find(|region| can_be_in_snapshot(*region))
        });
        // The regions behind it are taken along as far as they can be at once: other changes will wait for
        // them.
        run_in(first?..super::REGIONS, can_be_in_snapshot)
    }

    /// The first run of regions that can be taken now, from the first extent that has one.
    fn next_at_leisure(&mut self) -> Option<(u32, Range<u32>)> {
        let snapshot = self.snapshot.as_mut()?;
        let is_done =
            |extent: u32| snapshot.extents.get(extent as usize).is_some_and(|o| o.regions.is_empty());
        let next = (snapshot.next..).find(|extent| !is_done(*extent))?;
        snapshot.next = next;
        let snapshot = self.snapshot.as_ref()?;
        (next..self.extents()).find_map(|extent| {
            let (owed, busy) = (&snapshot.extents[extent as usize].regions, self.changing(extent));
            let first = owed.iter().next()?;
            let is_free = |region: u32| owed.contains(region) && !busy.contains(region);
            Some((extent, run_in(first..super::REGIONS, is_free)?))
        })
    }

    /// Regions of an extent in which changes are under way. Resync steps do not count, because they change
    /// only replicas that are not in the snapshot.
    fn changing(&self, extent: u32) -> RegionSet {
        let running = self.extents[extent as usize].running.iter();
        let changes =
            running.filter_map(|id| self.operations[id.0 as usize]).filter(|one| one.step.is_none());
        changes.flat_map(|change| regions_of(change.request.offset, change.request.length)).collect()
    }

    /// Takes the executor's progress on [`Effect::Snapshot`]: whole regions from its offset up to `end`, an
    /// offset in the extent. The `failed` replicas have none of it.
    pub fn snapshot_step_done(&mut self, end: u32, failed: Slots, effects: &mut Vec<Effect>) {
        let Some(snapshot) = &mut self.snapshot else { return };
        let (extent, regions) =
            snapshot.under_way.take().expect("only requested ranges are copied to a snapshot");
        let owed = &mut snapshot.extents[extent as usize];
        failed.iter().for_each(|slot| owed.slots.remove(slot));
        if owed.slots.is_empty() {
            return self.abandon_snapshot(effects);
        }
        let end = (end / REGION_BYTES as u32).clamp(regions.start, regions.end);
        owed.regions.remove_all(regions.start..end);
        snapshot.regions_left -= u64::from(end - regions.start);
        self.enqueue_again(extent, effects);
        self.go_on_with_snapshot(effects);
    }

    /// Abandons the snapshot in progress, if there is one, so that no change waits for it.
    pub fn abandon_snapshot(&mut self, effects: &mut Vec<Effect>) {
        if self.snapshot.take().is_some() {
            effects.push(Effect::SnapshotEnded { replicas: None });
        }
        self.release(effects);
    }

    /// Lets waiting changes try again, in order.
    pub(super) fn enqueue_again(&mut self, extent: u32, effects: &mut Vec<Effect>) {
        let waiting = std::mem::take(&mut self.extents[extent as usize].waiting);
        waiting.into_iter().for_each(|id: MirrorId| self.enqueue(id, effects));
    }
}

/// The first run of regions in a range for which `holds` is true.
fn run_in(range: Range<u32>, holds: impl Fn(u32) -> bool) -> Option<Range<u32>> {
    let start = range.clone().find(|region| holds(*region))?;
    let end = (start..range.end).find(|region| !holds(*region)).unwrap_or(range.end);
    Some(start..end)
}
