//! Mirror: keeps the replicas of a volume's extents equal.
//!
//! Every change goes to all replicas, and every read to one replica that is up to date. Each replica is a
//! [`Volume`] of its own, and the mirror stands above them. The mirror takes the same requests as a single
//! volume and guarantees:
//!
//! * Two changes of the same blocks are never under way together, so that all replicas end with the same one.
//! * The metadata beside the replicas (see [`recovered_extent`]) names a region as dirty before data in it
//!   changes.
//! * A replica that missed a change is durably stale before the change is acknowledged. It is not read in the
//!   missed regions until they are resynced.
//! * As long as one replica is left, clients see no error.
//!
//! [`scrub`] checks the data at rest, and [`checksum_state`] holds its checksum headers.
//!
//! An extent that has one replica, and never had another, has no metadata and pays none of this cost. The
//! mirror has no clock, thread, socket or file, and no data passes through it. The executor keeps one buffer
//! for each operation of each replica. For a change it fills all these buffers with the same data.

pub mod absence;
mod agenda;
pub mod checksum_state;
pub mod epoch_record;
mod extent;
pub mod metadata_write;
mod metadata_written;
mod operation;
pub mod recovered_extent;
mod regions;
pub mod replica_change;
mod resync;
pub mod resync_queue;
pub mod scrub;
pub mod section;
mod snapshot;
pub mod stall;
mod verdict;

use std::collections::BTreeSet;

use crate::action::{Action, Content, Fault, Generation, Kind, OperationId, Remains, Request};
use crate::geometry::extent_count;
use crate::volume::Volume;
pub use agenda::Agenda;
pub use checksum_state::{ChecksumHeader, ChecksumHeaders, Damaged, Sections};
pub use extent::Slots;
use extent::{MirroredExtent, overlap};
pub use metadata_write::{MetadataAction, MetadataFault, MetadataRequest, MetadataWrites, Written};
use operation::{Operation, Stage};
pub use recovered_extent::{
    EpochRecord, Found, RecoveredExtent, ReplicaMetadata, ReplicaState, ReplicaStates, Unservable,
};
pub use regions::{REGIONS, RegionSet, regions_of};
pub use replica_change::{AwaitedChange, FileState, ReplicaChange};
pub use resync_queue::ResyncQueue;
pub use scrub::{ChecksumResult, ChecksumWork};
pub use section::{SECTION_BLOCKS, SECTIONS, SectionReport};
pub use snapshot::NothingToSnapshot;
use snapshot::Snapshot;

/// Number of a request to a mirror, or of a resync step, from its start until it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MirrorId(pub u32);

