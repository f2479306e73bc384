//! An engine for tests of control: it starts no thread, and serves no client. Every call is in effect when its
//! method returns.
//!
//! It keeps the promises that control relies on: replica metadata and epoch records lie durably beside the
//! replicas, a replica that lacks everything gets the content of another one, and reclaimed files go. So a test
//! can end it at any time, and start the next one on the same drives.
//!
//! Background work is done at once. Work of a kind that has a ceiling stands still until the ceiling goes, or
//! until a test lets steps through. A test can fail a drive, and have calls refused or held up.

mod background;
mod calls;
mod measurement;
mod replica;
mod volume;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_engine_interface::measure::{MeasureError, MeasureSpec, RunningMeasurement};
use weir_engine_interface::{
    Alarm, AttachedClient, CgroupLimit, DriveQueueDepth, DriveSpec, EngineError, FlushWindow, JournalSpec,
    OpenFile, PolicyLevel, ReclaimSpec, Recording, ScrubEnd, ScrubProgress, SnapshotSpec, SpaceLook,
    VolumeHome, VolumeLayout, VolumeSpec,
};
use weir_qos::{Credits, DepthOrigin};
use weir_types::{
    BackgroundKind, BackgroundPolicy, DriveId, ExtentIndex, Measurement, Scope, Terms, VolumeId,
};
use weir_volume::mirror::{RecoveredExtent, ReplicaMetadata, Slots};

use crate::engine::{Engine, OpenVolume};
use background::{FakeReclaim, Pace};
use calls::EngineCalls;
pub use calls::{EngineCall, HeldCall};
use measurement::FakeMeasurement;
use replica::place_of;
use volume::FakeVolume;

type Done = Result<(), EngineError>;

/// Depth of a drive queue that no operator chose.
const DEPTH: u32 = 32;

/// An engine without threads.
#[derive(Default)]
pub struct FakeEngine {
    state: Mutex<State>,
    calls: EngineCalls,
}

#[derive(Default)]
struct State {
    volumes: BTreeMap<VolumeId, FakeVolume>,
    /// The queue target of each drive on which a volume was ever opened.
    queue_targets: BTreeMap<DriveId, Option<u32>>,
    /// Whether space on a drive counts, for each drive of which that was told.
    counted: BTreeMap<DriveId, bool>,
    alarms: Vec<Alarm>,
    credits: Vec<(Scope, Credits, u64)>,
    pace: Pace,
    reclaims: Vec<FakeReclaim>,
    measurements: Vec<FakeMeasurement>,
    recording: Weak<Recording>,
    /// Number of snapshots of several volumes that will miss their instant.
    missed_instants: usize,
    /// The flush window of the volume whenever a replica was added.
    windows_at_additions: Vec<Option<FlushWindow>>,
}

impl State {
    fn volume(&mut self, volume: VolumeId) -> Result<&mut FakeVolume, EngineError> {
        self.volumes.get_mut(&volume).ok_or(EngineError::UnknownVolume(volume))
    }

    fn take_drives<'a>(&mut self, drives: impl IntoIterator<Item = &'a DriveSpec>) {
        for drive in drives {
            self.queue_targets.entry(drive.id).or_insert(drive.queue_target);
        }
    }

    /// Does all background work that may be done.
    fn work(&mut self) {
        let State { volumes, pace, reclaims, alarms, .. } = self;
        reclaims.retain_mut(|reclaim| !reclaim.go_on(pace));
        for (id, volume) in volumes {
            let whole = volume.resync(pace);
            let is_over = |alarm: &Alarm| alarm.volume == *id && whole.contains(&alarm.extent);
            alarms.retain(|alarm| !is_over(alarm));
            volume.scrub(pace);
        }
    }

    fn fail_replica(
        &mut self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
        drive: Option<DriveId>,
        message: &str,
    ) {
        let is_news = self.volumes.get_mut(&volume).is_some_and(|volume| volume.fail_replica(replica));
        if is_news {
            let (extent, message) = (replica.0, message.to_owned());
            self.alarms.push(Alarm { volume, drive, extent, message });
        }
    }
}

/// What a test arranges and sees.
impl FakeEngine {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether space on a drive counts, if that was told.
    pub fn is_counted(&self, drive: DriveId) -> Option<bool> {
        self.state().counted.get(&drive).copied()
    }

    /// The terms that a volume is under, from the top.
    pub fn terms_of(&self, volume: VolumeId) -> Vec<(Scope, Terms)> {
        self.state().volumes.get(&volume).map(|volume| volume.path.clone()).unwrap_or_default()
    }

