//! Moves: bringing extent replicas to their desired drives under running I/O.
//!
//! Reasons are another number of replicas, another class, template or I/O profile, and a drive that drains, returns or
//! holds a damaged replica. [`weir_plan::replica_plan`] decides the next step from the current state, and this module
//! carries it out. Nothing about a move is recorded: each pass, in this daemon or the next, continues from what it finds.
//!
//! A replica is added in the order file, metadata (by the data plane), record. It is removed in the order
//! metadata, record, file. So no replica counts as in sync that the record lacks. A replica that only the record names
//! is one whose removal was interrupted. Remains of a crash are either taken back into use or reclaimed.

mod drain;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_engine_interface::{EngineError, VolumeHome};
use weir_plan::failure_domain::Room;
use weir_plan::replica_plan::{
    Candidate, ReplicaNow, Step, Unreachable, Waits, Wish, may_be_removed, next_step, surplus_drives,
    unreachable, waits,
};
use weir_plan::replica_steps::{Action, Outcome as Ended, ReplicaChange};
use weir_store::{epoch_record, extent_count};
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_types::{Class, ClassPolicy, DriveId, ExtentIndex, Name, VolumeId};
use weir_volume::mirror::{ReplicaState, ReplicaStates, Slots};

use crate::absences::Absences;
use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::catalogue::Revision;
use crate::coalesced_flushes::CoalescedFlushes;
use crate::core::Core;
use crate::core::record_backups::Tickets;
use crate::engine::VolumeStatus;
use crate::error::{ControlError, Outcome};
use crate::extents::Extents;
use crate::figures::Figures;
use crate::journals::{AgainstProfile, Journals};
use crate::model::{Model, Versioned};
use crate::placing::Placing;
use crate::records::{TemplateRecord, VolumeRecord};

/// Number of extents of one volume that move at a time.
///
/// One extent is always being resynced, and the space that a move occupies twice stays small.
const EXTENTS_AT_ONCE: usize = 2;
/// Number of steps for one volume before the next volume's turn.
const STEPS_AT_ONCE: usize = 64;
/// Pause before a volume is checked again: while a replica is resynced, and while the move is blocked.
const WAIT_PAUSE: Duration = Duration::from_millis(100);
const BLOCKED_PAUSE: Duration = Duration::from_secs(2);

/// A volume whose replicas may not be on their desired drives.
#[derive(Clone, Debug)]
struct Unsettled {
    view: MoveView,
    /// Time of the next check. A check has a cost for each extent.
    next_at: Instant,
}

/// Progress of a volume's moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveView {
    /// Extents with a replica that is not on a desired drive, or that is not up to date though it could be.
    ///
    /// `None` until they are counted.
    pub extents_left: Option<u64>,
    /// Extents among them whose replicas are all on desired drives and only need a resync.
    pub extents_resyncing: u64,
    /// Why the move is blocked, in words.
    pub blocked_reason: Option<String>,
}

/// State of a volume's moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveState {
    /// The extents have not been counted yet.
    Planning,
    /// Replicas are added and removed.
    Moving,
    /// All replicas are on desired drives, and some are resynced.
    Resyncing,
    /// Journals are removed that no replica is behind any more.
    RemovingJournals,
}

impl MoveView {
    /// The state of the moves.
    pub fn state(&self) -> MoveState {
        match self.extents_left {
            None => MoveState::Planning,
            Some(0) => MoveState::RemovingJournals,
            Some(left) if left == self.extents_resyncing => MoveState::Resyncing,
            Some(_) => MoveState::Moving,
        }
    }
}

/// Volumes whose replicas may not be on their desired drives.
pub struct Moves {
    core: Arc<Core>,
    figures: Arc<Figures>,
    placing: Arc<Placing>,
    journals: Arc<Journals>,
    extents: Arc<Extents>,
    absences: Arc<Absences>,
    coalesced_flushes: Arc<CoalescedFlushes>,
    unsettled: Mutex<BTreeMap<VolumeId, Unsettled>>,
}

