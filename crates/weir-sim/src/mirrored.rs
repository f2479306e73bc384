//! A volume with several replicas in an imagined machine: drives that fail, fill up, go and come back, power cuts at any
//! instant, replicas that are resynced, added and given up meanwhile; scrubs, and blocks that rot.

mod absence;
mod background;
mod checksums;
mod crash;
mod doubting;
mod drive;
mod faults;
mod journaling;
mod metadata;
mod moving;
mod resizing;
mod settings;
mod snapshots;
mod stalling;
mod swapping;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES, PIECE_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::ResyncQueue;
use weir_volume::mirror::{
    Agenda, Answer, ChecksumWork, Effect, EpochRecord, MetadataWrites, MirrorId, ReplicaMetadata,
    ReplicaState, ReplicaStates, Slots, epoch_record,
};
use weir_volume::{Action, Content, Fault, Generation, Kind, Mirror, OperationId, Request};

use crate::disk::{Block, SyncPoint};
use crate::history::History;
use crate::requests::{EXTENTS, FOREIGN, payload, random_request, sectors};
use crate::transfer;
use crate::{SECTOR_BYTES, Stamp};
use absence::Originals;
use checksums::Scrubs;
use drive::Drive;
use journaling::{Journaling, Work};
use metadata::Record;
use moving::Control;
pub use settings::{Abilities, Report, Rot, Sabotage, Settings};
use snapshots::{Piece, VolumeSnapshot};
use stalling::Orphan;
use swapping::OlderState;
use weir_types::random::Random;

/// An operation that will be answered.
#[derive(Clone, Debug)]
enum Pending {
    Action(usize, Option<MirrorId>, Action),
    /// A sync covers the changes that existed when it began.
    Sync(usize, (u32, Generation), SyncPoint),
    Record {
        extent: u32,
        epoch: u64,
        is_committed: bool,
    },
    /// The record that the last replica in sync of an extent failed.
    Failure(u32),
    Metadata {
        slot: usize,
        extent: u32,
        metadata: Arc<ReplicaMetadata>,
        /// True if the write goes in place over metadata whose last write failed. If power fails during the
        /// write, both blocks of the metadata may be torn.
        is_over_doubtful: bool,
    },
    BeginSnapshot,
    Snapshot(Piece),
    ChecksumWork(u32, Box<ChecksumWork>),
    Journal(Work),
}

/// A request without an answer yet.
#[derive(Clone, Debug)]
struct InFlight {
    request: Request,
    stamp: Stamp,
    began: u64,
    /// Instant at which an authoritative replica last failed the request.
    failed_at: u64,
}

struct MirrorWorld {
    settings: Settings,
    random: Random,
    now: u64,
    mirror: Mirror,
    drives: Vec<Drive>,
    /// Epoch record of each extent, as last read from the file.
    epoch_record: Vec<EpochRecord>,
    metadata: MetadataWrites,
    /// The file of the epoch records.
    record: Record,
    /// Extents and epochs whose recording as committed failed and is retried.
    record_failed: BTreeSet<(u32, u64)>,
    /// Step up to which power is likely to fail, because of a doubtful answer (see `doubting`).
    doubtful_until: u64,
    /// Extent replicas in which a change or a sync failed since the last start.
    unknown: BTreeSet<(usize, u32)>,
    /// Extent replicas whose metadata could not be written since the last start.
    metadata_failed: BTreeSet<(usize, u32)>,
    /// Replicas in sync, by extent, that must take the metadata in flight.
    relied_on: BTreeMap<u32, Slots>,
    /// Last instant, by extent, at which no replica in sync could take metadata.
    refused_at: BTreeMap<u32, u64>,
    /// Durable replica states of each extent.
    stands: Vec<ReplicaStates>,
    /// Extent replicas that failed since the last start and have not rejoined.
    replica_failed: BTreeSet<(usize, u32)>,
    pending: Vec<Pending>,
    /// Effects of the mirror that are not carried out yet, in order, as in the data plane.
    asked: Vec<Effect>,
    agenda: Agenda,
    /// Request or step that each replica operation belongs to, from the first action of the operation to its
    /// end.
    contexts: BTreeMap<(usize, OperationId), MirrorId>,
    /// Orphaned I/O: operations that were given up and that drives may still carry out.
    orphans: Vec<Orphan>,
    /// Operations from before the last start that drives may still carry out, if the start did not wait for
    /// them.
    unfenced: Vec<Orphan>,
    /// Backups of extent replicas, each complete, by slot and extent.
    older: BTreeMap<(usize, u32), OlderState>,
    /// Extent replicas in an older state that the metadata still counts as in sync.
    older_in_sync: BTreeSet<(usize, u32)>,
    /// Files that were open before others were put in their places.
    originals: Originals,
    /// Replicas that failed because another file was in the place of theirs.
    replaced: BTreeSet<(usize, u32)>,
    /// When a replica of an extent last was short of something.
    short_at: BTreeMap<(usize, u32), u64>,
    /// Regions in which a change failed since the last start. Replicas in sync may differ there.
    differing: BTreeSet<(u32, u32)>,
    in_flight: BTreeMap<MirrorId, InFlight>,
    steps: BTreeMap<MirrorId, Vec<Stamp>>,
    buffers: BTreeMap<(usize, OperationId), Vec<Stamp>>,
    /// Drives that were reachable at the start of the volume.
    reachable: [bool; REPLICA_SLOTS_MAX],
    flushes: BTreeMap<u32, u64>,
    snapshot: Option<VolumeSnapshot>,
    journaling: Option<Journaling>,
    control: Control,
    resync: ResyncQueue,
    history: History,
    next_stamp: Stamp,
    scrubs: Scrubs,
    /// True once no more faults are injected.
    is_resting: bool,
    /// True while no new work begins, until the volume is resized.
    is_resizing: bool,
    report: Report,
}

