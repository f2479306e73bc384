//! Space figures of drives and volumes: one thread per drive examines the filesystem, and all others read its
//! last result.
//!
//! Examining a filesystem takes an unbounded time. So a reader requests new figures and waits a few
//! milliseconds at most. A drive that does not answer shows its last figures, with their age. A drive that
//! hangs costs one thread.
//!
//! Each drive is examined every second without a request: its space, and the volumes that were written since
//! the last time. All other volumes are examined in rounds, because their use can also change without
//! requests. Rounds are so rare that they cost almost nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_host::processor;
use weir_store::snapshot::Occupied;
use weir_store::{DriveUsage, Store, extent_count};
use weir_types::{DriveId, ExtentIndex, VolumeId};

use crate::core::Core;
use crate::engine::OpenVolume;
use crate::model::Model;
use crate::records::VolumeRecord;

/// How long reads, and changes on other drives, wait for new figures of a drive. A drive that missed this
/// time once is not waited for until it answers.
const LOOK_WAIT: Duration = Duration::from_millis(60);
/// How long a caller waits that cannot do without a drive's figures, if the drive is not overdue.
const FIRST_LOOK_WAIT: Duration = Duration::from_secs(2);
/// Maximum age of figures that are returned without a new request, while their drive answers.
const FRESH: Duration = Duration::from_secs(3);
/// Pause after a round of all volumes of a drive, as a multiple of the processor time that the round took.
const TURN_PAUSE_FACTOR: u32 = 400;
/// Number of volumes examined in a round before the thread checks for requests.
const TURN_STEP: usize = 16;

/// Latest figures of all drives.
#[derive(Default)]
pub(crate) struct Gauges {
    drives: Mutex<BTreeMap<DriveId, Arc<Gauge>>>,
    /// Bytes that requests had changed of each volume when the volume was last checked for changes.
    changed_bytes: Mutex<BTreeMap<VolumeId, u64>>,
}

/// Figures of one drive.
#[derive(Default)]
struct Gauge {
    state: Mutex<State>,
    looked: Condvar,
}

#[derive(Default)]
struct State {
    due: Due,
    /// Number of the latest request.
    asked: u64,
    /// Number of the latest answered request; all earlier ones are answered too.
    answered: u64,
    /// Start of the current examination, while a thread is at work.
    looking_since: Option<Instant>,
    turn: Turn,
    seen: Seen,
}

/// A round over all volumes of a drive, some at a time.
#[derive(Default)]
struct Turn {
    /// Volumes that are still to be examined.
    left: Vec<VolumeId>,
    /// Processor time that the round has taken so far.
    cost: Duration,
    /// Earliest time of the next round.
    next_at: Option<Instant>,
}

/// Next step of a drive's thread.
enum Look {
    /// Work requested up to this request number.
    Asked(Due, u64),
    /// Volumes that are next in the round.
    InTurn(Vec<VolumeId>),
}

/// Figures that are requested.
#[derive(Clone, Debug, Default)]
struct Due {
    has_space: bool,
    used: BTreeSet<VolumeId>,
    occupied: BTreeSet<VolumeId>,
}

/// Latest figures of a drive.
#[derive(Default)]
struct Seen {
    space: Option<(Result<DriveUsage, String>, Instant)>,
    /// Bytes that each extent of a volume occupies; `None` if unknown.
    used: BTreeMap<VolumeId, Option<Vec<(ExtentIndex, u64)>>>,
    occupied: BTreeMap<VolumeId, Option<Occupied>>,
}

/// The space on a drive, and the age of the figures.
#[derive(Clone, Debug)]
pub struct DatedUsage {
    /// The space, or the reason why it is unknown.
    pub usage: Result<DriveUsage, String>,
    /// The age of `usage`.
    pub age: Duration,
}

impl Due {
    fn add(&mut self, other: &Due) {
        self.has_space |= other.has_space;
        self.used.extend(&other.used);
        self.occupied.extend(&other.occupied);
    }
}

