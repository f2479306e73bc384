//! The data plane as an engine: the commands of control.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_engine_interface::measure::{MeasureError, MeasureSpec, RunningMeasurement};
use weir_engine_interface::{
    Alarm, AttachedClient, CgroupLimit, DriveQueueDepth, Engine, EngineError, FlushWindow, JournalSpec,
    OpenFile, OpenVolume, PolicyLevel, ReclaimSpec, Recording, ScrubProgress, SnapshotSpec, SpaceLook,
    VolumeHome, VolumeLayout, VolumeSpec,
};
use weir_qos::Credits;
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, ExtentIndex, Scope, Terms, VolumeId};
use weir_volume::mirror::{RecoveredExtent, ReplicaMetadata, Slots};

use super::DataPlane;
use crate::measure::Measuring;
use crate::volumes::command::VolumeCommand;

impl Engine for DataPlane {
    fn open(&self, spec: VolumeSpec, journals: Vec<JournalSpec>) -> Result<OpenVolume, EngineError> {
        DataPlane::open(self, spec, journals)
    }

    fn set_queue_target(&self, drive: DriveId, queue_target: Option<u32>) {
        DataPlane::set_queue_target(self, drive, queue_target)
    }

    fn depth(&self, drive: DriveId) -> Option<DriveQueueDepth> {
        DataPlane::depth(self, drive)
    }

    fn start_reclaim(&self, spec: ReclaimSpec) {
        DataPlane::start_reclaim(self, spec)
    }

    fn change_background(&self, kind: BackgroundKind, policy: BackgroundPolicy) -> Result<(), EngineError> {
        DataPlane::change_background(self, kind, policy)
    }

    fn forget_drive(&self, drive: DriveId) {
        DataPlane::forget_drive(self, drive)
    }

    fn close(&self, volume: VolumeId) -> Result<(), EngineError> {
        DataPlane::close(self, volume)
    }

    fn resize(
        &self,
        volume: VolumeId,
        size_bytes: u64,
        layout: VolumeLayout,
        recovered_extents: Vec<RecoveredExtent>,
        bindings: Vec<((ExtentIndex, usize), DriveId)>,
    ) -> Result<(), EngineError> {
        DataPlane::resize(self, volume, size_bytes, layout, recovered_extents, bindings)
    }

    fn serve_attached(&self, volume: VolumeId, client: AttachedClient) -> Result<(), EngineError> {
        DataPlane::serve_attached(self, volume, client)
    }

    fn end_attached(&self, volume: VolumeId) -> Result<(), EngineError> {
        DataPlane::end_attached(self, volume)
    }

    fn set_read_only(&self, volume: VolumeId, is_read_only: bool) -> Result<(), EngineError> {
        DataPlane::set_read_only(self, volume, is_read_only)
    }

    fn bind(&self, volume: VolumeId, path: Vec<PolicyLevel>) -> Result<(), EngineError> {
        DataPlane::bind(self, volume, path)
    }

    fn limit_cgroups(&self, volume: VolumeId, limits: Vec<CgroupLimit>) -> Result<(), EngineError> {
        DataPlane::limit_cgroups(self, volume, limits)
    }

    fn change_terms(&self, changes: &[(Scope, Terms)]) -> Result<(), EngineError> {
        DataPlane::change_terms(self, changes)
    }

    fn credits(&self) -> Vec<(Scope, Credits, u64)> {
        DataPlane::credits(self)
    }

    fn restore_credits(&self, credits: Vec<(Scope, Credits, u64)>) {
        DataPlane::restore_credits(self, credits)
    }

    fn forget(&self, scope: &Scope) {
        DataPlane::forget(self, scope)
    }

    fn fail_replica(&self, volume: VolumeId, replica: (ExtentIndex, usize), message: String) {
        DataPlane::fail_replica(self, volume, replica, message)
    }