/// Runs one world to its end: all replicas that can be resynced are, and then they are alike.
///
/// # Errors
/// Names the promise that was broken.
pub fn run(settings: Settings) -> Result<Report, String> {
    let mut world = MirrorWorld::new(settings);
    for _ in 0..settings.steps {
        world.step()?;
    }
    world.settle()?;
    world.rot_some()?;
    world.crash()?;
    world.make_up()?;
    if settings.is_moved {
        world.finish_moves()?;
    }
    if settings.scrubs_per_mille > 0 {
        world.scrub_all()?;
    }
    world.compare()?;
    Ok(world.report)
}

/// Sectors of a piece.
const PIECE_SECTORS: usize = PIECE_BYTES as usize / SECTOR_BYTES as usize;

/// Memory fresh from a pool: it holds bytes of another tenant.
fn foreign_piece() -> Vec<Stamp> {
    vec![FOREIGN; PIECE_SECTORS]
}

impl MirrorWorld {
    fn new(settings: Settings) -> MirrorWorld {
        let replica_state =
            |slot| if slot < settings.replicas { ReplicaState::InSync } else { ReplicaState::Absent };
        let metadata =
            ReplicaMetadata::first(epoch_record::first_epoch(&[]), std::array::from_fn(replica_state));
        // The only replica of an extent has no metadata.
        let has_metadata = !settings.is_moved || settings.replicas > 1;
        let drive = |slot: usize| Drive::new(settings, slot, has_metadata.then_some(&metadata));
        let drives: Vec<Drive> = (0..REPLICA_SLOTS_MAX).map(drive).collect();
        let mut record = if has_metadata { Record::new(metadata.epoch) } else { Record::default() };
        let epoch_record = record.found();
        let control = Control::new(settings);
        let begun = control
            .recovered_extents(&drives, &[true; REPLICA_SLOTS_MAX], &epoch_record)
            .expect("all is there");
        let mut world = MirrorWorld {
            settings,
            random: Random::new(settings.seed),
            now: 1,
            mirror: Mirror::new(u64::from(EXTENTS) * EXTENT_BYTES, REPLICA_SLOTS_MAX, begun),
            drives,
            epoch_record,
            metadata: MetadataWrites::default(),
            record,
            record_failed: BTreeSet::new(),
            doubtful_until: 0,
            unknown: BTreeSet::new(),
            metadata_failed: BTreeSet::new(),
            relied_on: BTreeMap::new(),
            refused_at: BTreeMap::new(),
            stands: vec![metadata.replica_states; EXTENTS as usize],
            replica_failed: BTreeSet::new(),
            pending: Vec::new(),
            asked: Vec::new(),
            agenda: Agenda::default(),
            contexts: BTreeMap::new(),
            orphans: Vec::new(),
            unfenced: Vec::new(),
            older: BTreeMap::new(),
            older_in_sync: BTreeSet::new(),
            originals: Originals::new(),
            replaced: BTreeSet::new(),
            short_at: BTreeMap::new(),
            differing: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            steps: BTreeMap::new(),
            buffers: BTreeMap::new(),
            reachable: [true; REPLICA_SLOTS_MAX],
            flushes: BTreeMap::new(),
            snapshot: None,
            journaling: Journaling::new(settings),
            control,
            resync: ResyncQueue::default(),
            history: History::default(),
            next_stamp: 1,
            scrubs: Scrubs::default(),
            is_resting: false,
            is_resizing: false,
            report: Report::default(),
        };
        world.resync = ResyncQueue::new(&world.mirror);
        world.leave_rot_alone();
        world
    }

