//! Snapshots in progress, and the quiesce before one: taking the data that a volume had at one instant, for a
//! snapshot or clone, while clients change it.
//!
//! * At that instant all regions of all extents are owed to the snapshot.
//! * A change of an owed region waits until the region is in the snapshot. The executor shares the region's
//!   extents with the files of the snapshot, or duplicates its data.
//! * Regions that changes wait for come first, so that a change waits for a few regions only, whatever the
//!   size of the volume.
//! * A change that began before the instant is part of the snapshot. So the executor takes a region only when
//!   no change is under way in it.
//!
//! To take several volumes at the same instant, the engine's `data_plane/snapshots.rs` quiesces all of them first: a
//! quiesced volume begins no change, and changes under way go on. This module knows nothing of other volumes, and not
//! how long that may last: the engine's `volumes/snapshot.rs` bounds it.

use std::collections::VecDeque;
use std::ops::Range;

use weir_types::ExtentIndex;
use weir_types::bounds::REGION_BYTES;

use super::change_order::ChangeOrder;
use super::effect::Effect;
use super::extents::Extents;
use super::operation::Operations;
use super::regions::{REGIONS, RegionSet, regions_of};
use super::slots::Slots;
use super::steps::{Outcome, Step};
use crate::action::Request;

/// The snapshot in progress, or the quiesce for one.
#[derive(Debug, Default)]
pub(super) struct SnapshotState {
    /// True if no change may begin.
    is_quiesced: bool,
    in_progress: Option<Snapshot>,
}

/// A snapshot in progress of all extents.
#[derive(Debug)]
struct Snapshot {
    extents: Vec<Owed>,
    /// Extents with changes that wait for the snapshot.
    urgent: VecDeque<ExtentIndex>,
    /// First extent that owes any region.
    next: ExtentIndex,
    /// Extent and regions that the executor is working on.
    under_way: Option<(ExtentIndex, Range<u32>)>,
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
pub struct NothingToSnapshot(pub ExtentIndex);

impl SnapshotState {
    /// Lets no change begin until the snapshot begins or the quiesce ends.
    pub fn quiesce(&mut self) {
        self.is_quiesced = true;
    }

    /// True while a snapshot is in progress, or the volume is quiesced for one.
    pub fn is_busy(&self) -> bool {
        self.is_quiesced || self.in_progress.is_some()
    }

    /// True while a snapshot is in progress.
    pub fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// Bytes that are not in the snapshot yet.
    pub fn bytes_left(&self) -> u64 {
        self.in_progress.as_ref().map_or(0, |snapshot| snapshot.regions_left * REGION_BYTES)
    }

    /// True if a change must wait. Its regions are taken soon then.
    pub fn must_wait(&mut self, request: &Request) -> bool {
        let Some(snapshot) = &mut self.in_progress else { return self.is_quiesced };
        let owed = &snapshot.extents[request.extent.index()].regions;
        let is_owed = regions_of(request.offset, request.length).any(|region| owed.contains(region));
        if is_owed && !snapshot.urgent.contains(&request.extent) {
            snapshot.urgent.push_back(request.extent);
        }
        self.is_quiesced || is_owed
    }
}

/// The state that a snapshot may change.
pub(super) struct SnapshotWork<'a> {
    pub state: &'a mut SnapshotState,
    pub extents: &'a Extents,
    pub order: &'a ChangeOrder,
    pub operations: &'a Operations,
    pub outcome: Outcome<'a>,
}