impl Gauge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests new figures, and starts the drive's thread unless it runs. Returns the number of the request.
    fn ask(self: &Arc<Self>, store: &Store, due: &Due) -> u64 {
        let mut state = self.state();
        state.due.add(due);
        state.asked += 1;
        let asked = state.asked;
        if state.looking_since.is_none() {
            state.looking_since = Some(Instant::now());
            let (gauge, store) = (Arc::clone(self), store.clone());
            let look = move || gauge.look_until_done(&store);
            if let Err(error) = std::thread::Builder::new().name("weir-look".to_owned()).spawn(look) {
                tracing::warn!(%error, "a drive cannot be looked at: there is no thread for it");
                state.looking_since = None;
            }
        }
        asked
    }

    fn look_until_done(&self, store: &Store) {
        loop {
            let look = self.state().next_look();
            match look {
                Some(Look::Asked(due, asked)) => {
                    self.look_at(store, due);
                    self.state().answered = asked;
                    self.looked.notify_all();
                }
                Some(Look::InTurn(volumes)) => {
                    let before = processor::time_of_thread();
                    volumes.into_iter().for_each(|volume| self.look_at_used(store, volume));
                    self.state().turn.took(processor::time_of_thread().saturating_sub(before));
                }
                None => return,
            }
        }
    }

    fn look_at(&self, store: &Store, due: Due) {
        // Quick work comes first, so that its waiters wait for nothing else.
        if due.has_space {
            store.look_whether_it_shares();
            let usage = store.usage().map_err(|error| error.to_string());
            self.state().seen.space = Some((usage, Instant::now()));
        }
        due.used.into_iter().for_each(|volume| self.look_at_used(store, volume));
        for volume in due.occupied {
            let occupied = store.occupied(volume).ok();
            self.state().seen.occupied.insert(volume, occupied);
        }
    }

    fn look_at_used(&self, store: &Store, volume: VolumeId) {
        let used = store.used_by_extent(volume).ok();
        self.state().seen.used.insert(volume, used);
    }

    /// Waits until a request is answered, but not for a drive that is overdue already.
    fn wait(&self, asked: u64, until: Instant) {
        let state = self.state();
        if state.is_overdue() {
            return;
        }
        let pause = until.saturating_duration_since(Instant::now());
        // After a timeout, the caller reads the previous figures.
        let _ = self.looked.wait_timeout_while(state, pause, |state| state.answered < asked);
    }
}

impl Turn {
    /// True if no round is under way and the pause after the last one is over.
    fn may_begin(&self) -> bool {
        self.left.is_empty() && self.next_at.is_none_or(|next_at| next_at <= Instant::now())
    }

    /// Adds the processor time of a step, and sets the pause if the round is complete.
    fn took(&mut self, cost: Duration) {
        self.cost += cost;
        if self.left.is_empty() {
            self.next_at = Some(Instant::now() + std::mem::take(&mut self.cost) * TURN_PAUSE_FACTOR);
        }
    }
}

impl State {
    /// The next step: requests come before the round. `None` ends the thread.
    fn next_look(&mut self) -> Option<Look> {
        let look = if self.answered < self.asked {
            Some(Look::Asked(std::mem::take(&mut self.due), self.asked))
        } else if !self.turn.left.is_empty() {
            let rest = self.turn.left.len().saturating_sub(TURN_STEP);
            Some(Look::InTurn(self.turn.left.split_off(rest)))
        } else {
            None
        };
        self.looking_since = look.is_some().then(Instant::now);
        look
    }

    fn is_overdue(&self) -> bool {
        self.looking_since.is_some_and(|since| since.elapsed() >= LOOK_WAIT)
    }

    fn is_fresh(&self) -> bool {
        self.seen.space.as_ref().is_some_and(|(_, at)| at.elapsed() < FRESH)
    }
}

impl Gauges {
    fn gauge(&self, drive: DriveId) -> Arc<Gauge> {
        let mut drives = self.drives.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(drives.entry(drive).or_default())
    }

    /// Requests figures of several drives, and waits a bounded time for all of them together.
    fn look(&self, drives: &[(DriveId, Store)], due: &Due, timeout: Duration) {
        let until = Instant::now() + timeout;
        let ask = |(drive, store): &(DriveId, Store)| {
            let gauge = self.gauge(*drive);
            let asked = gauge.ask(store, due);
            (gauge, asked)
        };
        let asked: Vec<_> = drives.iter().map(ask).collect();
        asked.iter().for_each(|(gauge, asked)| gauge.wait(*asked, until));
    }