    /// Takes one random step.
    fn step(&mut self) -> Result<(), String> {
        self.now += 1;
        let Settings { breaks_per_ten_thousand, moves_per_mille, .. } = self.settings;
        if self.is_power_failing() {
            return self.crash();
        }
        if self.random.chance(breaks_per_ten_thousand, 10_000) {
            let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
            self.drives[slot].is_broken = true;
            self.drives[slot].has_failed = true;
        }
        self.change_metadata_faults();
        self.keep_older_states()?;
        if self.random.chance(1, 40) {
            self.retry_metadata()?;
        }
        if self.random.chance(10 * breaks_per_ten_thousand, 10_000) || self.is_looked_at_again() {
            return self.bring_back();
        }
        if self.random.chance(moves_per_mille, 1000) {
            return self.change_replicas();
        }
        self.carry_out_unfenced();
        self.go_and_return()?;
        self.look_at_journal()?;
        if self.settings.stalls_per_ten_thousand > 0 && self.stall()? || self.resize_sometimes()? {
            return Ok(());
        }
        if self.settings.is_moved && self.random.chance(1, 15) {
            return self.move_replicas();
        }
        let snapshots = self.settings.snapshots_per_mille;
        if snapshots > 0 && self.random.chance(snapshots, 1000) {
            self.quiesce_for_snapshot();
        }
        if self.settings.scrubs_per_mille > 0 && self.random.chance(self.settings.scrubs_per_mille, 1000) {
            return self.scrub_some();
        }
        if self.settings.rot == Rot::Always && self.random.chance(1, 300) {
            self.rot_a_block(self.now as u32 % EXTENTS);
        }
        if self.random.chance(1, self.settings.steps_between_background) {
            return self.work_in_the_background();
        }
        let has_room = self.in_flight.len() + self.flushes.len() < self.settings.depth;
        if has_room && !self.is_journal_left_alone() && self.random.chance(1, 2) {
            return self.send();
        }
        self.answer_one()
    }

    /// Answers all outstanding operations, with all drives working. Refused metadata is written again until a
    /// replica takes it.
    fn settle(&mut self) -> Result<(), String> {
        self.drives.iter_mut().for_each(|drive| (drive.is_silent, drive.is_broken) = (false, false));
        self.end_metadata_faults();
        self.return_all()?;
        while !self.is_all_parked() || !self.orphans.is_empty() || !self.metadata.is_idle() {
            self.now += 1;
            self.answer_one()?;
            if self.is_all_parked() {
                self.come_back()?;
                self.retry_metadata()?;
            }
            self.renew_invalidated()?;
        }
        let left = self.in_flight.len() + self.flushes.len() + self.steps.len();
        if left > 0 && !self.is_journal_jammed() {
            Err(format!("{left} requests were never answered"))
        } else {
            Ok(())
        }
    }

    fn send(&mut self) -> Result<(), String> {
        let mut effects = Vec::new();
        if self.random.chance(1, 12) {
            let flush = (0..).find(|number| !self.flushes.contains_key(number)).expect("numbers do not end");
            self.flushes.insert(flush, self.now);
            self.mirror.flush(flush, &mut effects);
            return self.take(effects);
        }
        let request = random_request(&mut self.random);
        let is_write = matches!(request.kind, Kind::Write { .. });
        let stamp = if is_write { self.next_stamp } else { 0 };
        self.next_stamp += 1;
        if request.kind != Kind::Read {
            sectors(&request).for_each(|sector| self.history.write_began(sector, stamp, self.now));
        }
        let id = self.mirror.start(request, &mut effects);
        self.in_flight.insert(id, InFlight { request, stamp, began: self.now, failed_at: 0 });
        self.take(effects)
    }