    fn give_up_journal(&self, volume: VolumeId, drive: DriveId) {
        DataPlane::give_up_journal(self, volume, drive)
    }

    fn alarms(&self) -> Vec<Alarm> {
        DataPlane::alarms(self)
    }

    fn set_read_costs(&self, volume: VolumeId, read_costs: Vec<(DriveId, u32)>) -> Result<(), EngineError> {
        DataPlane::set_read_costs(self, volume, read_costs)
    }

    fn set_flush_window(&self, volume: VolumeId, window: Option<FlushWindow>) -> Result<(), EngineError> {
        self.ask_volume(volume, |done| VolumeCommand::SetFlushWindow { window, done })
    }

    fn add_replica(
        &self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
        homes: (&[VolumeHome], u8),
        journal: Option<DriveId>,
    ) -> Result<bool, EngineError> {
        DataPlane::add_replica(self, volume, replica, homes, journal)
    }

    fn confirm_added(&self, volume: VolumeId, replica: (ExtentIndex, usize)) -> Result<(), EngineError> {
        DataPlane::confirm_added(self, volume, replica)
    }

    fn add_journal(&self, volume: VolumeId, spec: JournalSpec) -> Result<bool, EngineError> {
        DataPlane::add_journal(self, volume, spec)
    }

    fn drop_journal(&self, volume: VolumeId, drive: DriveId) -> Result<bool, EngineError> {
        DataPlane::drop_journal(self, volume, drive)
    }

    fn remove_replica(&self, volume: VolumeId, replica: (ExtentIndex, usize)) -> Result<bool, EngineError> {
        DataPlane::remove_replica(self, volume, replica)
    }

    fn rejoin_replica(
        &self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
        found: Box<ReplicaMetadata>,
        journal: Option<(DriveId, OwnedFd)>,
    ) -> Result<bool, EngineError> {
        DataPlane::rejoin_replica(self, volume, replica, found, journal)
    }

    fn snapshot(
        &self,
        specs: &[SnapshotSpec],
        at_instant: Option<&mut dyn FnMut()>,
    ) -> Result<Vec<Vec<Slots>>, EngineError> {
        DataPlane::snapshot(self, specs, at_instant)
    }

    fn start_recording(
        &self,
        volumes: &[VolumeId],
        duration_ns: u64,
        records_max: u64,
    ) -> Result<Arc<Recording>, EngineError> {
        DataPlane::start_recording(self, volumes, duration_ns, records_max)
    }

    fn stop_recording(&self, volumes: &[VolumeId]) {
        DataPlane::stop_recording(self, volumes)
    }

    fn set_drive_away(&self, drive: DriveId, is_away: bool) {
        DataPlane::set_drive_away(self, drive, is_away)
    }

    fn open_files(&self, drive: DriveId) -> Vec<OpenFile> {
        DataPlane::open_files(self, drive)
    }

    fn scrub(&self, volume: VolumeId, progress: Arc<ScrubProgress>) -> Result<bool, EngineError> {
        DataPlane::scrub(self, volume, progress)
    }

    fn end_scrub(&self, volume: VolumeId) -> Result<(), EngineError> {
        DataPlane::end_scrub(self, volume)
    }

    fn measure(&self, spec: MeasureSpec) -> Result<Box<dyn RunningMeasurement>, MeasureError> {
        Measuring::start(spec, self.io_method)
            .map(|measuring| Box::new(measuring) as Box<dyn RunningMeasurement>)
    }

    fn begin_look_at_space(&self) -> SpaceLook {
        DataPlane::begin_look_at_space(self)
    }

    fn set_space_aside(&self, look: SpaceLook, reserve_bytes: u64, free_bytes: u64) {
        DataPlane::set_space_aside(self, look, reserve_bytes, free_bytes)
    }

    fn set_is_counted(&self, drive: DriveId, is_counted: bool) {
        DataPlane::set_is_counted(self, drive, is_counted)
    }
}