/// An effect that the executor must carry out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Carry out an action on the files of a replica → [`Mirror::answer`]. The action is never the end of an
    /// operation or flush.
    Act {
        /// Slot of the replica.
        slot: usize,
        /// Request that the action serves, if the action names an operation.
        owner: Option<MirrorId>,
        /// Action to carry out.
        action: Action,
    },
    /// An operation of a replica has ended, and its buffer is no longer needed.
    Ended {
        /// Slot of the replica.
        slot: usize,
        /// Operation of the replica.
        operation: OperationId,
    },
    /// Write this metadata beside replicas, durably, by way of [`MetadataWrites`] →
    /// [`Mirror::metadata_written`].
    WriteMetadata(Box<MetadataRequest>),
    /// A replica could not be added to an extent: no metadata could be written that names it.
    Refused {
        /// Extent of the replica.
        extent: u32,
        /// Slot of the replica.
        slot: usize,
    },
    /// Compute the checksum of each block that an operation of a replica has read → [`Mirror::examined`]. If
    /// the read found a hole, compute the checksums of as many blocks of zeroes.
    Examine {
        /// Request that the read serves.
        id: MirrorId,
        /// Slot of the replica.
        slot: usize,
        /// Operation whose buffer holds the data.
        operation: OperationId,
        /// Result of the read: data or a hole.
        content: Content,
    },
    /// Fill the buffer of a resync step or scrub piece with zeroes. The step has read a hole and writes from
    /// this buffer next. No read into this buffer is under way.
    Zeroes {
        /// Request that owns the buffer.
        id: MirrorId,
    },
    /// Do a task on the checksum files of an extent → [`Mirror::kept`].
    ChecksumWork {
        /// Extent of the files.
        extent: u32,
        /// Task to do.
        work: Box<ChecksumWork>,
    },
    /// The scrub of a section ended or was abandoned.
    Scrubbed {
        /// Extent of the section.
        extent: u32,
        /// Result of the scrub.
        report: Box<SectionReport>,
    },
    /// A request, resync step or scrub piece has ended → [`Mirror::forget`].
    Done {
        /// Number of the request.
        operation: MirrorId,
        /// Result of the request.
        result: Result<Content, Fault>,
        /// Replica and operation whose buffer holds the data that was read.
        source: Option<(usize, OperationId)>,
    },
    /// A flush has ended.
    Flushed {
        /// Number that the caller gave to the flush.
        flush: u32,
        /// Result of the flush.
        result: Result<(), Fault>,
    },
    /// A replica of an extent failed and is no longer used; an operator must know.
    ReplicaFailed {
        /// Slot of the replica.
        slot: usize,
        /// Extent of the replica.
        extent: u32,
        /// Condition of the replica's file.
        remains: Remains,
    },
    /// Record durably, apart from the replica, that the last replica in sync of an extent failed with unknown
    /// content ([`epoch_record::fail`]). Otherwise a later start would serve it as if it were intact.
    RecordFailure {
        /// Extent of the replica.
        extent: u32,
    },
    /// Add data of these replicas of an extent to the snapshot in progress, from an offset on →
    /// [`Mirror::snapshot_step_done`]. The executor takes as much as is reasonable at once, in whole regions.
    Snapshot {
        /// Extent to take the data from.
        extent: u32,
        /// Replicas to take the data from.
        slots: Slots,
        /// Start of the range in bytes, a multiple of [`REGION_BYTES`](weir_types::bounds::REGION_BYTES).
        offset: u32,
        /// Maximum length of the range in bytes, a multiple of
        /// [`REGION_BYTES`](weir_types::bounds::REGION_BYTES).
        length: u32,
    },
    /// A snapshot in progress has ended.
    SnapshotEnded {
        /// For each extent, the replicas that are in the snapshot, all of which are equal; `None` if the
        /// snapshot was abandoned.
        replicas: Option<Vec<Slots>>,
    },
    /// The replica states of an extent have durably changed; every other holder of them must be told.
    ReplicaStates {
        /// Extent of the replicas.
        extent: u32,
        /// Epoch of the metadata with these states.
        epoch: u64,
        /// New replica states.
        replica_states: ReplicaStates,
    },
}

/// Effects are passed on for every request, so an effect must stay small: at most 64 bytes, one cache line.
const _: () = assert!(size_of::<Effect>() <= 64);

/// An answer of the executor to an action.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Answer to [`Action::Open`], with the extent and generation that it named.
    Opened(u32, Generation, Result<crate::AllocationMap, Fault>),
    /// Answer to [`Action::Allocate`], with the extent, generation and piece that it named.
    Allocated(u32, Generation, u32),
    /// Answer to [`Action::Allocate`], with the values that it named: the piece gets no space, or not now.
    Refused(u32, Generation, u32, Fault),
    /// Answer to every action that names an operation.
    Completed(OperationId, Result<u32, Fault>),
    /// Answer to [`Action::Sync`], with the extent and generation that it named.
    Synced(u32, Generation, Result<(), Fault>),
}

/// A flush that some replicas have not answered.
#[derive(Debug)]
struct PendingFlush {
    number: u32,
    left: u32,
    failed: Slots,
    purpose: Purpose,
}