    /// Takes over what the mirror wants, and carries it out in its turn.
    fn take(&mut self, effects: Vec<Effect>) -> Result<(), String> {
        self.asked.extend(effects);
        while let Some(mut effects) = self.agenda.begin(&mut self.asked) {
            for effect in effects.drain(..) {
                self.take_one(effect)?;
            }
            self.agenda.end(effects);
        }
        Ok(())
    }

    fn take_one(&mut self, effect: Effect) -> Result<(), String> {
        self.note(&effect);
        match effect {
            Effect::Act { slot, action: Action::Sync { extent, generation }, .. }
                if self.is_behind(slot) && self.settings.sabotage != Sabotage::SyncsFilesAlone =>
            {
                self.sync_journaled(extent, generation)?;
            }
            Effect::Act { slot, action: Action::Sync { extent, generation }, .. } => {
                let point = self.drives[slot].files[extent as usize].sync_point();
                self.pending.push(Pending::Sync(slot, (extent, generation), point));
            }
            Effect::Act { slot, owner, action } => {
                if let (Some(operation), Some(owner)) = (action.operation(), owner) {
                    self.contexts.entry((slot, operation)).or_insert(owner);
                }
                self.prepare(slot, owner, &action);
                self.pending.push(Pending::Action(slot, owner, action));
            }
            Effect::Ended { slot, operation } => self.end_operation(slot, operation),
            Effect::WriteMetadata(request) => self.ask_for_metadata(*request)?,
            Effect::Refused { extent, slot } => self.addition_refused(extent, slot),
            Effect::Examine { id, slot, operation, content } => {
                self.examine(id, (slot, operation), content)?;
            }
            Effect::Zeroes { id } => {
                let step = self.steps.get_mut(&id).ok_or("nobody has memory to fill with zeroes")?;
                step.fill(0);
            }
            Effect::ChecksumWork { extent, work } => self.keep(extent, *work)?,
            Effect::Scrubbed { extent, report } => self.scrubbed(extent, &report)?,
            Effect::Done { operation, result, source } => self.done(operation, result, source)?,
            Effect::Flushed { flush, result } => self.flushed(flush, result),
            Effect::Snapshot { extent, slots, offset, length } => {
                let piece = Piece { extent, slots, offset, length };
                // None of these can be in the snapshot: that is known at once, while other effects wait for their turn.
                if self.random.chance(1, 20) {
                    let mut effects = Vec::new();
                    self.mirror.snapshots().step_done(offset + length, slots, &mut effects);
                    return self.take(effects);
                }
                self.pending.push(Pending::Snapshot(piece));
            }
            Effect::SnapshotEnded { replicas } => self.check_snapshot(replicas)?,
            Effect::ReplicaStates { extent, replica_states, .. } => {
                self.report.replica_states += 1;
                self.stands[extent as usize] = replica_states;
                self.resync.look_at(extent);
                self.older_in_sync
                    .retain(|(slot, of)| *of != extent || replica_states[*slot] == ReplicaState::InSync);
                let mirror = &self.mirror;
                self.control.hear(extent, Some(&replica_states), |slot| mirror.has_answered(extent, slot));
                self.forget_journaled(extent)?;
            }
            Effect::RecordFailure { extent } => self.pending.push(Pending::Failure(extent)),
            Effect::ReplicaFailed { slot, extent, .. } => self.replica_fell(slot, extent)?,
        }
        Ok(())
    }

    /// A replica has failed. Only a drive that failed, or metadata that could not be written, may cost one.
    fn replica_fell(&mut self, slot: usize, extent: u32) -> Result<(), String> {
        self.replica_failed.insert((slot, extent));
        self.suspend_journaled((slot, extent))?;
        let lacks_metadata = self.metadata_failed.contains(&(slot, extent));
        let is_last = !self.mirror.has_other(extent, slot);
        let Drive { is_silent, is_absent, is_broken, .. } = self.drives[slot];
        let is_merely_silent = (is_silent || is_absent) && !is_broken;
        let is_in_doubt = self.unknown.contains(&(slot, extent)) || lacks_metadata || self.is_behind(slot);
        let is_in_doubt = is_in_doubt || self.replaced.contains(&(slot, extent));
        if is_last && is_merely_silent && !is_in_doubt {
            return Err(format!("replica {slot} of extent {extent}, the last in sync, fell to a silence"));
        }
        if !self.has_failed(slot) && (is_last || !lacks_metadata) {
            return Err(format!("replica {slot} of extent {extent} fell though its drive is well"));
        }
        Ok(())
    }

