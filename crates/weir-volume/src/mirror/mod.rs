//! Mirror: keeps the replicas of a volume's extents equal.
//!
//! Every change goes to all replicas that must or can take it, and every read to one replica that is up to date.
//! Each replica is a [`Replica`] of its own, and the mirror stands above them. The mirror takes the same requests
//! as a single volume and guarantees:
//!
//! * Where there are several replicas, two changes of the same blocks are never under way together, so that all replicas
//!   end with the same one.
//! * The metadata beside the replicas (see [`replica_metadata`]) names a region as dirty before data in it
//!   changes.
//! * A replica that missed a change is durably stale before the change is acknowledged. No client reads it until it is
//!   resynced.
//! * The failure of a replica gives clients no error while another one is in sync and takes the metadata that says so.
//!
//! The work is divided. [`Parts`] lists the owners of state: replicas, extents, operations, the order of
//! changes, flushes and the snapshot in progress. Each kind of work has a module: [`requests`] with
//! [`acknowledgement`], [`resync`], [`scrub`], [`checksum_headers`], [`metadata_results`], [`replica_membership`] and
//! [`snapshot_in_progress`]. These modules do not call each other. Each returns effects and [steps](steps), and the
//! mirror hands every step to the module that it is for.
//!
//! An extent that has one replica, and never had another, has no metadata and pays none of this cost. The
//! mirror has no clock, thread, socket or file, and no data passes through it. The executor keeps one buffer
//! for each operation of each replica. For a change it fills all these buffers with the same data.

pub mod absence;
mod acknowledgement;
mod agenda;
mod change_order;
mod checksum_headers;
mod checksums;
mod coalescing;
mod effect;
pub mod epoch_record;
mod extent;
mod extents;
mod flush_coalescing;
mod flush_ends;
mod flushes;
mod metadata_results;
pub mod metadata_write;
mod mirror_id;
mod operation;
mod parts;
mod queries;
mod recovered_extent;
mod regions;
mod replica_membership;
mod replica_metadata;
mod replicas;
mod requests;
mod resync;
pub mod resync_queue;
mod scrub;
mod scrubs;
mod slots;
mod snapshot_in_progress;
mod snapshots;
pub mod stall;
mod steps;

use weir_types::ExtentIndex;
use weir_types::bounds::EXTENT_BYTES;

use crate::action::{Action, Content, Fault, Kind, OperationId, Request};
use crate::geometry::extent_count;
pub use agenda::Agenda;
use change_order::ChangeOrder;
pub use checksums::{
    ChecksumHeader, ChecksumHeaders, ChecksumResult, ChecksumWork, Damaged, SECTION_BLOCKS, SECTIONS,
    SectionReport, Sections,
};
pub use coalescing::Coalescing;
pub use effect::{Answer, Effect};
pub use epoch_record::EpochRecord;
use extents::Extents;
use flush_coalescing::FlushCoalescing;
use flushes::{Flushes, Purpose};
pub use metadata_write::{MetadataAction, MetadataFault, MetadataRequest, MetadataWrites, Written};
pub use mirror_id::MirrorId;
use operation::{Operation, Operations, Work};
use parts::Parts;
pub use recovered_extent::{Found, RecoveredExtent, Unservable};
pub use regions::{REGIONS, RegionSet, regions_of};
pub use replica_membership::{AwaitedChange, FileState, ReplicaChange};
pub use replica_metadata::{ReplicaMetadata, ReplicaState, ReplicaStates};
use replicas::Replicas;
pub use resync_queue::ResyncQueue;
pub use scrubs::Scrubs;
pub use slots::Slots;
pub use snapshot_in_progress::NothingToSnapshot;
use snapshot_in_progress::SnapshotState;
pub use snapshots::Snapshots;
use steps::{Step, Steps};

/// The replicas of a volume.
#[derive(Debug)]
pub struct Mirror {
    parts: Parts,
    /// Empty list for reuse.
    spare: Vec<Action>,
}