impl SnapshotWork<'_> {
    /// Ends a quiesce: changes may begin again.
    pub fn release(&mut self) {
        self.state.is_quiesced = false;
        let waiting =
            ExtentIndex::first(self.extents.count()).filter(|extent| self.order.has_waiting(*extent));
        waiting.for_each(|extent| self.outcome.steps.add(Step::EnqueueWaiting(extent)));
    }

    /// Begins a snapshot of the volume's present data: everything acknowledged, and the changes
    /// under way.
    ///
    /// # Errors
    /// If an extent has no replica that a snapshot could be taken from; then nothing was begun. In either
    /// case the volume is no longer quiesced.
    pub fn begin(&mut self) -> Result<(), NothingToSnapshot> {
        assert!(!self.state.is_in_progress(), "one snapshot is in progress at a time");
        let owed: Result<Vec<Owed>, NothingToSnapshot> =
            ExtentIndex::first(self.extents.count()).map(|extent| self.owed_of(extent)).collect();
        let begun = owed.map(|extents| {
            let regions_left = extents.len() as u64 * u64::from(REGIONS);
            let (urgent, next, under_way) = (VecDeque::new(), ExtentIndex::default(), None);
            self.state.in_progress = Some(Snapshot { extents, urgent, next, under_way, regions_left });
        });
        self.release();
        self.outcome.step(Step::ContinueSnapshot);
        begun
    }

    fn owed_of(&self, index: ExtentIndex) -> Result<Owed, NothingToSnapshot> {
        let slots = self.extents[index].equal_replicas();
        if slots.is_empty() {
            Err(NothingToSnapshot(index))
        } else {
            Ok(Owed { slots, regions: RegionSet::all() })
        }
    }

    /// Gives the executor the next regions, if it is idle.
    pub fn go_on(&mut self) {
        if self.state.in_progress.as_ref().is_none_or(|snapshot| snapshot.under_way.is_some()) {
            return;
        }
        let Some((extent, regions)) = self.next_urgent().or_else(|| self.next_at_leisure()) else {
            return self.end_if_done();
        };
        let equal = self.extents[extent].equal_replicas();
        let snapshot = self.state.in_progress.as_mut().expect("it was just looked at");
        let owed = &mut snapshot.extents[extent.index()];
        // A change that failed may have left some replicas different.
        owed.slots = owed.slots.both(equal);
        if owed.slots.is_empty() {
            return self.abandon();
        }
        let (offset, length) =
            (regions.start * REGION_BYTES as u32, regions.len() as u32 * REGION_BYTES as u32);
        self.outcome.effect(Effect::Snapshot { extent, slots: owed.slots, offset, length });
        snapshot.under_way = Some((extent, regions));
    }

    fn end_if_done(&mut self) {
        if let Some(snapshot) = self.state.in_progress.take_if(|snapshot| snapshot.regions_left == 0) {
            let replicas = snapshot.extents.iter().map(|owed| owed.slots).collect();
            self.outcome.effect(Effect::SnapshotEnded { replicas: Some(replicas) });
        }
    }

    /// Next regions that a change waits for.
    fn next_urgent(&mut self) -> Option<(ExtentIndex, Range<u32>)> {
        let snapshot = self.state.in_progress.as_mut()?;
        snapshot.urgent.retain(|extent| self.order.has_waiting(*extent));
        // Extents take turns, so that changes of one extent do not wait for all changes of another.
        let turns = snapshot.urgent.len();
        (0..turns).find_map(|_| {
            let urgent = &mut self.state.in_progress.as_mut()?.urgent;
            let extent = urgent.pop_front()?;
            urgent.push_back(extent);
            Some((extent, self.waited_for(extent)?))
        })
    }

    /// Regions of an extent, beginning with the first one that a waiting change needs and that can be taken
    /// now.
    fn waited_for(&self, extent: ExtentIndex) -> Option<Range<u32>> {
        let owed = &self.state.in_progress.as_ref()?.extents[extent.index()].regions;
        let busy = self.order.changing_regions(extent, self.operations);
        let can_be_in_snapshot = |region: u32| owed.contains(region) && !busy.contains(region);
        let first = self.order.waiting(extent).find_map(|id| {
            let request = self.operations.known(id)?.request;
            regions_of(request.offset, request.length).find(|region| can_be_in_snapshot(*region))
        });
        // The regions behind it are taken along as far as they can be at once: other changes will wait for
        // them.
        run_in(first?..REGIONS, can_be_in_snapshot)
    }

    /// The first run of regions that can be taken now, from the first extent that has one.
    fn next_at_leisure(&mut self) -> Option<(ExtentIndex, Range<u32>)> {
        let snapshot = self.state.in_progress.as_mut()?;
        let is_done =
            |extent: ExtentIndex| snapshot.extents.get(extent.index()).is_some_and(|o| o.regions.is_empty());
        let next = (snapshot.next.0..).map(ExtentIndex).find(|extent| !is_done(*extent))?;
        snapshot.next = next;
        next.onward(self.extents.count()).find_map(|extent| {
            let owed = &snapshot.extents[extent.index()].regions;
            let busy = self.order.changing_regions(extent, self.operations);
            let first = owed.iter().next()?;
            let is_free = |region: u32| owed.contains(region) && !busy.contains(region);
            Some((extent, run_in(first..REGIONS, is_free)?))
        })
    }

    /// Takes the executor's progress on the requested range: whole regions up to `end`, an offset in the
    /// extent. The `failed` replicas have none of it.
    pub fn step_done(&mut self, end: u32, failed: Slots) {
        let Some(snapshot) = &mut self.state.in_progress else { return };
        let (extent, regions) =
            snapshot.under_way.take().expect("only requested ranges are copied to a snapshot");
        let owed = &mut snapshot.extents[extent.index()];
        owed.slots = owed.slots.without(failed);
        if owed.slots.is_empty() {
            return self.abandon();
        }
        let end = (end / REGION_BYTES as u32).clamp(regions.start, regions.end);
        owed.regions.remove_all(regions.start..end);
        snapshot.regions_left -= u64::from(end - regions.start);
        self.outcome.step(Step::EnqueueWaiting(extent));
        self.outcome.step(Step::ContinueSnapshot);
    }

    /// Abandons the snapshot in progress, if there is one, so that no change waits for it.
    pub fn abandon(&mut self) {
        if self.state.in_progress.take().is_some() {
            self.outcome.effect(Effect::SnapshotEnded { replicas: None });
        }
        self.release();
    }
}

/// The first run of regions in a range for which `holds` is true.
fn run_in(range: Range<u32>, holds: impl Fn(u32) -> bool) -> Option<Range<u32>> {
    let start = range.clone().find(|region| holds(*region))?;
    let end = (start..range.end).find(|region| !holds(*region)).unwrap_or(range.end);
    Some(start..end)
}