    /// The latest known space on a drive.
    fn space(&self, drive: DriveId) -> Option<DatedUsage> {
        let gauge = self.gauge(drive);
        let state = gauge.state();
        let (usage, at) = state.seen.space.as_ref()?;
        Some(DatedUsage { usage: usage.clone(), age: at.elapsed() })
    }

    fn used(&self, drive: DriveId, volume: VolumeId) -> Option<Vec<(ExtentIndex, u64)>> {
        self.gauge(drive).state().seen.used.get(&volume).cloned().flatten()
    }

    fn occupied(&self, drive: DriveId, volume: VolumeId) -> Option<Occupied> {
        self.gauge(drive).state().seen.occupied.get(&volume).copied().flatten()
    }

    /// The volumes that requests have changed since the previous call.
    fn changed(&self, model: &Model) -> BTreeSet<VolumeId> {
        let bytes = |(id, open): (&VolumeId, &OpenVolume)| (*id, open.changed_bytes());
        let now: BTreeMap<VolumeId, u64> = model.open.iter().map(bytes).collect();
        let mut known = self.changed_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let changed =
            now.iter().filter(|(id, bytes)| known.get(id) != Some(bytes)).map(|(id, _)| *id).collect();
        *known = now;
        changed
    }

    /// Forgets drives that no longer exist.
    fn keep(&self, known: impl Fn(DriveId) -> bool) {
        let mut drives = self.drives.lock().unwrap_or_else(PoisonError::into_inner);
        drives.retain(|drive, _| known(*drive));
    }
}

/// Space on the drives that are present, or the reason why it is unknown.
pub type Usages = BTreeMap<DriveId, Result<DriveUsage, String>>;

/// Space figures of all drives and volumes, as they were last seen.
pub struct Figures {
    core: Arc<Core>,
    gauges: Gauges,
}

impl Figures {
    pub(crate) fn new(core: Arc<Core>) -> Figures {
        Figures { core, gauges: Default::default() }
    }
}

impl Figures {
    /// Space on all drives that are present, for a decision. It is current for drives that answer.
    pub(crate) fn usages(&self) -> Usages {
        let stores = self.core.stores();
        self.look_at_space(&stores);
        stores.into_iter().map(|(drive, _)| (drive, self.usage_of(drive).usage)).collect()
    }

    /// Requests new figures of all present drives, and starts rounds that are due. It waits for nothing.
    pub fn refresh_figures(&self) {
        let model = self.core.model();
        self.gauges.keep(|drive| model.drives.contains_key(&drive));
        let changed = self.gauges.changed(&model);
        for (drive, store) in self.core.stores() {
            let is_on_drive = |volume: &VolumeRecord| volume.placement.names(drive);
            let gauge = self.gauges.gauge(drive);
            let mut state = gauge.state();
            if state.turn.may_begin() {
                state.seen.used.retain(|volume, _| model.volumes.contains_key(volume));
                state.seen.occupied.retain(|volume, _| model.volumes.contains_key(volume));
                let all = model.volumes.values().map(|volume| &volume.record);
                state.turn.left = all.filter(|volume| is_on_drive(volume)).map(|volume| volume.id).collect();
            }
            // Requests to a drive that hangs are merged with earlier requests, each volume once.
            drop(state);
            let used = changed.iter().filter_map(|id| Some(&model.volumes.get(id)?.record));
            let used = used.filter(|volume| is_on_drive(volume)).map(|volume| volume.id).collect();
            gauge.ask(&store, &Due { has_space: true, used, occupied: BTreeSet::new() });
        }
    }

    /// Refreshes the space figures of drives. A drive that does not answer keeps its last figures.
    pub(crate) fn look_at_space(&self, drives: &[(DriveId, Store)]) {
        let due = Due { has_space: true, ..Due::default() };
        self.gauges.look(drives, &due, LOOK_WAIT);
    }

    /// Stores the space on a drive that was just opened. The caller that opened it does this.
    pub(crate) fn note_space(&self, drive: DriveId, store: &Store) {
        let usage = store.usage().map_err(|error| error.to_string());
        self.gauges.gauge(drive).state().seen.space = Some((usage, Instant::now()));
    }