impl Mirror {
    /// A volume of `size_bytes` with up to `replicas` replicas of each extent, or more if the replica
    /// metadata names more.
    pub fn new(size_bytes: u64, replicas: usize, extents: Vec<RecoveredExtent>) -> Mirror {
        let slots = extents.iter().map(RecoveredExtent::slot_count).max().unwrap_or(0).max(replicas);
        let parts = Parts {
            replicas: Replicas::new(size_bytes, slots),
            order: ChangeOrder::new(extents.len()),
            extents: Extents::new(extents),
            operations: Operations::default(),
            flushes: Flushes::default(),
            coalescing: FlushCoalescing::default(),
            snapshot: SnapshotState::default(),
            steps: Steps::default(),
        };
        Mirror { parts, spare: Vec::new() }
    }

    /// A volume whose extents have one replica each, in slot 0.
    pub fn single(size_bytes: u64) -> Mirror {
        let extents = (0..extent_count(size_bytes)).map(|_| RecoveredExtent::alone(0)).collect();
        Mirror::new(size_bytes, 1, extents)
    }

    /// Changes the size. Added extents start from `new`; those that `new` does not cover get one replica in
    /// slot 0. No request may be under way in removed extents.
    pub fn resize(&mut self, size_bytes: u64, new: Vec<RecoveredExtent>) {
        let count = extent_count(size_bytes);
        let slots = new.iter().map(RecoveredExtent::slot_count).max().unwrap_or(0);
        self.parts.replicas.resize(size_bytes);
        self.parts.replicas.make_room(slots, u64::from(count) * EXTENT_BYTES);
        self.parts.flushes.truncate_extents(count);
        self.parts.coalescing.truncate_extents(count);
        self.parts.extents.resize(count, new);
        self.parts.order.resize(count as usize);
    }

    /// Writes the replica metadata that follows from the replicas found at start. Call it once, before any
    /// request is started.
    pub fn begin(&mut self, effects: &mut Vec<Effect>) {
        let extents = &mut self.parts.extents;
        ExtentIndex::first(extents.count()).for_each(|extent| extents.write_metadata(extent, effects));
    }

    /// Starts a request. It ends with an [`Effect::Done`], in this call or later.
    pub fn start(&mut self, request: Request, effects: &mut Vec<Effect>) -> MirrorId {
        let id = self.parts.operations.add(Operation::new(request, Work::Client));
        if !request.extent.is_within(self.parts.extents.count()) {
            self.parts.operations.finish(id, Err(Fault::OutOfRange), effects);
        } else if request.kind == Kind::Read {
            self.parts.requests(effects).read(id);
        } else {
            self.enqueue(id, effects);
        }
        self.run(effects);
        id
    }

    /// Takes the executor's answer to an action on a replica.
    pub fn answer(&mut self, slot: usize, answer: Answer, effects: &mut Vec<Effect>) {
        let mut actions = std::mem::take(&mut self.spare);
        self.parts.replicas.answer(slot, answer, &mut actions);
        self.take(slot, actions, effects);
    }

    /// Notes that the executor has acted on the end of a request or step: its number may be used again from
    /// now on.
    pub fn forget(&mut self, id: MirrorId) {
        let operation = self.parts.operations.forget(id);
        if let Some((slot, inner)) = operation.source() {
            self.parts.replicas.forget(slot, inner);
        }
    }

    /// Makes all acknowledged writes stable; ends with [`Effect::Flushed`]. With [`Mirror::coalescing`], it may end
    /// now and be carried out later, if it may be owed at all.
    pub fn flush(&mut self, flush: u32, may_be_owed: bool, effects: &mut Vec<Effect>) {
        let Parts { coalescing, extents, .. } = &mut self.parts;
        if may_be_owed && coalescing.may_owe(extents) {
            coalescing.owe();
            effects.push(Effect::Flushed { flush, result: Ok(()), is_owed: true });
            return;
        }
        let number = self.parts.flushes.add(Purpose::Client(flush));
        self.begin_flush(number, effects);
    }

    /// Fails a replica of an extent.
    pub fn fail_replica(&mut self, extent: ExtentIndex, slot: usize, effects: &mut Vec<Effect>) {
        if slot >= self.parts.replicas.slots() {
            return;
        }
        let mut actions = std::mem::take(&mut self.spare);
        self.parts.replicas.fail(slot, extent, &mut actions);
        self.take(slot, actions, effects);
    }