impl Moves {
    pub(crate) fn new(
        core: Arc<Core>,
        figures: Arc<Figures>,
        placing: Arc<Placing>,
        journals: Arc<Journals>,
        extents: Arc<Extents>,
        absences: Arc<Absences>,
        coalesced_flushes: Arc<CoalescedFlushes>,
    ) -> Moves {
        Moves {
            core,
            figures,
            placing,
            journals,
            extents,
            absences,
            coalesced_flushes,
            unsettled: Default::default(),
        }
    }
}

impl Moves {
    /// Volumes of which replicas move, and are not blocked.
    pub fn under_way(&self) -> BTreeSet<VolumeId> {
        let unsettled = self.unsettled();
        unsettled.iter().filter(|(_, one)| one.view.blocked_reason.is_none()).map(|(id, _)| *id).collect()
    }

    fn unsettled(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Unsettled>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why replicas stay as they are although they have no write journal.
const JOURNAL_WORDS: &str = "replicas have no write journal, because no other journal drive can take one; 'weir journal add' \
    adds a drive";

/// A volume's extents and their surroundings at the time of one check.
struct Look {
    record: VolumeRecord,
    revision: Revision,
    replica_states: Vec<ReplicaStates>,
    wishes: Vec<Wish>,
    candidates: Vec<Candidate>,
    classes: BTreeMap<DriveId, Option<Class>>,
    drain: BTreeSet<DriveId>,
    /// The journal's drive of each bound replica.
    bindings: BTreeMap<(ExtentIndex, usize), DriveId>,
    /// Missing drives, by name.
    missing: BTreeMap<DriveId, Name>,
    /// Unreachable replicas on drives that are present.
    away: BTreeMap<ExtentIndex, Slots>,
    /// Replicas whose files are damaged or gone, on drives that are present.
    damaged: BTreeSet<(ExtentIndex, usize)>,
    against_profile: AgainstProfile,
}

impl Look {
    /// The replica states of an extent: from its replica metadata, or from the record if it never had several
    /// replicas.
    fn replica_states(&self, extent: ExtentIndex) -> ReplicaStates {
        let recorded = || {
            let mut replica_states = ReplicaStates::default();
            let replicas = self.record.placement.replicas_of(extent);
            replicas.for_each(|(slot, _)| replica_states[slot] = ReplicaState::InSync);
            replica_states
        };
        // An extent that never had several replicas has no states, but an extent behind it in the list may
        // have some.
        let is_told = |replica_states: &ReplicaStates| {
            replica_states.iter().any(|replica_state| *replica_state != ReplicaState::Absent)
        };
        self.replica_states.get(extent.index()).copied().filter(is_told).unwrap_or_else(recorded)
    }

    fn drive(&self, extent: ExtentIndex, slot: usize) -> Option<DriveId> {
        let mut replicas = self.record.placement.replicas_of(extent);
        replicas.find(|(other, _)| *other == slot).map(|(_, drive)| drive)
    }

    /// The replicas of an extent that its replica metadata or its record names.
    fn replicas(&self, extent: ExtentIndex) -> Vec<ReplicaNow> {
        let mut replicas = self.replicas_as_recorded(extent);
        // Redundancy comes first: a replica leaves because of the I/O profile once there are enough in sync.
        if self.good_count(extent, &replicas) >= self.wishes.len() {
            for replica in &mut replicas {
                replica.must_leave |= self.against_profile.replaceable.contains(&(extent, replica.slot));
            }
        }
        replicas
    }

    /// Number of replicas that can be read and are to stay in use.
    fn good_count(&self, extent: ExtentIndex, replicas: &[ReplicaNow]) -> usize {
        let is_good = |replica: &&ReplicaNow| {
            let is_damaged = self.damaged.contains(&(extent, replica.slot));
            replica.replica_state == ReplicaState::InSync && replica.is_reachable && !is_damaged
        };
        replicas.iter().filter(is_good).count()
    }

    fn replicas_as_recorded(&self, extent: ExtentIndex) -> Vec<ReplicaNow> {
        let replica_states = self.replica_states(extent);
        let replica = |slot: usize| {
            let drive = self.drive(extent, slot);
            (replica_states[slot] != ReplicaState::Absent || drive.is_some()).then(|| ReplicaNow {
                slot,
                drive,
                class: drive.and_then(|drive| self.classes.get(&drive).copied().flatten()),
                journal: self.bindings.get(&(extent, slot)).copied(),
                replica_state: replica_states[slot],
                is_reachable: self.is_reachable((extent, slot), drive),
                must_leave: drive.is_some_and(|drive| self.drain.contains(&drive))
                    || self.bindings.get(&(extent, slot)).is_some_and(|drive| self.drain.contains(drive))
                    || self.damaged.contains(&(extent, slot)),
            })
        };
        (0..REPLICA_SLOTS_MAX).filter_map(replica).collect()
    }

    /// The progress, and the next step if there is one, without extents of which a step failed.
    fn next(&self, failed: &BTreeSet<ExtentIndex>) -> (MoveView, Option<(ExtentIndex, Step)>) {
        let (mut view, mut next) = (MoveView::default(), None);
        let mut extents_left = 0;
        for extent in ExtentIndex::all_of(self.record.size_bytes) {
            let replicas = self.replicas(extent);
            match next_step(&replicas, &self.wishes, &self.candidates) {
                Step::Done if self.waits_for_journal(extent) => {
                    view.blocked_reason = Some(JOURNAL_WORDS.to_owned());
                }
                Step::Done => continue,
                Step::Wait => match waits(&replicas, &self.wishes) {
                    Waits::NothingToDo => continue,
                    Waits::Resync => view.extents_resyncing += 1,
                    Waits::Move => {}
                    Waits::Blocked(drive) => view.blocked_reason = Some(self.unreachable_words(drive)),
                },
                Step::Blocked(wish) => view.blocked_reason = Some(blocked_words(wish, self.wishes.len())),
                step if next.is_none()
                    && extents_left < EXTENTS_AT_ONCE as u64
                    && !failed.contains(&extent) =>
                {
                    next = Some((extent, step));
                }
                _ => {}
            }
            extents_left += 1;
        }
        view.extents_left = Some(extents_left);
        (view, next)
    }

    /// True if a replica of an extent has no write journal although the I/O profile promises one.
    fn waits_for_journal(&self, extent: ExtentIndex) -> bool {
        self.against_profile.waiting.iter().any(|(of, _)| *of == extent)
    }

    fn is_reachable(&self, (extent, slot): (ExtentIndex, usize), drive: Option<DriveId>) -> bool {
        let is_away = self.away.get(&extent).is_some_and(|slots| slots.contains(slot));
        !is_away && drive.is_some_and(|drive| !self.missing.contains_key(&drive))
    }

    /// Why new replicas cannot be brought in sync, in words.
    fn unreachable_words(&self, drive: Option<DriveId>) -> String {
        match drive.and_then(|drive| self.missing.get(&drive)) {
            Some(name) => format!("the new replicas on drive '{name}' wait for it, because it is missing"),
            None => "the new replicas failed, and it is tried to use them again".to_owned(),
        }
    }

    /// The replicas of an extent that its record names.
    fn recorded(&self, extent: ExtentIndex) -> Slots {
        self.record.placement.replicas_of(extent).map(|(slot, _)| slot).collect()
    }
}

/// Carries out the steps of a change in their order. A step that fails ends it there: the next look goes on from what it
/// finds.
fn carry_out(
    mut change: ReplicaChange,
    mut step: impl FnMut(Action) -> Outcome<Ended>,
) -> Outcome<ReplicaChange> {
    while let Some(action) = change.next() {
        let ended = step(action)?;
        change.ended(ended);
    }
    Ok(change)
}

/// Where the replicas of an extent should be by a template.
fn wishes_of(template: &TemplateRecord) -> Vec<Wish> {
    template.replicas.iter().copied().map(Some).collect()
}

/// Refuses desired classes for which there are too few drives.
fn refuse_unmet(volume: &Name, wishes: &[Wish], candidates: &[Candidate]) -> Outcome<()> {
    let Some(Unreachable { wish, wished, there }) = unreachable(wishes, candidates) else { return Ok(()) };
    let class = wish.map_or(String::new(), |class| format!("class {class} in "));
    let replicas = if wished == 1 { "replica" } else { "replicas" };
    Err(ControlError::refused(format!(
        "volume '{volume}' cannot have {class}{wished} {replicas}: there are {there} such drives, and replicas of an \
         extent are on distinct ones"
    )))
}

/// Why a replica behind a journal could go behind no other journal.
pub(crate) struct Stranded {
    why: String,
    class: String,
}

fn drives_missing(model: &Model) -> BTreeMap<DriveId, Name> {
    let missing = model.drives.values().filter(|drive| drive.store.is_err());
    missing.map(|drive| (drive.record.id, drive.record.name.clone())).collect()
}

fn class_words(wish: Wish) -> String {
    wish.map_or("any class".to_owned(), |class| format!("class {class}"))
}

fn blocked_words(wish: Wish, replicas: usize) -> String {
    let class = class_words(wish);
    format!(
        "no drive of {class} is free for one of {replicas} replicas; replicas of an extent are on distinct drives"
    )
}

impl Moves {
    /// Has a volume checked from scratch. Earlier findings are dropped, because they concern earlier
    /// settings.
    pub(crate) fn begin_moves(&self, volume: VolumeId) {
        let unsettled = Unsettled { view: MoveView::default(), next_at: Instant::now() };
        self.unsettled().insert(volume, unsettled);
    }

    /// Has a volume checked regularly. If this is so already, earlier findings stay.
    pub(crate) fn keep_moving(&self, volume: VolumeId) {
        let unsettled = || Unsettled { view: MoveView::default(), next_at: Instant::now() };
        self.unsettled().entry(volume).or_insert_with(unsettled);
    }

    /// Has all volumes checked of which a move may have been interrupted. Their extents have, or had, several
    /// replicas. Or a template or the class wants other drives. Or their journals may not be those of their I/O
    /// profile.
    pub(crate) fn begin_all_moves(&self) {
        let model = self.core.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        let is_elsewhere = |volume: &VolumeRecord| {
            let is_strict = volume.class_policy == ClassPolicy::Strict;
            let has_more = volume.replicas > 1 || volume.template.is_some();
            has_more || is_strict && !model.has_its_class(volume)
        };
        // A change of the I/O profile may have been interrupted.
        let may_differ = |volume: &VolumeRecord| {
            volume.is_promised_journals() || !self.journals.bindings(volume.id).is_empty()
        };
        let is_unsettled = |volume: &VolumeRecord| {
            is_elsewhere(volume) || may_differ(volume) || self.core.has_metadata(volume)
        };
        let unsettled = volumes.filter(|volume| is_unsettled(volume));
        unsettled.for_each(|volume| self.begin_moves(volume.id));
    }

    /// Refuses a volume whose desired replicas do not fit the present drives and their classes.
    pub(crate) fn refuse_unreachable(&self, volume: &VolumeRecord) -> Outcome<()> {
        let rooms = self.placing.rooms();
        let model = self.core.model();
        let candidates = candidates(&model, volume, rooms);
        refuse_unmet(&volume.name, &wishes(&model, volume, &candidates), &candidates)
    }

    /// Refuses a changed I/O profile if no drive could take the new replica that an extent needs.
    pub(crate) fn refuse_blocked(&self, volume: &VolumeRecord) -> Outcome<()> {
        let Some(mut look) = self.look_at_replicas(volume.id) else { return Ok(()) };
        look.against_profile = self.journals.against_profile(volume);
        look.candidates = candidates(&self.core.model(), volume, self.placing.rooms());
        look.wishes = wishes(&self.core.model(), volume, &look.candidates);
        let next = |extent| next_step(&look.replicas(extent), &look.wishes, &look.candidates);
        let blocked = ExtentIndex::all_of(volume.size_bytes).find_map(|extent| match next(extent) {
            Step::Blocked(wish) => Some(class_words(wish)),
            _ => None,
        });
        blocked.map_or(Ok(()), |class| {
            Err(ControlError::refused(format!(
                "{} cannot have the I/O profile {}: its replicas are made anew on other drives, and no other drive of \
                 {class} can take one; 'weir volume clone --io-profile' makes a volume with that profile",
                volume.title(),
                volume.io_profile
            )))
        })
    }

    /// Refuses a changed template if a volume's replicas could not follow it.
    pub(crate) fn refuse_unreachable_by(
        &self,
        volume: &VolumeRecord,
        template: &TemplateRecord,
    ) -> Outcome<()> {
        let rooms = self.placing.rooms();
        let candidates = candidates(&self.core.model(), volume, rooms);
        refuse_unmet(&volume.name, &wishes_of(template), &candidates)
    }

    /// The progress of a volume's moves; `None` if all replicas are on desired drives.
    pub fn moves_of(&self, volume: VolumeId) -> Option<MoveView> {
        self.unsettled().get(&volume).map(|unsettled| unsettled.view.clone())
    }

    /// The progress of all moves.
    pub(crate) fn all(&self) -> Vec<(VolumeId, MoveView)> {
        self.unsettled().iter().map(|(id, unsettled)| (*id, unsettled.view.clone())).collect()
    }

    /// Moves replicas as far as possible now. Repeated calls bring all replicas to their desired drives.
    pub fn settle_moves(&self) {
        let now = Instant::now();
        let due: Vec<VolumeId> = {
            let unsettled = self.unsettled();
            unsettled.iter().filter(|(_, one)| one.next_at <= now).map(|(id, _)| *id).collect()
        };
        for volume in due {
            let moved = self
                .move_replicas(volume)
                .and_then(|moved| self.tidy_journals(volume, moved))
                .unwrap_or_else(|error| {
                    Some(MoveView { blocked_reason: Some(error.message), ..MoveView::default() })
                });
            let mut unsettled = self.unsettled();
            // A request that arrived during this pass is handled at once.
            let Some(known) = unsettled.get_mut(&volume).filter(|known| known.next_at <= now) else {
                continue;
            };
            match moved {
                None => _ = unsettled.remove(&volume),
                Some(view) => {
                    if let Some(why) = view
                        .blocked_reason
                        .as_ref()
                        .filter(|_| view.blocked_reason != known.view.blocked_reason)
                    {
                        tracing::warn!(%volume, "replicas are not where they should be: {why}");
                    }
                    let pause = if view.blocked_reason.is_some() { BLOCKED_PAUSE } else { WAIT_PAUSE };
                    *known = Unsettled { view, next_at: Instant::now() + pause };
                }
            }
        }
    }

    /// Takes steps for one volume; `None` if all its replicas are on desired drives.
    fn move_replicas(&self, volume: VolumeId) -> Outcome<Option<MoveView>> {
        let mut view = MoveView::default();
        let (mut failed, mut failure) = (BTreeSet::new(), None);
        for _ in 0..STEPS_AT_ONCE {
            // Each step follows a new check. Other changes wait only for the step.
            let Some(look) = self.look_at_replicas(volume) else { return Ok(None) };
            let next;
            (view, next) = look.next(&failed);
            let Some((extent, step)) = next else { break };
            let drive = if let Step::Add { drive, .. } = step { Some(drive) } else { None };
            // A change of the volume that is under way goes first.
            let Some(mut change) = self.core.try_volume_change(&[volume], drive.as_slice()) else { break };
            // What is in the snapshot is read from the files of replicas as they are.
            if self.core.snapshots_in_progress.concern(volume)
                || drive.is_some_and(|drive| !self.core.model().is_there(drive))
            {
                break;
            }
            let is_as_seen =
                self.core.model().volumes.get(&volume).map(|one| one.revision) == Some(look.revision);
            if !is_as_seen {
                continue;
            }
            match change.beside(|| self.take_step(&look, extent, step)) {
                Ok(true) => {}
                Ok(false) => break,
                // Other extents may need a replica more than this one.
                Err(error) => {
                    failed.insert(extent);
                    failure = Some(error.message);
                }
            }
        }
        view.blocked_reason = failure.or(view.blocked_reason);
        Ok(view.extents_left.is_none_or(|left| left > 0).then_some(view))
    }

    /// Removes unused journals once all replicas of a volume are on desired drives.
    fn tidy_journals(&self, volume: VolumeId, moved: Option<MoveView>) -> Outcome<Option<MoveView>> {
        let record = self.core.model().volumes.get(&volume).map(|volume| volume.record.clone());
        let Some(record) = record.filter(|_| moved.is_none()) else { return Ok(moved) };
        let releasing = MoveView { extents_left: Some(0), ..MoveView::default() };
        let Some(mut change) = self.core.try_volume_change(&[volume], &[]) else {
            return Ok(Some(releasing));
        };
        let is_releasing = !change.beside(|| self.journals.drop_unused_journals(&record))?;
        Ok(is_releasing.then_some(releasing))
    }

    /// Why a replica behind a journal could go behind no other journal if these drives drain; `None` if all
    /// could.
    fn journal_strands(
        &self,
        volume: VolumeId,
        journal: DriveId,
        drain: &BTreeSet<DriveId>,
    ) -> Option<Stranded> {
        let mut look = self.look_at_replicas(volume)?;
        look.drain.extend(drain);
        look.candidates.retain(|candidate| !drain.contains(&candidate.room.drive));
        let behind = look.bindings.iter().filter(|(_, on)| **on == journal).map(|((extent, _), _)| *extent);
        behind.collect::<BTreeSet<ExtentIndex>>().into_iter().find_map(|extent| {
            match next_step(&look.replicas(extent), &look.wishes, &look.candidates) {
                Step::Blocked(wish) => {
                    Some(Stranded { why: blocked_words(wish, look.wishes.len()), class: class_words(wish) })
                }
                _ => None,
            }
        })
    }

    fn look_at_replicas(&self, volume: VolumeId) -> Option<Look> {
        let rooms = self.placing.rooms();
        let Versioned { record, revision } = Versioned::clone(self.core.model().volumes.get(&volume)?);
        let mut damaged = self.extents.damaged_replicas(&record);
        let against_profile = self.journals.against_profile(&record);
        let model = self.core.model();
        let open = model.open.get(&volume)?;
        let VolumeStatus { replica_states, faults } = open.status();
        // These count wherever their drives are.
        damaged.extend(faults.invalidated);
        let candidates = candidates(&model, &record, rooms);
        let drives = || model.drives.values().map(|drive| &drive.record);
        Some(Look {
            wishes: wishes(&model, &record, &candidates),
            candidates,
            classes: drives().map(|drive| (drive.id, drive.class)).collect(),
            drain: drives().filter(|drive| drive.is_draining).map(|drive| drive.id).collect(),
            bindings: self.journals.bindings(volume),
            missing: drives_missing(&model),
            away: faults.away,
            damaged,
            against_profile,
            revision,
            record,
            replica_states,
        })
    }

    /// Takes a step; false if it cannot be taken now.
    fn take_step(&self, look: &Look, extent: ExtentIndex, step: Step) -> Outcome<bool> {
        match step {
            Step::Add { slot, drive } => self.add_replica(look, (extent, slot), drive),
            Step::Remove(slot) => self.remove_replica(look, (extent, slot)),
            Step::Done | Step::Wait | Step::Blocked(_) => Ok(false),
        }
    }

    fn add_replica(
        &self,
        look: &Look,
        (extent, slot): (ExtentIndex, usize),
        drive: DriveId,
    ) -> Outcome<bool> {
        let mut record = look.record.clone();
        let count = extent_count(record.size_bytes);
        // First of all: a full state folder prevents a new replica, and never blocks a write that waits for
        // one.
        epoch_record::prepare(&self.core.epoch_records(record.id), count)?;
        record.placement.set(count, (extent, slot), Some(drive));
        record.generation += 1;
        let homes = self.extents.layout(&record)?.homes;
        let replicas = look.replicas(extent);
        let is_needed = look.good_count(extent, &replicas) < look.wishes.len();
        let going = surplus_drives(&replicas, &look.wishes);
        let behind = self.journals.journal_for_one_more(&record, (extent, slot), &going, is_needed)?;
        let journal = behind.map(|behind| behind.drive);
        // The new replica may hold what is owed, and share the failure domain of another.
        match behind {
            Some(_) => self.coalesced_flushes.close_window(record.id)?,
            None => self.coalesced_flushes.put(&record)?,
        }
        let mut refusal = None;
        let change = carry_out(ReplicaChange::add(), |action| match action {
            Action::MakeFile => {
                let store = self.core.store(drive)?;
                store.add_extent(record.id, extent, &self.core.record_backup(&look.record)?.content)?;
                self.absences.forget_replica(drive, record.id, (extent, slot));
                if let Some(behind) = behind {
                    self.journals.put_replica_behind(&record, (extent, slot), drive, behind)?;
                }
                Ok(Ended::Done)
            }
            Action::AddToVolume => {
                match self.add_to_volume(&record, &homes, ((extent, slot), drive), journal) {
                    Err(error @ EngineError::NotAdded { .. }) => {
                        refusal = Some(error);
                        Ok(Ended::Refused)
                    }
                    added => Ok(if added? { Ended::Done } else { Ended::Refused }),
                }
            }
            Action::Record => {
                self.journals.note(record.id, (extent, slot), journal);
                self.core.save_volume(&record, look.revision)?;
                self.core.write_record_backups(&mut Tickets::default(), [&record]);
                Ok(Ended::Done)
            }
            Action::ConfirmAdded => {
                self.core.engine.confirm_added(record.id, (extent, slot))?;
                Ok(Ended::Done)
            }
            Action::DeleteFile => {
                self.extents.give_back_extent(&look.record, drive, extent)?;
                Ok(Ended::Done)
            }
            Action::RemoveFromVolume | Action::Unrecord => unreachable!("a replica that comes does not go"),
        });
        let has_come_about = change?.has_come_about();
        refusal.map_or(Ok(has_come_about), |error| Err(error.into()))
    }

    /// Has the data plane write metadata that names a replica. False if it cannot now.
    fn add_to_volume(
        &self,
        record: &VolumeRecord,
        homes: &[VolumeHome],
        (replica, drive): ((ExtentIndex, usize), DriveId),
        journal: Option<DriveId>,
    ) -> Result<bool, EngineError> {
        let place = record.placement.places().position(|other| other == Some(drive));
        let home = place.and_then(|place| u8::try_from(place).ok());
        let home = home.expect("the placement was just told of this drive");
        self.core.engine.add_replica(record.id, replica, (homes, home), journal)
    }

    fn remove_replica(&self, look: &Look, (extent, slot): (ExtentIndex, usize)) -> Outcome<bool> {
        let drive = look.drive(extent, slot);
        let is_held = self.is_any_other_out_of_place(&look.record, (extent, slot));
        if is_held || !may_be_removed(look.recorded(extent), slot) {
            return Ok(false);
        }
        let mut record = look.record.clone();
        let change = carry_out(ReplicaChange::remove(drive.is_some()), |action| match action {
            // Asked also of a replica that its metadata does not name: it is refused unless another one is in sync.
            Action::RemoveFromVolume => {
                let is_removed = self.core.engine.remove_replica(look.record.id, (extent, slot))?;
                Ok(if is_removed { Ended::Done } else { Ended::Refused })
            }
            Action::Unrecord => {
                record.placement.set(extent_count(record.size_bytes), (extent, slot), None);
                record.generation += 1;
                self.core.save_volume(&record, look.revision)?;
                self.core.write_record_backups(&mut Tickets::default(), [&record]);
                self.journals.leave_journal(record.id, (extent, slot))?;
                Ok(Ended::Done)
            }
            Action::DeleteFile => self.delete_file_of(&record, extent, drive).map(|()| Ended::Done),
            _ => unreachable!("a replica that goes does not come"),
        });
        change.map(|change| change.has_come_about())
    }

    /// Deletes the file of a replica that nothing names any more; without a drive, wherever such a file is.
    fn delete_file_of(
        &self,
        record: &VolumeRecord,
        extent: ExtentIndex,
        drive: Option<DriveId>,
    ) -> Outcome<()> {
        let Some(drive) = drive else {
            self.extents.delete_strays(record)?;
            return self.extents.delete_stray_extents(record);
        };
        // On a drive that is missing the file is found when the drive is back.
        if self.core.store(drive).is_ok() {
            self.extents.give_back_extent(record, drive, extent)
        } else {
            Ok(())
        }
    }

    /// True if another replica of an extent, or its journal, is on a drive that vanished from its folder. The
    /// drive is not known as missing yet.
    ///
    /// Recent writes to this replica may not be on the drive.
    fn is_any_other_out_of_place(&self, record: &VolumeRecord, (extent, slot): (ExtentIndex, usize)) -> bool {
        let mut others = record.placement.replicas_of(extent).filter(|(other, _)| *other != slot);
        let is_out = |drive: DriveId| self.core.store(drive).is_ok() && !self.core.is_in_place(drive);
        others.any(|(other, drive)| {
            is_out(drive) || self.journals.drive_of(record.id, (extent, other)).is_some_and(is_out)
        })
    }

    /// One alarm for each volume whose moves are blocked.
    pub(crate) fn move_alarms(&self) -> Vec<ActiveAlarm> {
        let unsettled = self.unsettled();
        let blocked_reason =
            unsettled.iter().filter_map(|(id, one)| Some((*id, one.view.blocked_reason.clone()?)));
        let alarm = |(volume, why)| ActiveAlarm {
            source: AlarmSource::Replicas,
            drive: None,
            volume: Some(volume),
            extent: None,
            message: format!("replicas are not where they should be: {why}"),
        };
        blocked_reason.map(alarm).collect()
    }
}

/// The desired classes of each extent's replicas.
pub(crate) fn wishes(model: &Model, volume: &VolumeRecord, candidates: &[Candidate]) -> Vec<Wish> {
    if volume.snapshot.is_some() {
        return vec![None; usize::from(volume.replicas)];
    }
    if let Some(template) = model.template_of(volume) {
        return wishes_of(template);
    }
    let wanted = Some(volume.io_priority);
    let is_to_be_had = || {
        let drives = model.drives_of(volume).any(|drive| !drive.is_draining && drive.class == wanted);
        drives || candidates.iter().any(|candidate| candidate.class == wanted)
    };
    let wish = match volume.class_policy {
        ClassPolicy::Any => None,
        ClassPolicy::Strict => wanted,
        ClassPolicy::Prefer => wanted.filter(|_| is_to_be_had()),
    };
    vec![wish; usize::from(volume.replicas)]
}

/// Drives that could take replicas of a volume. If no class was requested, drives of its present classes
/// are preferred.
fn candidates(model: &Model, volume: &VolumeRecord, rooms: Vec<Room>) -> Vec<Candidate> {
    let class = |drive: DriveId| model.drives.get(&drive).and_then(|drive| drive.record.class);
    let rooms = rooms.into_iter().filter(|room| !model.is_draining(room.drive));
    let all: Vec<Candidate> = rooms.map(|room| Candidate { class: class(room.drive), room }).collect();
    let is_bound = volume.template.is_some() || volume.class_policy != ClassPolicy::Any;
    if is_bound && volume.snapshot.is_none() {
        return all;
    }
    let own: BTreeSet<Option<Class>> = model.drives_of(volume).map(|drive| drive.class).collect();
    let like: Vec<Candidate> =
        all.iter().filter(|candidate| own.contains(&candidate.class)).cloned().collect();
    if like.len() >= usize::from(volume.replicas) { like } else { all }
}
