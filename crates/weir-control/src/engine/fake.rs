//! An engine for tests of control: it starts no thread and touches no file. Every order is at once in effect.
//!
//! It serves no client, finishes no reclaim, and takes neither snapshots nor recordings: tests of those start a
//! data plane.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_engine::statistics::VolumeStatistics;
use weir_engine::{
    Alarm, DataPlaneError, DriveQueueDepth, JournalSpec, OpenFile, PolicyLevel, ReclaimSpec, Recording,
    ScrubProgress, SnapshotSpec, SpaceLook, VolumeHome, VolumeLayout, VolumeSpec,
};
use weir_qos::Credits;
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, Scope, Terms, VolumeId};
use weir_volume::mirror::{RecoveredExtent, ReplicaMetadata, ReplicaState, Slots};

use crate::engine::{Engine, OpenVolume};

type Done = Result<(), DataPlaneError>;

/// An engine that only remembers its orders.
#[derive(Default)]
pub struct FakeEngine {
    volumes: Mutex<BTreeMap<VolumeId, FakeVolume>>,
    /// Whether space on a drive counts, for each drive of which that was told.
    counted: Mutex<BTreeMap<DriveId, bool>>,
}

#[derive(Default)]
struct FakeVolume {
    statistics: Arc<VolumeStatistics>,
    /// The terms of its levels, from the top.
    path: Vec<(Scope, Terms)>,
}

impl FakeEngine {
    fn volumes(&self) -> MutexGuard<'_, BTreeMap<VolumeId, FakeVolume>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        volume: VolumeId,
        order: impl FnOnce(&mut FakeVolume) -> T,
    ) -> Result<T, DataPlaneError> {
        self.volumes().get_mut(&volume).map(order).ok_or(DataPlaneError::UnknownVolume(volume))
    }

    /// Whether space on a drive counts, if that was told.
    pub fn is_counted(&self, drive: DriveId) -> Option<bool> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).get(&drive).copied()
    }

    /// The terms that a volume is under, from the top.
    pub fn terms_of(&self, volume: VolumeId) -> Vec<(Scope, Terms)> {
        self.volumes().get(&volume).map(|volume| volume.path.clone()).unwrap_or_default()
    }
}

impl FakeVolume {
    fn begin(&self, extents: &[RecoveredExtent]) {
        let states = extents.iter().map(|extent| extent.metadata.replica_states).collect();
        self.statistics.replication.begin(states);
    }

    fn set_state(&self, (extent, slot): (u32, usize), state: ReplicaState) {
        let states = self.statistics.replication.counters().replica_states.get(extent as usize).copied();
        // A volume that never had replicas has no recorded states.
        let Some(mut states) = states else { return };
        states[slot] = state;
        self.statistics.replication.stands(extent, states);
    }
}

impl Engine for FakeEngine {
    fn open(&self, spec: VolumeSpec, _: Vec<JournalSpec>) -> Result<OpenVolume, DataPlaneError> {
        let volume = FakeVolume::default();
        volume.begin(&spec.recovered_extents);
        let open = OpenVolume::new(Arc::clone(&volume.statistics));
        self.volumes().insert(spec.id, volume);
        Ok(open)
    }

    fn close(&self, volume: VolumeId) -> Done {
        self.volumes().remove(&volume).map(|_| ()).ok_or(DataPlaneError::UnknownVolume(volume))
    }

    fn resize(
        &self,
        volume: VolumeId,
        _: u64,
        _: VolumeLayout,
        _: Vec<RecoveredExtent>,
        _: Vec<((u32, usize), DriveId)>,
    ) -> Done {
        self.with(volume, |_| ())
    }

    fn set_read_only(&self, volume: VolumeId, _: bool) -> Done {
        self.with(volume, |_| ())
    }

    fn bind(&self, volume: VolumeId, path: Vec<PolicyLevel>) -> Done {
        let levels = path.into_iter().map(|level| (level.scope, level.terms)).collect();
        self.with(volume, |volume| volume.path = levels)
    }

    fn change_terms(&self, changes: &[(Scope, Terms)]) -> Done {
        let mut volumes = self.volumes();
        let levels = volumes.values_mut().flat_map(|volume| &mut volume.path);
        for (scope, terms) in levels {
            let change = changes.iter().find(|(changed, _)| changed == scope);
            *terms = change.map_or(*terms, |(_, new)| *new);
        }
        Ok(())
    }