    /// The flush window that a volume was told last.
    pub fn flush_window(&self, volume: VolumeId) -> Option<FlushWindow> {
        self.state().volumes.get(&volume)?.flush_window
    }

    /// The flush window of the volume whenever a replica was added.
    pub fn windows_at_additions(&self) -> Vec<Option<FlushWindow>> {
        self.state().windows_at_additions.clone()
    }

    /// The limits of cgroups on a volume.
    pub fn cgroups(&self, volume: VolumeId) -> Vec<CgroupLimit> {
        self.state().volumes.get(&volume).map(|volume| volume.cgroups.clone()).unwrap_or_default()
    }

    /// Sets the number of clients that are attached to a volume.
    ///
    /// # Panics
    /// If the volume is not open.
    pub fn attach_clients(&self, volume: VolumeId, clients: u64) {
        self.state().volumes.get(&volume).expect("the volume is open").attach_clients(clients);
    }

    /// Makes the next snapshots of several volumes miss their instant, as on a busy host.
    pub fn miss_instants(&self, count: usize) {
        self.state().missed_instants = count;
    }

    /// Lets this number of steps of background work through, although its kind has a ceiling: resyncs of one
    /// replica, scrubs of one volume, steps of reclaims.
    pub fn let_through(&self, kind: BackgroundKind, steps: usize) {
        let mut state = self.state();
        state.pace.let_through(kind, steps);
        state.work();
    }

    /// Fails every operation on a drive from now on: its replicas are out of service.
    pub fn fail_drive(&self, drive: DriveId) {
        let mut state = self.state();
        let of_volume = |(id, volume): (&VolumeId, &FakeVolume)| {
            let id = *id;
            volume.replicas_relying_on(drive).into_iter().map(move |replica| (id, replica))
        };
        let failed: Vec<_> = state.volumes.iter().flat_map(of_volume).collect();
        for (volume, replica) in failed {
            state.fail_replica(volume, replica, Some(drive), "the drive answers with errors");
        }
    }

    /// Refuses a call from now on, for this reason, or accepts it again.
    pub fn refuse(&self, call: EngineCall, reason: Option<&str>) {
        self.calls.refuse(call, reason);
    }

    /// Holds a call up until the answer is dropped.
    pub fn hold(&self, call: EngineCall) -> HeldCall<'_> {
        self.calls.hold(call)
    }

    /// Ends all measurements that run.
    pub fn end_measurements(&self, result: impl Fn() -> Result<Measurement, MeasureError>) {
        self.state().measurements.drain(..).for_each(|measurement| measurement.end(result()));
    }
}

impl Engine for FakeEngine {
    fn open(&self, spec: VolumeSpec, journals: Vec<JournalSpec>) -> Result<OpenVolume, EngineError> {
        let id = spec.id;
        self.calls.pass(EngineCall::Open).map_err(|_| EngineError::Silent(id))?;
        let mut state = self.state();
        let homes = spec.layout.homes.iter().chain(journals.iter().map(|journal| &journal.home));
        state.take_drives(homes.map(|home| &home.drive));
        let (volume, open) = FakeVolume::open(spec, journals);
        state.volumes.insert(id, volume);
        state.work();
        Ok(open)
    }

    fn close(&self, volume: VolumeId) -> Done {
        self.calls.pass(EngineCall::Close).map_err(|_| EngineError::Silent(volume))?;
        let mut state = self.state();
        state.volume(volume)?.end_scrub(ScrubEnd::Interrupted);
        state.volumes.remove(&volume);
        state.alarms.retain(|alarm| alarm.volume != volume);
        Ok(())
    }

    fn resize(
        &self,
        volume: VolumeId,
        size_bytes: u64,
        layout: VolumeLayout,
        recovered_extents: Vec<RecoveredExtent>,
        bindings: Vec<((ExtentIndex, usize), DriveId)>,
    ) -> Done {
        self.calls.pass(EngineCall::Resize).map_err(|_| EngineError::Silent(volume))?;
        let mut state = self.state();
        state.take_drives(layout.homes.iter().map(|home| &home.drive));
        let volume = state.volume(volume)?;
        volume.resize(size_bytes, &layout, recovered_extents);
        volume.bind_all(bindings);
        volume.publish();
        Ok(())
    }

    fn serve_attached(&self, volume: VolumeId, _client: AttachedClient) -> Done {
        self.state().volume(volume)?.attach_clients(1);
        Ok(())
    }