/// Purpose of a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    /// A client asked for the flush.
    Client(u32),
    /// These regions of an extent leave the metadata after the flush.
    Tidy(u32, RegionSet),
    /// A replica of an extent counts as in sync after the flush, unless its version has changed.
    Promote(u32, usize, u64),
    /// Checksums of an examined section of an extent become valid after the flush.
    WriteHeaders(u32),
    /// The extent that the flush was for no longer exists.
    Nothing,
}

impl Purpose {
    /// The one extent that the flush is for.
    fn extent(&self) -> Option<u32> {
        match self {
            Purpose::Tidy(extent, _) | Purpose::Promote(extent, ..) | Purpose::WriteHeaders(extent) => {
                Some(*extent)
            }
            Purpose::Client(_) | Purpose::Nothing => None,
        }
    }
}

/// The replicas of a volume.
#[derive(Debug)]
pub struct Mirror {
    replicas: Vec<Volume>,
    extents: Vec<MirroredExtent>,
    operations: Vec<Option<Operation>>,
    free: Vec<u32>,
    /// Request that each operation of a replica serves, by replica and operation number.
    owners: Vec<Vec<Option<MirrorId>>>,
    flushes: Vec<PendingFlush>,
    flush_number: u32,
    /// Slots and extents of failed replicas.
    failed_replicas: Vec<(usize, u32)>,
    /// Extents whose replica metadata could not be written.
    refused: BTreeSet<u32>,
    /// Extents whose checksum headers could not be written beside any replica in sync.
    refused_headers: BTreeSet<u32>,
    /// True if no change may begin.
    is_quiesced: bool,
    /// Snapshot in progress.
    snapshot: Option<Snapshot>,
    /// Empty list for reuse.
    spare: Vec<Action>,
}

impl Mirror {
    /// A volume of `size_bytes` with up to `replicas` replicas of each extent, or more if the replica
    /// metadata names more.
    pub fn new(size_bytes: u64, replicas: usize, extents: Vec<RecoveredExtent>) -> Mirror {
        let replicas = extents.iter().map(RecoveredExtent::places).max().unwrap_or(0).max(replicas);
        Mirror {
            replicas: (0..replicas).map(|_| Volume::new(size_bytes)).collect(),
            extents: extents.into_iter().map(MirroredExtent::new).collect(),
            operations: Vec::new(),
            free: Vec::new(),
            owners: vec![Vec::new(); replicas],
            flushes: Vec::new(),
            flush_number: 0,
            failed_replicas: Vec::new(),
            refused: BTreeSet::new(),
            refused_headers: BTreeSet::new(),
            is_quiesced: false,
            snapshot: None,
            spare: Vec::new(),
        }
    }

    /// A volume whose extents have one replica each, in slot 0.
    pub fn single(size_bytes: u64) -> Mirror {
        let extents = (0..extent_count(size_bytes)).map(|_| RecoveredExtent::alone(0)).collect();
        Mirror::new(size_bytes, 1, extents)
    }

    /// Changes the size. Added extents start from `new`; those that `new` does not cover get one replica in
    /// slot 0. No request may be under way in removed extents.
    pub fn resize(&mut self, size_bytes: u64, new: Vec<RecoveredExtent>) {
        let count = extent_count(size_bytes) as usize;
        self.replicas.iter_mut().for_each(|replica| replica.resize(size_bytes));
        self.failed_replicas.retain(|(_, extent)| (*extent as usize) < count);
        self.refused.retain(|extent| (*extent as usize) < count);
        // A flush may still wait until metadata of a remaining extent is recorded.
        let is_gone =
            |flush: &&mut PendingFlush| flush.purpose.extent().is_some_and(|of| of as usize >= count);
        self.flushes.iter_mut().filter(is_gone).for_each(|flush| flush.purpose = Purpose::Nothing);
        self.extents.truncate(count);
        let missing = count - self.extents.len();
        let places = new.iter().map(RecoveredExtent::places).max().unwrap_or(0);
        let new = new.into_iter().chain(std::iter::repeat_with(|| RecoveredExtent::alone(0))).take(missing);
        self.extents.extend(new.map(MirroredExtent::new));
        (0..places).for_each(|slot| self.make_room(slot));
    }