    /// Takes the outcome of a write of replica metadata.
    pub fn metadata_written(&mut self, extent: ExtentIndex, written: Written, effects: &mut Vec<Effect>) {
        self.parts.metadata(effects).take_result(extent, written);
        self.run(effects);
    }

    /// Writes again the replica metadata and checksum headers that could not be written.
    pub fn retry_refused(&mut self, effects: &mut Vec<Effect>) {
        self.parts.extents.retry_checksum_headers(effects);
        self.parts.extents.retry_metadata(effects);
    }

    /// Removes regions from the metadata that all replicas in sync have and that have not changed since the
    /// last call. A flush makes them stable first. Regular calls bound the resync after a crash.
    pub fn tidy(&mut self, extent: ExtentIndex, effects: &mut Vec<Effect>) {
        self.parts.metadata(effects).begin_tidying(extent);
        self.run(effects);
    }

    /// Removes all regions that it can from the metadata, also those that changed lately: nothing more is to
    /// come, and a clean region needs no resync at the next start.
    pub fn tidy_up(&mut self, extent: ExtentIndex, effects: &mut Vec<Effect>) {
        self.parts.extents[extent].forget_recent_changes();
        self.tidy(extent, effects);
    }

    /// Begins to resync the next region that a replica lacks; it ends with an [`Effect::Done`]. `None` if it
    /// lacks none, or cannot be reached, or nobody else has it.
    pub fn resync_region(
        &mut self,
        extent: ExtentIndex,
        slot: usize,
        effects: &mut Vec<Effect>,
    ) -> Option<MirrorId> {
        let id = self.parts.resync(effects).begin_region(extent, slot);
        self.run(effects);
        id
    }

    /// Begins to promote a stale replica that lacks nothing. A flush makes its data stable first, and
    /// [`Effect::ReplicaStates`] reports the new state. Returns false if the replica is not stale or lacks
    /// some data, or if a start would not look for it. Returns false as well if its checksums may still be
    /// valid: they are invalidated first.
    pub fn promote(&mut self, extent: ExtentIndex, slot: usize, effects: &mut Vec<Effect>) -> bool {
        let has_begun = self.parts.resync(effects).begin_promotion(extent, slot);
        self.run(effects);
        has_begun
    }

    /// Begins a change of a replica of an extent. False if it cannot begin now: a snapshot is in progress or
    /// prepared, orphaned I/O may still reach the file of a replica that comes, or no replica in sync would be left.
    /// The change is durable once an [`AwaitedChange`] says so. The file of a replica that goes stays until
    /// then, and until [`Mirror::has_answered`] is true.
    pub fn change_replica(
        &mut self,
        (extent, slot): (ExtentIndex, usize),
        change: ReplicaChange<'_>,
        files: FileState,
        effects: &mut Vec<Effect>,
    ) -> bool {
        // A snapshot reads the files of replicas as they are.
        let has_begun = !self.is_busy_with_snapshot()
            && self.parts.replica_changes(effects).begin(extent, slot, change, files);
        self.run(effects);
        has_begun
    }

    /// Tells that an added replica is durably recorded where a start looks for replicas: it may become in
    /// sync.
    pub fn confirm_added(&mut self, extent: ExtentIndex, slot: usize) {
        if let Some(extent) = self.parts.extents.within_mut(extent) {
            extent.confirm_added(slot);
        }
    }

    /// Sets the duration of a read from a replica of an extent, in any unit: the fastest readable replicas
    /// are read.
    pub fn set_read_cost(&mut self, extent: ExtentIndex, slot: usize, cost: u32) {
        if let Some(extent) = self.parts.extents.within_mut(extent) {
            extent.set_read_cost(slot, cost);
        }
    }

    /// Sets the checksum header found beside a replica of an extent; `None` if it could not be read. Call it
    /// before [`Mirror::begin`].
    pub fn set_checksum_header(&mut self, extent: ExtentIndex, slot: usize, header: Option<ChecksumHeader>) {
        if let Some(extent) = self.parts.extents.within_mut(extent) {
            extent.found_checksum_header(slot, header);
        }
    }