    /// The latest known space on all present drives. The figures of drives that answer are recent.
    pub(crate) fn known_usages(&self) -> BTreeMap<DriveId, DatedUsage> {
        let stores = self.core.stores();
        let is_old = |(drive, _): &&(DriveId, Store)| !self.gauges.gauge(*drive).state().is_fresh();
        let old: Vec<(DriveId, Store)> = stores.iter().filter(is_old).cloned().collect();
        if !old.is_empty() {
            self.look_at_space(&old);
        }
        stores.iter().map(|(drive, _)| (*drive, self.usage_of(*drive))).collect()
    }

    /// The latest known space on a drive.
    pub(crate) fn usage_of(&self, drive: DriveId) -> DatedUsage {
        let never = || DatedUsage {
            usage: Err("its space is not known: it has not answered yet".to_owned()),
            age: self.core.started.elapsed(),
        };
        self.gauges.space(drive).unwrap_or_else(never)
    }

    /// Bytes that one replica of a volume occupies; each extent counts with its largest replica.
    ///
    /// `None` if the volume's files cannot be examined.
    pub(crate) fn used_bytes(&self, volume: &VolumeRecord) -> Option<u64> {
        self.look_at_used(volume, FIRST_LOOK_WAIT);
        self.known_used_bytes(&self.core.model(), volume)
    }

    /// The same as [`Control::used_bytes`] for display. It waits the longer time only if nothing is known
    /// yet.
    pub(crate) fn used_bytes_to_show(&self, volume: &VolumeRecord) -> Option<u64> {
        let is_known = self.known_used_bytes(&self.core.model(), volume).is_some();
        self.look_at_used(volume, if is_known { LOOK_WAIT } else { FIRST_LOOK_WAIT });
        self.known_used_bytes(&self.core.model(), volume)
    }

    fn look_at_used(&self, volume: &VolumeRecord, timeout: Duration) {
        let due = Due { used: BTreeSet::from([volume.id]), ..Due::default() };
        self.gauges.look(&self.core.stores_there(volume), &due, timeout);
    }

    /// The latest known value of [`Control::used_bytes`].
    pub(crate) fn known_used_bytes(&self, model: &Model, volume: &VolumeRecord) -> Option<u64> {
        let drives = volume.placement.drives();
        let has_replicas = volume.placement.has_replicas();
        let there: Vec<DriveId> = drives.iter().copied().filter(|drive| model.is_there(*drive)).collect();
        if there.is_empty() || !has_replicas && there.len() < drives.len() {
            return None;
        }
        let used = |drive: DriveId| self.gauges.used(drive, volume.id);
        if !has_replicas {
            let sum = |used: Vec<(ExtentIndex, u64)>| used.into_iter().map(|(_, bytes)| bytes).sum::<u64>();
            return there.into_iter().map(|drive| used(drive).map(sum)).sum();
        }
        let mut used_by_extent: Vec<Option<u64>> =
            vec![None; usize::try_from(extent_count(volume.size_bytes)).ok()?];
        // An unreadable drive does not matter: other replicas tell the same.
        for (extent, bytes) in there.into_iter().filter_map(used).flatten() {
            if let Some(most) = used_by_extent.get_mut(extent.index()) {
                *most = Some(bytes.max(most.unwrap_or(0)));
            }
        }
        used_by_extent.into_iter().sum()
    }

    /// Bytes that the files of each volume occupy in one replica, on average over the replicas. `None` if
    /// they cannot be examined.
    pub(crate) fn occupied(&self, volumes: &[VolumeRecord]) -> Vec<Option<Occupied>> {
        let mut by_drive: BTreeMap<DriveId, Due> = BTreeMap::new();
        for volume in volumes {
            for drive in volume.placement.drives() {
                by_drive.entry(drive).or_default().occupied.insert(volume.id);
            }
        }
        let model = self.core.model();
        let is_known = volumes.iter().all(|volume| self.known_occupied(&model, volume).is_some());
        let until = Instant::now() + if is_known { LOOK_WAIT } else { FIRST_LOOK_WAIT };
        let ask = |(drive, due)| Some((self.gauges.gauge(drive), self.core.store(drive).ok()?, due));
        let asked: Vec<_> = by_drive.into_iter().filter_map(ask).collect();
        let asked: Vec<_> = asked.iter().map(|(gauge, store, due)| (gauge, gauge.ask(store, due))).collect();
        asked.into_iter().for_each(|(gauge, asked)| gauge.wait(asked, until));
        volumes.iter().map(|volume| self.known_occupied(&model, volume)).collect()
    }