    fn fail_replica(&self, volume: VolumeId, replica: (u32, usize), _: String) {
        // The volume may be closed by now: then there is nothing to fail.
        let _ = self.with(volume, |volume| volume.set_state(replica, ReplicaState::Stale));
    }

    fn add_replica(
        &self,
        volume: VolumeId,
        replica: (u32, usize),
        _: (&[VolumeHome], u8),
        _: Option<DriveId>,
    ) -> Result<bool, DataPlaneError> {
        self.with(volume, |volume| volume.set_state(replica, ReplicaState::InSync)).map(|()| true)
    }

    fn remove_replica(&self, volume: VolumeId, replica: (u32, usize)) -> Result<bool, DataPlaneError> {
        self.with(volume, |volume| volume.set_state(replica, ReplicaState::Absent)).map(|()| true)
    }

    fn rejoin_replica(
        &self,
        volume: VolumeId,
        replica: (u32, usize),
        _: Box<ReplicaMetadata>,
        _: Option<(DriveId, OwnedFd)>,
    ) -> Result<bool, DataPlaneError> {
        self.with(volume, |volume| volume.set_state(replica, ReplicaState::InSync)).map(|()| true)
    }

    fn confirm_added(&self, volume: VolumeId, _: (u32, usize)) -> Done {
        self.with(volume, |_| ())
    }

    fn set_read_costs(&self, volume: VolumeId, _: Vec<(DriveId, u32)>) -> Done {
        self.with(volume, |_| ())
    }

    fn add_journal(&self, volume: VolumeId, _: JournalSpec) -> Result<bool, DataPlaneError> {
        self.with(volume, |_| true)
    }

    fn drop_journal(&self, volume: VolumeId, _: DriveId) -> Result<bool, DataPlaneError> {
        self.with(volume, |_| true)
    }

    fn snapshot(&self, specs: &[SnapshotSpec]) -> Result<Vec<Vec<Slots>>, DataPlaneError> {
        let Some(volume) = specs.first().map(|spec| spec.volume) else { return Ok(Vec::new()) };
        Err(DataPlaneError::SnapshotRefused { volume, reason: "this engine has no content".to_owned() })
    }

    fn start_recording(&self, _: &[VolumeId], _: u64, _: u64) -> Result<Arc<Recording>, DataPlaneError> {
        Err(DataPlaneError::Recording)
    }

    fn scrub(&self, volume: VolumeId, _: Arc<ScrubProgress>) -> Result<bool, DataPlaneError> {
        self.with(volume, |_| false)
    }

    fn end_scrub(&self, volume: VolumeId) -> Done {
        self.with(volume, |_| ())
    }

    fn change_background(&self, _: BackgroundKind, _: BackgroundPolicy) -> Done {
        Ok(())
    }

    fn credits(&self) -> Vec<(Scope, Credits, u64)> {
        Vec::new()
    }

    fn alarms(&self) -> Vec<Alarm> {
        Vec::new()
    }

    fn open_files(&self, _: DriveId) -> Vec<OpenFile> {
        Vec::new()
    }

    fn depth(&self, _: DriveId) -> Option<DriveQueueDepth> {
        None
    }

    fn begin_look_at_space(&self) -> SpaceLook {
        SpaceLook::default()
    }

    fn set_queue_target(&self, _: DriveId, _: Option<u32>) {}
    fn start_reclaim(&self, _: ReclaimSpec) {}
    fn forget_drive(&self, _: DriveId) {}
    fn restore_credits(&self, _: Vec<(Scope, Credits, u64)>) {}
    fn forget(&self, _: &Scope) {}
    fn give_up_journal(&self, _: VolumeId, _: DriveId) {}
    fn stop_recording(&self, _: &[VolumeId]) {}
    fn set_drive_away(&self, _: DriveId, _: bool) {}
    fn set_space_aside(&self, _: SpaceLook, _: u64, _: u64) {}
    fn set_is_counted(&self, drive: DriveId, is_counted: bool) {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).insert(drive, is_counted);
    }
}