    fn end_attached(&self, volume: VolumeId) -> Done {
        self.state().volume(volume)?.attach_clients(0);
        Ok(())
    }

    fn set_read_only(&self, volume: VolumeId, is_read_only: bool) -> Done {
        self.calls.pass(EngineCall::SetReadOnly).map_err(|_| EngineError::Silent(volume))?;
        let mut state = self.state();
        let volume = state.volume(volume)?;
        if is_read_only {
            volume.attach_clients(0);
        }
        Ok(())
    }

    fn bind(&self, volume: VolumeId, path: Vec<PolicyLevel>) -> Done {
        let levels = path.into_iter().map(|level| (level.scope, level.terms)).collect();
        self.state().volume(volume)?.path = levels;
        Ok(())
    }

    fn limit_cgroups(&self, volume: VolumeId, limits: Vec<CgroupLimit>) -> Done {
        self.state().volume(volume)?.cgroups = limits;
        Ok(())
    }

    fn change_terms(&self, changes: &[(Scope, Terms)]) -> Done {
        let mut state = self.state();
        let levels = state.volumes.values_mut().flat_map(|volume| &mut volume.path);
        for (scope, terms) in levels {
            let change = changes.iter().find(|(changed, _)| changed == scope);
            *terms = change.map_or(*terms, |(_, new)| *new);
        }
        Ok(())
    }

    fn fail_replica(&self, volume: VolumeId, replica: (ExtentIndex, usize), message: String) {
        self.state().fail_replica(volume, replica, None, &message);
    }

    fn add_replica(
        &self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
        (homes, home): (&[VolumeHome], u8),
        journal: Option<DriveId>,
    ) -> Result<bool, EngineError> {
        let not_added = |reason| EngineError::NotAdded { volume, reason };
        self.calls.pass(EngineCall::AddReplica).map_err(not_added)?;
        let mut state = self.state();
        state.take_drives(homes.iter().map(|home| &home.drive));
        let home = place_of(&homes[usize::from(home)]);
        let window = state.volume(volume)?.flush_window;
        state.windows_at_additions.push(window);
        state.volume(volume)?.add_replica(replica, home, journal).map_err(not_added)
    }

    fn remove_replica(&self, volume: VolumeId, replica: (ExtentIndex, usize)) -> Result<bool, EngineError> {
        self.calls.pass(EngineCall::RemoveReplica).map_err(|_| EngineError::Silent(volume))?;
        Ok(self.state().volume(volume)?.remove_replica(replica))
    }

    fn rejoin_replica(
        &self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
        found: Box<ReplicaMetadata>,
        journal: Option<(DriveId, OwnedFd)>,
    ) -> Result<bool, EngineError> {
        let mut state = self.state();
        let journal = journal.map(|(drive, _)| drive);
        let has_rejoined = state.volume(volume)?.rejoin_replica(replica, &found, journal);
        state.work();
        Ok(has_rejoined)
    }

    fn confirm_added(&self, volume: VolumeId, replica: (ExtentIndex, usize)) -> Done {
        let mut state = self.state();
        state.volume(volume)?.confirm_added(replica);
        state.work();
        Ok(())
    }

    fn set_read_costs(&self, volume: VolumeId, _: Vec<(DriveId, u32)>) -> Done {
        self.state().volume(volume).map(|_| ())
    }

    fn set_flush_window(&self, volume: VolumeId, window: Option<FlushWindow>) -> Done {
        self.state().volume(volume)?.flush_window = window;
        Ok(())
    }

    fn add_journal(&self, volume: VolumeId, spec: JournalSpec) -> Result<bool, EngineError> {
        let mut state = self.state();
        state.take_drives([&spec.home.drive]);
        Ok(state.volume(volume)?.add_journal(spec))
    }

    fn drop_journal(&self, volume: VolumeId, drive: DriveId) -> Result<bool, EngineError> {
        Ok(self.state().volume(volume)?.drop_journal(drive))
    }

    fn give_up_journal(&self, volume: VolumeId, drive: DriveId) {
        if let Some(volume) = self.state().volumes.get_mut(&volume) {
            volume.give_up_journal(drive);
        }
    }