    fn known_occupied(&self, model: &Model, volume: &VolumeRecord) -> Option<Occupied> {
        let drives = volume.placement.drives();
        let there: Vec<DriveId> = drives.iter().copied().filter(|drive| model.is_there(*drive)).collect();
        if !volume.placement.has_replicas() && there.len() < drives.len() {
            return None;
        }
        let all: Option<Vec<Occupied>> =
            there.into_iter().map(|drive| self.gauges.occupied(drive, volume.id)).collect();
        let sum = all?.iter().fold(Occupied::default(), |sum, one| Occupied {
            used_bytes: sum.used_bytes + one.used_bytes,
            unique_bytes: sum.unique_bytes + one.unique_bytes,
        });
        // Replicas hold the same data, each on drives of its own.
        let replicas = u64::from(volume.replicas.max(1));
        Some(Occupied { used_bytes: sum.used_bytes / replicas, unique_bytes: sum.unique_bytes / replicas })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volumes(count: u128) -> Vec<VolumeId> {
        (0..count).map(|number| VolumeId(uuid::Uuid::from_u128(number))).collect()
    }

    #[test]
    fn requests_precede_rounds() {
        let mut state = State { turn: Turn { left: volumes(40), ..Turn::default() }, ..State::default() };
        assert!(matches!(state.next_look(), Some(Look::InTurn(volumes)) if volumes.len() == TURN_STEP));
        (state.asked, state.due.has_space) = (1, true);
        assert!(matches!(state.next_look(), Some(Look::Asked(due, 1)) if due.has_space));
        state.answered = 1;
        for left in [8, 0] {
            assert!(matches!(state.next_look(), Some(Look::InTurn(_))) && state.turn.left.len() == left);
            assert!(!state.turn.may_begin() || left == 0);
        }
        assert!(state.looking_since.is_some());
        assert!(state.next_look().is_none() && state.looking_since.is_none());
    }

    #[test]
    fn round_is_followed_by_proportional_pause() {
        let mut turn = Turn { left: volumes(1), ..Turn::default() };
        turn.took(Duration::from_secs(1));
        assert!(turn.next_at.is_none(), "it is not over");
        turn.left.clear();
        assert!(turn.may_begin());
        turn.took(Duration::from_secs(9));
        assert!(!turn.may_begin() && turn.cost.is_zero());
    }

    #[test]
    fn only_changed_volumes_are_examined_again() {
        let (figures, mut model, id) = (Gauges::default(), Model::default(), volumes(1)[0]);
        let open = OpenVolume::default();
        model.open.insert(id, open.clone());
        assert_eq!(figures.changed(&model), BTreeSet::from([id]), "it was never looked at");
        let served = weir_engine_interface::statistics::Served { bytes: 4096, ..Default::default() };
        let statistics = open.statistics();
        statistics.read.record(served);
        assert!(figures.changed(&model).is_empty());
        for changing in [&statistics.write, &statistics.other] {
            changing.record(served);
            assert_eq!(figures.changed(&model), BTreeSet::from([id]));
        }
        assert!(figures.changed(&model).is_empty());
    }

    #[test]
    fn overdue_drive_is_not_waited_for_and_shows_last_figures() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_owned()).unwrap();
        let (figures, drive) = (Gauges::default(), DriveId(uuid::Uuid::from_u128(1)));
        let due = Due { has_space: true, ..Due::default() };
        figures.look(&[(drive, store.clone())], &due, Duration::from_secs(60));
        let told = figures.space(drive).unwrap();
        assert!(told.usage.is_ok());
        // From here on, the thread of the drive looks as if it had not answered since.
        let gauge = figures.gauge(drive);
        wait_until_idle(&gauge);
        gauge.state().looking_since = Some(crate::tests::origin() - LOOK_WAIT);
        figures.look(&[(drive, store)], &due, Duration::from_secs(3600));
        let later = figures.space(drive).unwrap();
        assert_eq!(later.usage, told.usage);
        assert!(later.age >= told.age);
        let is_open = |state: &State| state.answered < state.asked;
        assert!(is_open(&gauge.state()), "no second thread looks");
    }

    fn wait_until_idle(gauge: &Gauge) {
        while gauge.state().looking_since.is_some() {
            std::thread::yield_now();
        }
    }
}
