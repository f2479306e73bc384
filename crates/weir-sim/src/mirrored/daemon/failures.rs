//! What has failed in the simulated machine since the last start, as far as it may be a reason for a failure that a client
//! or a replica shows. It knows neither the drives nor the mirror.

use std::collections::{BTreeMap, BTreeSet};

use weir_types::ExtentIndex;
use weir_volume::mirror::{Answer, Slots, regions_of};
use weir_volume::{Action, Content, Fault, Kind, Request};

use super::clients::InFlight;

/// Slot and extent of an extent replica.
type ExtentReplica = (usize, ExtentIndex);

/// Failures since the last start.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct Failures {
    /// Extent replicas in which a change or a sync failed.
    unknown: BTreeSet<ExtentReplica>,
    /// Extent replicas whose metadata could not be written.
    metadata_failed: BTreeSet<ExtentReplica>,
    /// Last instant, by extent, at which no replica in sync could take metadata.
    refused_at: BTreeMap<ExtentIndex, u64>,
    /// Extent replicas that failed and have not rejoined.
    replica_failed: BTreeSet<ExtentReplica>,
    /// When a replica of an extent last was short of something.
    short_at: BTreeMap<ExtentReplica, u64>,
    /// Regions in which a change failed. Replicas in sync may differ there.
    differing: BTreeSet<(ExtentIndex, u32)>,
    /// Replicas that failed because another file was in the place of theirs.
    replaced: BTreeSet<ExtentReplica>,
}

impl Failures {
    /// Clears everything that is known since the last start only.
    pub fn restart(&mut self) {
        self.replica_failed.clear();
        self.metadata_failed.clear();
        self.unknown.clear();
        self.differing.clear();
        // The operator put the files back where they were.
        self.replaced.clear();
    }

    /// Forgets an extent that was deleted.
    pub fn forget_extent(&mut self, gone: ExtentIndex) {
        self.replica_failed.retain(|(_, extent)| *extent != gone);
        self.unknown.retain(|(_, extent)| *extent != gone);
        self.metadata_failed.retain(|(_, extent)| *extent != gone);
        self.refused_at.remove(&gone);
        self.differing.retain(|(extent, _)| *extent != gone);
    }

    /// A change or a sync of a replica failed: its content is unknown.
    pub fn content_unknown(&mut self, replica: ExtentReplica) {
        self.unknown.insert(replica);
    }

    /// A drive answered an action. A failed change leaves the content of a replica unknown.
    pub fn action_answered(&mut self, slot: usize, action: &Action, answer: &Answer) {
        let is_change = matches!(action, Action::Write { .. } | Action::Release { .. } | Action::Zero { .. });
        if let (true, Some(extent), Answer::Completed(_, Err(Fault::Broken))) =
            (is_change, action.extent(), answer)
        {
            self.unknown.insert((slot, extent));
        }
    }

    /// A replica is made anew.
    pub fn replica_added(&mut self, replica: ExtentReplica) {
        self.unknown.remove(&replica);
    }

    /// A replica is in service again.
    pub fn replica_rejoined(&mut self, replica: ExtentReplica) {
        self.replica_failed.remove(&replica);
        self.unknown.remove(&replica);
    }

    pub fn replica_failed(&mut self, replica: ExtentReplica) {
        self.replica_failed.insert(replica);
    }

    /// Metadata or checksum headers could not be written beside these replicas of an extent.
    pub fn metadata_failed(&mut self, extent: ExtentIndex, slots: Slots) {
        self.metadata_failed.extend(slots.iter().map(|slot| (slot, extent)));
    }

    /// No replica in sync of an extent could take metadata.
    pub fn metadata_refused(&mut self, extent: ExtentIndex, now: u64) {
        self.refused_at.insert(extent, now);
    }

    pub fn was_short(&mut self, replica: ExtentReplica, now: u64) {
        self.short_at.insert(replica, now);
    }

    /// Another file was in the place of a replica's.
    pub fn file_replaced(&mut self, replica: ExtentReplica) {
        self.replaced.insert(replica);
    }

    /// The file of a replica is made anew.
    pub fn file_made(&mut self, replica: ExtentReplica) {
        self.replaced.remove(&replica);
    }

    pub fn is_unknown(&self, replica: ExtentReplica) -> bool {
        self.unknown.contains(&replica)
    }

    pub fn lacks_metadata(&self, replica: ExtentReplica) -> bool {
        self.metadata_failed.contains(&replica)
    }

    pub fn has_replica_failed(&self, replica: ExtentReplica) -> bool {
        self.replica_failed.contains(&replica)
    }

    pub fn is_file_replaced(&self, replica: ExtentReplica) -> bool {
        self.replaced.contains(&replica)
    }

    /// Notes that a change failed, after which replicas may differ.
    pub fn request_failed(&mut self, request: &Request) {
        if request.kind != Kind::Read {
            self.differing.extend(places(request));
        }
    }

    /// Checks that every replica in `left` had a shortage since the request came and since another replica failed it.
    /// Where replicas may differ, a shortage of one replica is enough, because it may be the authoritative one.
    pub fn check(
        &self,
        flying: &InFlight,
        result: Result<Content, Fault>,
        left: &[usize],
        can_all_place: bool,
    ) -> Result<(), String> {
        let extent = flying.request.extent;
        // The failure that the request leaves behind could not be recorded durably.
        if self.refused_at.get(&extent).is_some_and(|at| *at >= flying.began) {
            return Ok(());
        }
        let is_shortage = matches!(result, Err(Fault::NoSpace | Fault::NoMemory | Fault::Away));
        let since = flying.began.max(flying.failed_at);
        let was_short =
            |slot: &usize| is_shortage && self.short_at.get(&(*slot, extent)).is_some_and(|at| *at >= since);
        let is_unsupported = !can_all_place && result == Err(Fault::Unsupported);
        let is_only_one_short = self.may_differ(&flying.request) && left.iter().any(was_short);
        match left.iter().find(|slot| !was_short(slot)) {
            Some(slot) if !is_unsupported && !is_only_one_short => {
                Err(format!("{flying:?} failed with {result:?} though replica {slot} is left"))
            }
            _ => Ok(()),
        }
    }

    /// True for a read of regions in which replicas may differ because a change failed there.
    fn may_differ(&self, request: &Request) -> bool {
        request.kind == Kind::Read && places(request).any(|place| self.differing.contains(&place))
    }
}

/// Regions that a request touches, each with the extent.
fn places(request: &Request) -> impl Iterator<Item = (ExtentIndex, u32)> {
    let extent = request.extent;
    regions_of(request.offset, request.length).map(move |region| (extent, region))
}