    /// Invalidates the checksums of an extent from an offset on, because a caller changes that range. The
    /// caller updates the checksum files itself, and no operation may be under way.
    pub fn invalidate_checksums_from(&mut self, index: ExtentIndex, offset: u32) {
        let length = EXTENT_BYTES as u32 - offset;
        let extent = self.parts.extents.within_mut(index).filter(|_| length > 0);
        if let Some(checksums) = extent.and_then(|extent| extent.checksums_mut()) {
            checksums.change(&Request { kind: Kind::Release, extent: index, offset, length });
            checksums.distrust_damage();
        }
    }

    /// The scrubs of the volume.
    pub fn scrubs(&mut self) -> Scrubs<'_> {
        Scrubs(self)
    }

    /// The flushes of the volume that are answered before they are carried out.
    pub fn coalescing(&mut self) -> Coalescing<'_> {
        Coalescing(self)
    }

    /// The snapshot in progress of the volume.
    pub fn snapshots(&mut self) -> Snapshots<'_> {
        Snapshots(self)
    }

    /// Does all steps that follow from an event.
    fn run(&mut self, effects: &mut Vec<Effect>) {
        self.run_above(0, effects);
    }

    /// Does the steps above a level: those below belong to an event that is still being handled.
    fn run_above(&mut self, level: usize, effects: &mut Vec<Effect>) {
        while let Some(step) = self.parts.steps.next_above(level) {
            self.step(step, effects);
        }
    }

    // Each request takes the first steps. The locals of the others would cost it something.
    fn step(&mut self, step: Step, effects: &mut Vec<Effect>) {
        let parts = &mut self.parts;
        match step {
            Step::Launch(id, slots) => self.launch(id, slots, effects),
            Step::Enqueue(id) => self.enqueue(id, effects),
            Step::EnqueueWaiting(extent) => parts.requests(effects).enqueue_waiting(extent),
            Step::BeginChange(id) => parts.requests(effects).begin_change(id),
            Step::End(id, result) => {
                if parts.coalescing.is_on() {
                    parts.coalescing.changed(parts.operations[id].request.extent);
                }
                parts.requests(effects).acknowledge(id, result);
                if parts.snapshot.is_in_progress() {
                    parts.steps.add(Step::ContinueSnapshot);
                }
            }
            Step::Read(id) => parts.requests(effects).read(id),
            other => self.rare_step(other, effects),
        }
    }

    #[inline(never)]
    fn rare_step(&mut self, step: Step, effects: &mut Vec<Effect>) {
        let parts = &mut self.parts;
        match step {
            Step::Continue(id) => parts.requests(effects).continue_change(id),
            Step::ContinueAll(extent) => parts.requests(effects).continue_all(extent),
            Step::FailReads(extent) => parts.requests(effects).fail_held_reads(extent),
            Step::FailRead(id) => parts.requests(effects).fail_held_read(id),
            Step::FailFlushes(extent) => {
                let failed = parts.flushes.take_unrecorded(extent, &parts.extents);
                failed.into_iter().for_each(|flush| parts.end_flush(flush, effects));
            }
            Step::FailChanges(extent, fault) => parts.requests(effects).fail_waiting_changes(extent, fault),
            Step::FailReplicas(extent, slots) => {
                slots.iter().for_each(|slot| self.fail_replica(extent, slot, effects));
            }
            Step::WriteMetadata(extent) => parts.extents.write_metadata(extent, effects),
            Step::Flush(number) => self.begin_flush(number, effects),
            Step::PayFlushes => self.coalescing().pay(effects),
            Step::EndFlushes => parts.end_flushes(effects),
            Step::Invalidate(id) => parts.headers(effects).continue_change(id),
            Step::InvalidateAll(extent) => parts.headers(effects).continue_all(extent),
            Step::WriteChecksumHeaders(extent) => parts.extents.write_checksum_headers(extent, effects),
            Step::ContinueScrub(extent) => parts.scrub(effects).go_on(extent),
            Step::ContinueSnapshot => parts.snapshot_work(effects).go_on(),
            Step::Launch(..)
            | Step::Enqueue(_)
            | Step::EnqueueWaiting(_)
            | Step::BeginChange(_)
            | Step::End(..)
            | Step::Read(_) => unreachable!("the caller takes these"),
        }
    }

    /// Starts an operation of each of these replicas.
    fn launch(&mut self, id: MirrorId, slots: Slots, effects: &mut Vec<Effect>) {
        let request = self.parts.operations[id].current_move();
        for slot in slots.iter() {
            let mut actions = std::mem::take(&mut self.spare);
            self.parts.replicas.start(slot, request, id, &mut actions);
            self.take(slot, actions, effects);
        }
    }

    /// Lets a change begin, unless an overlapping operation must end first or a snapshot needs the old data.
    fn enqueue(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let parts = &mut self.parts;
        let Operation { request, work, .. } = parts.operations[id];
        let is_owed = parts.operations[id].is_of_client() && parts.snapshot.must_wait(&request);
        let extent = &parts.extents[request.extent];
        let is_alone = extent.is_alone();
        let is_ordered = !is_alone || extent.scrub().is_some();
        if is_owed || is_ordered && parts.order.is_busy(&request, &parts.operations) {
            parts.order.line_up(request.extent, id);
            if is_owed {
                parts.steps.add(Step::ContinueSnapshot);
            }
            return;
        }
        let has_checksums = extent.checksums().is_some();
        parts.order.begin_change(request.extent, id);
        match work {
            Work::Resync(_) => parts.resync(effects).begin_piece(id),
            Work::Scrub => parts.scrub(effects).examine(id),
            Work::Client if has_checksums => parts.headers(effects).invalidate(id),
            Work::Client => parts.requests(effects).begin(id, is_alone),
        }
    }

    /// Passes on the actions of a replica, and handles those that tell of an end.
    fn take(&mut self, slot: usize, mut actions: Vec<Action>, effects: &mut Vec<Effect>) {
        let level = self.parts.steps.level();
        for action in actions.drain(..) {
            match action {
                Action::Done { operation, result } => self.replica_ended(slot, operation, result, effects),
                Action::Flushed { flush, result } => self.parts.replica_flushed(slot, flush, result, effects),
                Action::FailReplica { extent, remains } => {
                    self.parts.replica_changes(effects).failed(extent, slot, remains);
                }
                action => {
                    let owner = action.operation().and_then(|id| self.parts.replicas.owner(slot, id));
                    effects.push(Effect::Act { slot, owner, action });
                    continue;
                }
            }
            self.run_above(level, effects);
        }
        self.spare = actions;
    }

    /// Handles the end of an operation of a replica.
    fn replica_ended(
        &mut self,
        slot: usize,
        inner: OperationId,
        result: Result<Content, Fault>,
        effects: &mut Vec<Effect>,
    ) {
        let parts = &mut self.parts;
        let id = parts.replicas.take_owner(slot, inner);
        let operation = &mut parts.operations[id];
        let is_last = operation.answered(slot, inner, result);
        if operation.request.kind != Kind::Read || result.is_err() {
            parts.replicas.forget(slot, inner);
            effects.push(Effect::Ended { slot, operation: inner });
        }
        match operation.work {
            _ if !is_last => {}
            Work::Client => parts.requests(effects).ended(id),
            Work::Resync(_) => parts.resync(effects).ended(id),
            Work::Scrub => parts.scrub(effects).ended(id),
        }
    }

    fn begin_flush(&mut self, number: u32, effects: &mut Vec<Effect>) {
        let slots = self.parts.replicas.slots();
        let purpose = self.parts.flushes.begin(number, slots);
        if purpose.can_pay() {
            self.parts.coalescing.began(number);
        }
        let only = purpose.only();
        for slot in 0..slots {
            let mut actions = std::mem::take(&mut self.spare);
            self.parts.replicas.flush(slot, number, only, &mut actions);
            self.take(slot, actions, effects);
        }
    }
}