    fn snapshot(
        &self,
        specs: &[SnapshotSpec],
        at_instant: Option<&mut dyn FnMut()>,
    ) -> Result<Vec<Vec<Slots>>, EngineError> {
        let mut state = match specs.first().map(|spec| spec.volume) {
            None => return Ok(Vec::new()),
            Some(volume) => {
                let refused = |reason| EngineError::SnapshotRefused { volume, reason };
                self.calls.pass(EngineCall::Snapshot).map_err(refused)?;
                let mut state = self.state();
                if specs.len() > 1 && state.missed_instants > 0 {
                    state.missed_instants -= 1;
                    return Err(EngineError::SnapshotNotNow(volume));
                }
                state
            }
        };
        at_instant.into_iter().for_each(|at_instant| at_instant());
        let take = |spec: &SnapshotSpec| {
            let refused = |reason| EngineError::SnapshotRefused { volume: spec.volume, reason };
            state.volume(spec.volume)?.snapshot(spec).map_err(refused)
        };
        specs.iter().map(take).collect()
    }

    fn start_recording(
        &self,
        volumes: &[VolumeId],
        duration_ns: u64,
        records_max: u64,
    ) -> Result<Arc<Recording>, EngineError> {
        let mut state = self.state();
        if state.recording.strong_count() > 0 {
            return Err(EngineError::Recording);
        }
        volumes.iter().try_for_each(|volume| state.volume(*volume).map(|_| ()))?;
        let recording = Arc::new(Recording::new(1, duration_ns, records_max));
        state.recording = Arc::downgrade(&recording);
        Ok(recording)
    }

    fn stop_recording(&self, _: &[VolumeId]) {}

    fn scrub(&self, volume: VolumeId, progress: Arc<ScrubProgress>) -> Result<bool, EngineError> {
        let mut state = self.state();
        let has_begun = state.volume(volume)?.begin_scrub(progress);
        state.work();
        Ok(has_begun)
    }

    fn end_scrub(&self, volume: VolumeId) -> Done {
        self.state().volume(volume)?.end_scrub(ScrubEnd::Cancelled);
        Ok(())
    }

    fn start_reclaim(&self, spec: ReclaimSpec) {
        let mut state = self.state();
        state.reclaims.push(FakeReclaim::new(spec));
        state.work();
    }

    fn change_background(&self, kind: BackgroundKind, policy: BackgroundPolicy) -> Done {
        let mut state = self.state();
        state.pace.take_policy(kind, policy);
        state.work();
        Ok(())
    }

    fn credits(&self) -> Vec<(Scope, Credits, u64)> {
        self.state().credits.clone()
    }

    fn restore_credits(&self, credits: Vec<(Scope, Credits, u64)>) {
        self.state().credits = credits;
    }

    fn forget(&self, scope: &Scope) {
        self.state().credits.retain(|(other, ..)| other != scope);
    }

    fn alarms(&self) -> Vec<Alarm> {
        self.state().alarms.clone()
    }

    fn open_files(&self, drive: DriveId) -> Vec<OpenFile> {
        self.state().volumes.values().flat_map(|volume| volume.open_files(drive)).collect()
    }

    fn depth(&self, drive: DriveId) -> Option<DriveQueueDepth> {
        let depth = |target: &Option<u32>| match target {
            Some(operations) => DriveQueueDepth { operations: *operations, origin: DepthOrigin::Chosen },
            None => DriveQueueDepth { operations: DEPTH, origin: DepthOrigin::Sought },
        };
        self.state().queue_targets.get(&drive).map(depth)
    }

    fn set_queue_target(&self, drive: DriveId, queue_target: Option<u32>) {
        if let Some(known) = self.state().queue_targets.get_mut(&drive) {
            *known = queue_target;
        }
    }

    fn forget_drive(&self, drive: DriveId) {
        let mut state = self.state();
        state.queue_targets.remove(&drive);
        state.counted.remove(&drive);
    }

    fn set_drive_away(&self, drive: DriveId, is_away: bool) {
        if is_away {
            self.state().volumes.values_mut().for_each(|volume| volume.leave_to_others(drive));
        }
    }

    fn measure(&self, _: MeasureSpec) -> Result<Box<dyn RunningMeasurement>, MeasureError> {
        let measurement = FakeMeasurement::default();
        self.state().measurements.push(measurement.clone());
        Ok(Box::new(measurement))
    }

    fn begin_look_at_space(&self) -> SpaceLook {
        SpaceLook::default()
    }

    fn set_space_aside(&self, _: SpaceLook, _: u64, _: u64) {}

    fn set_is_counted(&self, drive: DriveId, is_counted: bool) {
        self.state().counted.insert(drive, is_counted);
    }
}