    fn note(&mut self, effect: &Effect) {
        // This hasher gives equal hashes in every process.
        let mut hasher = DefaultHasher::new();
        (self.report.trace_hash, self.now, effect).hash(&mut hasher);
        self.report.trace_hash = hasher.finish();
    }

    /// Handles the end of a replica operation.
    fn end_operation(&mut self, slot: usize, operation: OperationId) {
        self.contexts.remove(&(slot, operation));
        self.buffers.remove(&(slot, operation));
    }

    /// Fills the buffer of a replica operation at its first action.
    fn prepare(&mut self, slot: usize, owner: Option<MirrorId>, action: &Action) {
        let (Some(inner), Some(owner)) = (action.operation(), owner) else { return };
        if let Some(flying) = self.in_flight.get(&owner) {
            let fresh = || payload(&flying.request, flying.stamp);
            self.buffers.entry((slot, inner)).or_insert_with(fresh);
        } else if let Some(step) = self.steps.get(&owner) {
            self.buffers.entry((slot, inner)).or_insert_with(|| step.clone());
        } else {
            // The owner has just begun and is not entered yet. The buffer is filled when the action is
            // answered.
        }
    }

    /// Answers one random outstanding operation.
    fn answer_one(&mut self) -> Result<(), String> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.pending.len() as u64) as usize;
        let is_parked = self.is_parked(&self.pending[index]);
        if is_parked || self.is_silent(&self.pending[index]) || self.is_slow(index) {
            return Ok(());
        }
        let pending = self.pending.swap_remove(index);
        self.answer(pending)
    }

    /// Carries out an operation and answers it.
    fn answer(&mut self, pending: Pending) -> Result<(), String> {
        let mut effects = Vec::new();
        match pending {
            Pending::BeginSnapshot => self.begin_snapshot(&mut effects),
            Pending::Snapshot(piece) => self.snapshot(piece, &mut effects),
            Pending::Failure(extent) => self.answer_failure(extent),
            Pending::Record { extent, epoch, is_committed } => {
                self.answer_record(extent, epoch, is_committed)?;
            }
            Pending::Metadata { slot, extent, metadata, .. } => {
                self.answer_metadata(slot, extent, &metadata)?
            }
            Pending::ChecksumWork(extent, work) => self.carry_out_keep(extent, *work, &mut effects),
            Pending::Sync(slot, (extent, generation), point) => {
                let result = if self.drives[slot].is_broken { Err(Fault::Broken) } else { Ok(()) };
                // A sync of an earlier file says nothing about the current file.
                if result.is_ok() && self.mirror.is_current(slot, extent, generation) {
                    self.drives[slot].files[extent as usize].sync(point);
                } else {
                    self.unknown.insert((slot, extent));
                    self.note_late_sync(slot, extent);
                }
                self.mirror.answer(slot, Answer::Synced(extent, generation, result), &mut effects);
            }
            Pending::Journal(work) => self.answer_journal(work)?,
            Pending::Action(slot, owner, action) => {
                let context = action.operation().map(|operation| (slot, operation));
                if let Some(context) = context.filter(|context| !self.contexts.contains_key(context)) {
                    return Err(format!("{context:?} is asked for {action:?} after its end"));
                }
                self.prepare(slot, owner, &action);
                let extent = action.extent().expect("ends are not carried out");
                let is_of_file = matches!(action, Action::Open { .. } | Action::Allocate { .. });
                if self.is_behind(slot) && !is_of_file {
                    return self.ask_journal(owner, &action);
                }
                let refusal = self.refusal(slot, &action).filter(|_| self.random.chance(1, 2));
                let answer = refusal.unwrap_or_else(|| self.carry_out(slot, owner, action));
                self.note_unknown(slot, &action, &answer);
                self.note_fault((slot, extent), owner, &answer);
                self.mirror.answer(slot, answer, &mut effects);
            }
        }
        self.take(effects)
    }

    fn random_fault(&mut self, slot: usize) -> Option<Fault> {
        let is_full = self.random.chance(self.settings.full_per_mille, 1000);
        let is_broken = self.drives[slot].is_broken || self.is_failing_once(slot);
        is_broken.then_some(Fault::Broken).or(is_full.then_some(Fault::NoSpace))
    }

    fn carry_out(&mut self, slot: usize, owner: Option<MirrorId>, action: Action) -> Answer {
        let fault = self.random_fault(slot);
        match action {
            Action::Open { extent, generation } => {
                let failure = |fault| if fault == Fault::Broken { fault } else { Fault::NoMemory };
                let result = fault.map_or_else(|| Ok(self.map_of(slot, extent)), |f| Err(failure(f)));
                Answer::Opened(extent, generation, result)
            }
            // A full drive has no space for the piece, or the remaining space is reserved by the daemon.
            Action::Allocate { extent, generation, piece } => match fault {
                Some(Fault::NoSpace) => Answer::Refused(extent, generation, piece, Fault::NoSpace),
                _ => Answer::Allocated(extent, generation, piece),
            },
            Action::Read { operation, extent, offset, buffer_offset, length } => {
                let result = transfer::broken_only(fault)
                    .map_or_else(|| Ok(transfer::part_of(&mut self.random, length)), Err);
                let from = self.read_from(slot, extent);
                if let Some(buffer) = self.buffers.get_mut(&(slot, operation)) {
                    let range = (offset, buffer_offset, result.unwrap_or(0));
                    transfer::read_into(buffer, &self.drives[from].files[extent as usize], range);
                }
                self.keep_for_step(slot, operation, owner);
                Answer::Completed(operation, result)
            }
            Action::ReadEdge { operation, extent, edge } => {
                let flying = owner.and_then(|owner| self.in_flight.get(&owner));
                if let (Some(flying), Some(buffer)) = (flying, self.buffers.get_mut(&(slot, operation))) {
                    let file = &self.drives[slot].files[extent as usize];
                    transfer::merge_edge(buffer, file, &flying.request, edge);
                }
                Answer::Completed(operation, transfer::broken_only(fault).map_or(Ok(BLOCK_BYTES as u32), Err))
            }
            Action::Write { operation, extent, offset, buffer_offset, length, is_durable } => {
                let result = fault.map_or_else(|| Ok(transfer::part_of(&mut self.random, length)), Err);
                // A failed write may have written some blocks.
                let length = result.unwrap_or_else(|_| transfer::part_of(&mut self.random, length));
                let is_durable = is_durable && result.is_ok();
                let mut is_skipped = self.is_skipped(owner) && result.is_ok();
                is_skipped |= self.is_misled(slot, extent, (offset, length));
                let is_mending = owner.is_some_and(|owner| self.scrubs.pieces.contains(&owner));
                if is_mending && self.settings.sabotage == Sabotage::MendsFromBad {
                    self.mend_the_wrong_way(slot, extent, (offset, length));
                    is_skipped = true;
                }
                if let Some(buffer) = self.buffers.get(&(slot, operation)).filter(|_| !is_skipped) {
                    let (file, range) =
                        (&mut self.drives[slot].files[extent as usize], (offset, buffer_offset, length));
                    transfer::write_from(buffer, file, range, is_durable);
                }
                Answer::Completed(operation, result)
            }
            Action::Release { operation, extent, offset, length }
            | Action::Zero { operation, extent, offset, length } => {
                let is_zero = matches!(action, Action::Zero { .. });
                let place = || self.place(slot, extent, (offset, length), is_zero);
                let result = fault.map_or_else(place, Err);
                Answer::Completed(operation, result)
            }
            Action::Sync { .. }
            | Action::Done { .. }
            | Action::Flushed { .. }
            | Action::FailReplica { .. } => {
                unreachable!("these are not carried out")
            }
        }
    }

    /// Slot of the replica whose file is read: the requested one, or a stale one under
    /// `Sabotage::ReadsStale`.
    fn read_from(&mut self, slot: usize, extent: u32) -> usize {
        let replica_states = self.mirror.replica_states(extent);
        let stale = replica_states.iter().position(|replica_state| *replica_state == ReplicaState::Stale);
        let is_wrong = self.settings.sabotage == Sabotage::ReadsStale && self.random.chance(1, 2);
        stale.filter(|_| is_wrong).unwrap_or(slot)
    }

    fn is_skipped(&mut self, owner: Option<MirrorId>) -> bool {
        let is_step = owner.is_some_and(|owner| self.steps.contains_key(&owner));
        self.settings.sabotage == Sabotage::SkipsRegions && is_step && self.random.chance(1, 2)
    }

    /// Takes the data that a resync step read into the step's buffer, from which it is written.
    fn keep_for_step(&mut self, slot: usize, operation: OperationId, owner: Option<MirrorId>) {
        let step = owner.and_then(|owner| self.steps.get_mut(&owner));
        if let (Some(step), Some(buffer)) = (step, self.buffers.get(&(slot, operation))) {
            step.clone_from(buffer);
        }
    }

    /// Handles the end of a request or a step.
    fn done(
        &mut self,
        id: MirrorId,
        result: Result<Content, Fault>,
        source: Option<(usize, OperationId)>,
    ) -> Result<(), String> {
        let buffer = source.and_then(|source| self.buffers.remove(&source));
        source.into_iter().for_each(|(slot, operation)| self.end_operation(slot, operation));
        self.mirror.forget(id);
        if self.steps.remove(&id).is_some() {
            if self.scrubs.pieces.remove(&id) {
                return Ok(());
            }
            self.report.copied += u64::from(result.is_ok());
            return Ok(());
        }
        let flying = self.in_flight.remove(&id);
        let flying = flying.ok_or_else(|| format!("{id:?} ended, which nobody waits for"))?;
        let Ok(content) = result else {
            self.report.failed += 1;
            return self.check_failed(&flying, result);
        };
        self.report.acknowledged += 1;
        match flying.request.kind {
            Kind::Read => {
                let buffer = buffer.unwrap_or_default();
                let time = (flying.began, self.now);
                let slot = source.map_or(0, |(slot, _)| slot);
                if self.reads_rot(slot, &flying.request) {
                    return Ok(());
                }
                transfer::check_read(&self.history, &flying.request, (content, &buffer), time)
            }
            kind => {
                let is_durable = kind == Kind::Write { is_durable: true };
                for sector in sectors(&flying.request) {
                    self.history.write_ended(sector, flying.stamp, flying.began, self.now, is_durable);
                }
                Ok(())
            }
        }
    }

    fn flushed(&mut self, flush: u32, result: Result<(), Fault>) {
        let began = self.flushes.remove(&flush).unwrap_or(0);
        if result.is_ok() {
            self.history.flushed(began);
        }
    }

    /// True if the data that was read may be corrupt.
    fn reads_rot(&self, slot: usize, request: &Request) -> bool {
        let (start, length) = weir_volume::geometry::covering_blocks(request.offset, request.length);
        let mut blocks = start / BLOCK_BYTES as u32..(start + length) / BLOCK_BYTES as u32;
        blocks.any(|block| self.may_be_rotten(slot, request.extent, block))
    }

    /// No file holds what memory held before it was filled.
    fn look_for_foreign_bytes(&self) -> Result<(), String> {
        for (slot, drive) in self.drives.iter().enumerate() {
            for (extent, file) in drive.files.iter().enumerate() {
                let is_foreign = |block: &u32| file.read(*block).contains(&FOREIGN);
                if let Some(block) = file.data_blocks().into_iter().find(is_foreign) {
                    return Err(format!(
                        "block {block} of extent {extent} has foreign bytes on replica {slot}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that all replicas in sync are equal.
    fn compare(&mut self) -> Result<(), String> {
        self.look_for_foreign_bytes()?;
        for extent in 0..EXTENTS {
            let replica_states = self.mirror.replica_states(extent);
            let is_stale =
                |slot: &usize| self.reachable[*slot] && replica_states[*slot] == ReplicaState::Stale;
            if let Some(slot) = (0..REPLICA_SLOTS_MAX).find(is_stale) {
                let lacks = self.mirror.lacks(extent, slot);
                return Err(format!(
                    "replica {slot} of extent {extent} cannot be made up: it lacks {lacks} regions"
                ));
            }
            let good: Vec<usize> = self.mirror.readable(extent, 0, EXTENT_BYTES as u32).iter().collect();
            let blocks: BTreeSet<u32> =
                good.iter().flat_map(|slot| self.blocks_of((*slot, extent))).collect();
            for block in blocks {
                let contents: Result<BTreeSet<Block>, String> =
                    good.iter().map(|slot| self.content((*slot, extent), block)).collect();
                let contents = contents?;
                if contents.len() > 1 {
                    return Err(format!("block {block} of extent {extent} differs on replicas {good:?}"));
                }
            }
        }
        Ok(())
    }
}