    /// True if the volume has slots for more than one replica.
    pub fn has_replicas(&self) -> bool {
        self.replicas.len() > 1
    }

    /// Number of extents.
    pub fn extents(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Number of requests and resync steps that are not forgotten.
    pub fn operations(&self) -> usize {
        self.operations.len() - self.free.len()
    }

    /// True if the range is known to hold no data.
    pub fn is_hole(&self, extent: u32, offset: u32, length: u32) -> bool {
        let slot = self.readable(extent, offset, length).first();
        slot.is_some_and(|slot| self.replicas[slot].is_hole(extent, offset, length))
    }

    /// True if a replica of an extent can be reached and has not failed.
    pub fn is_there(&self, extent: u32, slot: usize) -> bool {
        self.extents.get(extent as usize).is_some_and(|extent| extent.is_there[slot])
    }

    /// True if a replica of an extent still has the file of this generation, and not one that replaced it.
    pub fn is_current(&self, slot: usize, extent: u32, generation: Generation) -> bool {
        self.replicas.get(slot).is_some_and(|replica| replica.is_current(extent, generation))
    }

    /// Replicas of an extent that have everything and can be reached.
    pub fn in_sync(&self, extent: u32) -> Slots {
        self.extents.get(extent as usize).map(MirroredExtent::in_sync).unwrap_or_default()
    }

    /// Replicas of an extent that can be reached and have not failed.
    pub fn in_service(&self, extent: u32) -> Slots {
        (0..self.replicas.len()).filter(|slot| self.is_there(extent, *slot)).collect()
    }

    /// True if another replica of an extent has everything and can be reached.
    pub fn has_other(&self, extent: u32, slot: usize) -> bool {
        self.extents.get(extent as usize).is_some_and(|extent| extent.in_sync().has_other(slot))
    }

    /// True if every request to an extent fails.
    pub fn is_lost(&self, extent: u32) -> bool {
        self.in_sync(extent).is_empty()
    }

    /// The [`Action::Zero`] of an operation of a replica, for executors that need more than one step.
    pub fn zeroing(&self, slot: usize, operation: OperationId) -> Option<Action> {
        self.replicas[slot].zeroing(operation)
    }

    /// Fails a replica of an extent.
    pub fn fail_replica(&mut self, extent: u32, slot: usize, effects: &mut Vec<Effect>) {
        let Some(replica) = self.replicas.get_mut(slot) else { return };
        let mut actions = std::mem::take(&mut self.spare);
        replica.fail_replica(extent, &mut actions);
        self.take(slot, actions, effects);
    }

    /// Replica states of an extent as wanted, durable or not.
    pub fn replica_states(&self, extent: u32) -> ReplicaStates {
        self.extents[extent as usize].wanted.replica_states
    }

    /// Replica states of an extent that can be relied on. A replica counts as in sync or absent only if this
    /// is so and durably recorded. Every other durably recorded replica counts as stale.
    pub fn reliable_replica_states(&self, extent: u32) -> ReplicaStates {
        let MirroredExtent { wanted, recorded, .. } = &self.extents[extent as usize];
        std::array::from_fn(|slot| match recorded.replica_states[slot] {
            ReplicaState::Absent => ReplicaState::Absent,
            known if known == wanted.replica_states[slot] => known,
            _ => ReplicaState::Stale,
        })
    }

    /// Replicas of an extent that may be read in a range.
    pub fn readable(&self, extent: u32, offset: u32, length: u32) -> Slots {
        self.extents[extent as usize].readable(offset, length)
    }

    /// Sets the duration of a read from a replica of an extent, in any unit: the fastest readable replicas
    /// are read.
    pub fn set_read_cost(&mut self, extent: u32, slot: usize, cost: u32) {
        if let Some(state) = self.extents.get_mut(extent as usize) {
            state.read_costs[slot] = cost;
        }
    }

    /// Starts a request. It ends with an [`Effect::Done`], in this call or later.
    pub fn start(&mut self, request: Request, effects: &mut Vec<Effect>) -> MirrorId {
        let id = self.insert(Operation::new(request, None));
        if request.extent as usize >= self.extents.len() {
            self.finish(id, Err(Fault::OutOfRange), effects);
        } else if request.kind == Kind::Read {
            self.read(id, effects);
        } else {
            self.enqueue(id, effects);
        }
        id
    }

    fn insert(&mut self, operation: Operation) -> MirrorId {
        let number = self.free.pop().unwrap_or(self.operations.len() as u32);
        if number as usize == self.operations.len() {
            self.operations.push(None);
        }
        self.operations[number as usize] = Some(operation);
        MirrorId(number)
    }

    fn operation(&mut self, id: MirrorId) -> &mut Operation {
        self.operations[id.0 as usize].as_mut().expect("an operation is known until it is done")
    }

    fn extent_of(&mut self, id: MirrorId) -> &mut MirroredExtent {
        let extent = self.operation(id).request.extent;
        &mut self.extents[extent as usize]
    }

    /// Reads from the next replica that may be read and was not tried.
    fn read(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { request, failed, fault, .. } = *self.operation(id);
        let extent = &mut self.extents[request.extent as usize];
        if extent.is_open(&request) && !extent.in_sync().is_empty() {
            extent.reads_waiting.push(id);
            return self.write_metadata(request.extent, effects);
        }
        match extent.read_from(&request, failed) {
            Some(slot) => self.launch(id, Slots::one(slot), effects),
            None if self.starts_over(id) => self.read(id, effects),
            None => self.finish(id, Err(fault.unwrap_or(Fault::Broken)), effects),
        }
    }

    /// Lets a change begin, unless an overlapping operation must end first or a snapshot needs the old data.
    fn enqueue(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { request, step, is_scrub, .. } = *self.operation(id);
        let is_owed = step.is_none() && !is_scrub && self.is_owed(&request);
        let extent = self.extent_of(id);
        let is_ordered = !extent.is_alone() || extent.is_scrubbed();
        if is_owed || is_ordered && self.collides(id) {
            self.extent_of(id).waiting.push_back(id);
            if is_owed {
                self.go_on_with_snapshot(effects);
            }
            return;
        }
        let extent = self.extent_of(id);
        extent.running.push(id);
        let has_checksums = extent.checksums.is_some();
        match *self.operation(id) {
            Operation { step: Some(_), .. } => self.resync_piece(id, effects),
            Operation { is_scrub: true, .. } => self.examine(id, effects),
            _ if has_checksums => self.invalidate_checksums(id, effects),
            _ => self.begin_change(id, effects),
        }
    }

    /// Begins a change whose turn it is.
    fn begin_change(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        match self.extent_of(id).is_alone() {
            true => self.change(id, effects),
            false => self.mark(id, effects),
        }
    }

    /// True if an operation overlaps one that has begun or waits ahead of it.
    fn collides(&mut self, id: MirrorId) -> bool {
        let Operation { request, .. } = *self.operation(id);
        self.is_busy(&request)
    }

    /// True if a running or waiting operation overlaps the range.
    fn is_busy(&self, request: &Request) -> bool {
        let range = (request.offset, request.length);
        let extent = &self.extents[request.extent as usize];
        let other = |other: &MirrorId| self.operations[other.0 as usize].as_ref();
        let mut ahead = extent.running.iter().chain(&extent.waiting).filter_map(other);
        ahead.any(|other| overlap(range, other.range()))
    }

    fn mark(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let request = self.operation(id).request;
        self.operation(id).stage = Stage::Marking;
        if self.extent_of(id).mark(&request) || self.extent_of(id).in_sync().is_empty() {
            self.change(id, effects);
        } else {
            self.write_metadata(request.extent, effects);
        }
    }

    /// Sends a change to all replicas that must or can take it.
    fn change(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let request = self.operation(id).request;
        let extent = self.extent_of(id);
        let targets = extent.targets(&request);
        if extent.in_sync().is_empty() {
            return self.conclude(id, Err(Fault::Broken), effects);
        }
        self.launch(id, targets, effects);
    }

    /// Starts an operation on several replicas.
    fn launch(&mut self, id: MirrorId, slots: Slots, effects: &mut Vec<Effect>) {
        let operation = self.operation(id);
        let request = operation.request;
        operation.stage = Stage::Running;
        // The count is complete before the first start: an operation that ends at once must not look like the
        // last.
        operation.left += slots.len() as u32;
        let in_sync = slots.both(self.extents[request.extent as usize].in_sync());
        let relied_on = &mut self.operation(id).relied_on;
        *relied_on = relied_on.either(in_sync);
        for slot in slots.iter() {
            let mut actions = std::mem::take(&mut self.spare);
            let inner = self.replicas[slot].start(request, &mut actions);
            self.own(slot, inner, id);
            self.take(slot, actions, effects);
        }
    }

    fn own(&mut self, slot: usize, inner: OperationId, id: MirrorId) {
        let owners = &mut self.owners[slot];
        if owners.len() <= inner.0 as usize {
            owners.resize(inner.0 as usize + 1, None);
        }
        owners[inner.0 as usize] = Some(id);
    }

    /// Passes on the actions of a replica, and handles those that tell of an end.
    fn take(&mut self, slot: usize, mut actions: Vec<Action>, effects: &mut Vec<Effect>) {
        for action in actions.drain(..) {
            match action {
                Action::Done { operation, result } => self.ended(slot, operation, result, effects),
                Action::Flushed { flush, result } => self.replica_flushed(slot, flush, result, effects),
                Action::FailReplica { extent, remains } => {
                    self.replica_failed((slot, extent), remains, effects)
                }
                action => {
                    let owner = action.operation().and_then(|id| self.owners[slot][id.0 as usize]);
                    effects.push(Effect::Act { slot, owner, action });
                }
            }
        }
        self.spare = actions;
    }

    /// Takes the executor's answer to an action on a replica.
    pub fn answer(&mut self, slot: usize, answer: Answer, effects: &mut Vec<Effect>) {
        let (replica, mut actions) = (&mut self.replicas[slot], std::mem::take(&mut self.spare));
        match answer {
            Answer::Opened(extent, generation, result) => {
                replica.opened((extent, generation), result, &mut actions);
            }
            Answer::Allocated(extent, generation, piece) => {
                replica.allocated((extent, generation), piece, &mut actions);
            }
            Answer::Refused(extent, generation, piece, fault) => {
                replica.refused((extent, generation), piece, fault, &mut actions);
            }
            Answer::Completed(operation, result) => replica.completed(operation, result, &mut actions),
            Answer::Synced(extent, generation, result) => {
                replica.synced((extent, generation), result, &mut actions);
            }
        }
        self.take(slot, actions, effects);
    }

    /// Handles the end of an operation of a replica.
    fn ended(
        &mut self,
        slot: usize,
        inner: OperationId,
        result: Result<Content, Fault>,
        effects: &mut Vec<Effect>,
    ) {
        let owner = self.owners[slot][inner.0 as usize].take();
        let id = owner.expect("an operation of a replica has an owner until it ends");
        let operation = self.operation(id);
        operation.answered(slot, inner, result);
        let is_read = operation.request.kind == Kind::Read;
        let (left, step, is_scrub) = (operation.left, operation.step, operation.is_scrub);
        if !(is_read && result.is_ok()) {
            self.replicas[slot].forget(inner);
            effects.push(Effect::Ended { slot, operation: inner });
        }
        match (left, step, is_read) {
            (1.., ..) => {}
            (0, None, _) if is_scrub => self.scrub_ended(id, effects),
            (0, Some(_), _) => self.piece_ended(id, effects),
            (0, None, true) => self.read_ended(id, effects),
            (0, None, false) => self.settle(id, effects),
        }
    }

    fn read_ended(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { source, content, .. } = *self.operation(id);
        match source {
            Some(_) => self.finish(id, Ok(content), effects),
            None => self.read(id, effects),
        }
    }

    /// Decides the result of a change that all replicas have answered.
    fn settle(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { request, succeeded, failed, fault, .. } = *self.operation(id);
        let extent = self.extent_of(id);
        let has_it = |slot: usize| extent.wanted.replica_states[slot] == ReplicaState::InSync;
        if failed.is_empty() {
            return self.conclude(id, Ok(Content::Data), effects);
        }
        let has_failed = !succeeded.iter().any(has_it);
        if has_failed && fault != Some(Fault::Unsupported) && self.starts_over(id) {
            return self.mark(id, effects);
        }
        let extent = self.extent_of(id);
        if has_failed || fault == Some(Fault::Unsupported) {
            // The change was not acknowledged, but replicas may differ now.
            extent.fall_apart(&request);
            return self.conclude(id, Err(fault.unwrap_or(Fault::Broken)), effects);
        }
        for slot in failed.iter() {
            extent.degrade(slot);
            extent.lose(slot, &request);
        }
        self.operation(id).stage = Stage::Recording;
        self.write_metadata(request.extent, effects);
        self.look_again(request.extent, effects);
    }

    /// True if the remaining replicas are asked once more, because a replica that was in sync when it was
    /// asked is not any more. Without the retry, a mere shortage on a remaining replica would reach the
    /// client as the failure of the other replica.
    fn starts_over(&mut self, id: MirrorId) -> bool {
        let relied_on = self.operation(id).relied_on;
        let in_sync = self.extent_of(id).in_sync();
        let can_start_over = !in_sync.is_empty() && !relied_on.without(in_sync).is_empty();
        if can_start_over {
            self.operation(id).forget_answers();
        }
        can_start_over
    }

    /// Ends a change and lets the changes begin that waited for it.
    fn conclude(&mut self, id: MirrorId, result: Result<Content, Fault>, effects: &mut Vec<Effect>) {
        let extent = self.extent_of(id);
        extent.running.retain(|other| *other != id);
        let index = self.operation(id).request.extent;
        self.finish(id, result, effects);
        self.enqueue_again(index, effects);
        self.go_on_with_snapshot(effects);
    }

    fn finish(&mut self, id: MirrorId, result: Result<Content, Fault>, effects: &mut Vec<Effect>) {
        self.operation(id).stage = Stage::Ended;
        let source = self.operation(id).source.filter(|_| result.is_ok());
        effects.push(Effect::Done { operation: id, result, source });
    }

    /// Notes that the executor has acted on the end of a request or step: its number may be used again from
    /// now on.
    pub fn forget(&mut self, id: MirrorId) {
        let operation = self.operations[id.0 as usize].take().expect("an operation is forgotten once");
        if let Some((slot, inner)) = operation.source {
            self.replicas[slot].forget(inner);
        }
        self.free.push(id.0);
    }

    /// Handles the failure of a replica of an extent.
    fn replica_failed(&mut self, (slot, extent): (usize, u32), remains: Remains, effects: &mut Vec<Effect>) {
        self.failed_replicas.push((slot, extent));
        let state = &mut self.extents[extent as usize];
        state.fall(slot);
        if state.wanted.replica_states[slot] != ReplicaState::Absent {
            effects.push(Effect::ReplicaFailed { slot, extent, remains });
        }
        // No replica is left beside which metadata could record the failure.
        let was_last =
            state.wanted.replica_states[slot] == ReplicaState::InSync && state.in_sync().is_empty();
        if was_last && remains == Remains::Unknown {
            effects.push(Effect::RecordFailure { extent });
        }
        self.write_metadata(extent, effects);
        self.look_again(extent, effects);
        self.go_on_invalidating(extent, effects);
    }

    /// Makes all acknowledged writes stable; ends with [`Effect::Flushed`].
    pub fn flush(&mut self, flush: u32, effects: &mut Vec<Effect>) {
        self.flush_for(Purpose::Client(flush), effects);
    }

    fn flush_for(&mut self, purpose: Purpose, effects: &mut Vec<Effect>) {
        self.flush_number = self.flush_number.wrapping_add(1);
        let number = self.flush_number;
        let left = self.replicas.len() as u32;
        let only = if let Purpose::WriteHeaders(extent) = purpose { Some(extent) } else { None };
        self.flushes.push(PendingFlush { number, left, failed: Slots::default(), purpose });
        for slot in 0..self.replicas.len() {
            let mut actions = Vec::new();
            match only {
                Some(extent) => self.replicas[slot].flush_extent(number, extent, &mut actions),
                None => self.replicas[slot].flush(number, &mut actions),
            }
            self.take(slot, actions, effects);
        }
    }

    fn replica_flushed(
        &mut self,
        slot: usize,
        number: u32,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) {
        let pending = self.flushes.iter_mut().find(|pending| pending.number == number);
        let pending = pending.expect("a flush waits for all replicas");
        pending.left -= 1;
        if result.is_err() {
            pending.failed.insert(slot);
        }
        if pending.left == 0 {
            // Refused metadata is written again here: a flush that waits for it may be the only request.
            self.failures_unrecorded().into_iter().for_each(|extent| self.write_metadata(extent, effects));
        }
        self.finish_flushes(effects);
    }

    /// Extents with a failed replica whose failure is not recorded, although it can be.
    fn failures_unrecorded(&self) -> Vec<u32> {
        let is_unrecorded = |index: &u32| {
            let extent = &self.extents[*index as usize];
            !extent.is_recorded() && !extent.in_sync().is_empty()
        };
        self.failed_replicas.iter().map(|(_, extent)| *extent).filter(is_unrecorded).collect()
    }

    /// Ends the flushes that all replicas have answered, once the failures of replicas are recorded.
    fn finish_flushes(&mut self, effects: &mut Vec<Effect>) {
        let is_recorded = self.failures_unrecorded().is_empty();
        while let Some(index) = self.flushes.iter().position(|pending| pending.left == 0 && is_recorded) {
            let pending = self.flushes.swap_remove(index);
            let result = if self.is_kept(pending.failed) { Ok(()) } else { Err(Fault::Broken) };
            match pending.purpose {
                Purpose::Client(flush) => effects.push(Effect::Flushed { flush, result }),
                Purpose::Tidy(extent, regions) => self.unmark(extent, &regions, effects),
                Purpose::Promote(extent, slot, version) => self.promoted(extent, slot, version, effects),
                Purpose::WriteHeaders(extent) => self.flushed_for_checksums(extent, effects),
                Purpose::Nothing => {}
            }
        }
    }

    /// True if data that these replicas could not make stable is stable on another replica.
    fn is_kept(&self, failed: Slots) -> bool {
        let of_failed = self.failed_replicas.iter().filter(|(slot, _)| failed.contains(*slot));
        let mut extents = of_failed.map(|(_, extent)| &self.extents[*extent as usize]);
        extents.all(|extent| !extent.in_sync().is_empty())
    }
}
