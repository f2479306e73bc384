//! The engine as control sees it: the commands that it carries out.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_qos::Credits;
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, ExtentIndex, Scope, Terms, VolumeId};
use weir_volume::mirror::{RecoveredExtent, ReplicaMetadata, Slots};

#[cfg(doc)]
use crate::JobProgress;
use crate::measure::{MeasureError, MeasureSpec, RunningMeasurement};
use crate::{
    Alarm, AttachedClient, CgroupLimit, DriveQueueDepth, EngineError, FlushWindow, JournalSpec, OpenFile,
    OpenVolume, PolicyLevel, ReclaimSpec, Recording, ScrubProgress, SnapshotSpec, SpaceLook, VolumeHome,
    VolumeLayout, VolumeSpec,
};

/// Serves volumes. Every command is in effect when its method returns.
pub trait Engine: Send + Sync {
    /// Opens a volume with its journals; connections can be served as soon as this call returns. The caller
    /// must not open a volume twice.
    ///
    /// # Errors
    /// If the reactor has stopped.
    fn open(&self, spec: VolumeSpec, journals: Vec<JournalSpec>) -> Result<OpenVolume, EngineError>;

    /// Sets the number of operations that a drive keeps in flight; with `None` the drive queue finds it by
    /// trial. In effect when this call returns.
    fn set_queue_target(&self, drive: DriveId, queue_target: Option<u32>);

    /// Number of operations that a drive keeps in flight, if any volume was ever opened there.
    fn depth(&self, drive: DriveId) -> Option<DriveQueueDepth>;

    /// Reclaims the space of a pending deletion, under the policy of reclaims. The end shows in
    /// [`JobProgress::is_finished`]. A daemon that ends leaves the rest to the next daemon.
    fn start_reclaim(&self, spec: ReclaimSpec);

    /// Changes the policy of a kind of background work on every drive. In effect when this call returns.
    ///
    /// # Errors
    /// If a reactor has stopped.
    fn change_background(&self, kind: BackgroundKind, policy: BackgroundPolicy) -> Result<(), EngineError>;

    /// Forgets a drive that holds no volume any more.
    fn forget_drive(&self, drive: DriveId);

    /// Ends all connections of a volume, waits for its I/O to end, and closes its files.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn close(&self, volume: VolumeId) -> Result<(), EngineError>;

    /// Changes a volume's size and layout. New connections see the new size.
    ///
    /// When the volume grows, the new extent files must exist, and `recovered_extents` has the state of the
    /// new extents if the volume has replicas. When it shrinks, the old extent files must still exist, and
    /// open connections are ended. New replicas in `bindings` are attached to the journals on the given
    /// drives, which the volume must have.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn resize(
        &self,
        volume: VolumeId,
        size_bytes: u64,
        layout: VolumeLayout,
        recovered_extents: Vec<RecoveredExtent>,
        bindings: Vec<((ExtentIndex, usize), DriveId)>,
    ) -> Result<(), EngineError>;

    /// Serves the kernel of this host as a client of the volume. Requests that an earlier daemon left unanswered
    /// are served too. The service ends with the mount or the connection.
    ///
    /// # Errors
    /// If the volume is not open, or takes no further client.
    fn serve_attached(&self, volume: VolumeId, client: AttachedClient) -> Result<(), EngineError>;

    /// Ends the service of the kernel of this host for a volume. Requests that are not answered are left to whoever
    /// serves it next.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn end_attached(&self, volume: VolumeId) -> Result<(), EngineError>;

    /// Makes a volume writable, or read-only, which ends its open connections. In effect when this call
    /// returns: no write is under way then.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn set_read_only(&self, volume: VolumeId, is_read_only: bool) -> Result<(), EngineError>;

    /// Puts a volume under the terms of its policy levels, from the top; the volume's own level is the
    /// last. In effect when this call returns, also for waiting requests. A level with burst credit keeps
    /// the credit.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn bind(&self, volume: VolumeId, path: Vec<PolicyLevel>) -> Result<(), EngineError>;

    /// Sets the limits of cgroups on a volume. They hold for requests that name their process, which are those of
    /// mounted files, and add to the volume's own. In effect when this call returns; a process that has asked
    /// before, or has gone to another cgroup, is known as before for up to 0.1 s.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn limit_cgroups(&self, volume: VolumeId, limits: Vec<CgroupLimit>) -> Result<(), EngineError>;

    /// Changes the terms of levels for all volumes below them. In effect when this call returns.
    ///
    /// # Errors
    /// If a reactor has stopped.
    fn change_terms(&self, changes: &[(Scope, Terms)]) -> Result<(), EngineError>;

    /// The burst credit of every level that has one, with the age of the credit in nanoseconds (0 while the
    /// level is in use). Credit is counted in nanoseconds at the burst rate, for each of the level's limits.
    fn credits(&self) -> Vec<(Scope, Credits, u64)>;

    /// Restores the saved credit of levels, with its age, before any volume is bound to them.
    fn restore_credits(&self, credits: Vec<(Scope, Credits, u64)>);

    /// Forgets the credit of a level that no longer exists.
    fn forget(&self, scope: &Scope);

    /// Fails a replica of an extent because its file was found damaged. If it was the only replica, all
    /// requests on the extent fail. The fault appears in [`Engine::alarms`]. A second call changes
    /// nothing.
    fn fail_replica(&self, volume: VolumeId, replica: (ExtentIndex, usize), message: String);

    /// Invalidates a volume's write journal on a drive, because its log no longer exists: the replicas
    /// behind it fail for good. Does nothing if there is no journal, or if it has failed already.
    fn give_up_journal(&self, volume: VolumeId, drive: DriveId);

    /// The current faults.
    fn alarms(&self) -> Vec<Alarm>;

    /// Sets the cost of reads on a volume's drives, in any unit. The replicas with the lowest cost are
    /// read. In effect when this call returns.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn set_read_costs(&self, volume: VolumeId, read_costs: Vec<(DriveId, u32)>) -> Result<(), EngineError>;

    /// Lets flushes of a volume be owed within a window while several replicas hold the data, or carries out
    /// each before its answer. What is owed then is carried out at once.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn set_flush_window(&self, volume: VolumeId, window: Option<FlushWindow>) -> Result<(), EngineError>;

    /// Adds a replica of an extent, whose empty file exists already. When this call returns, the replica
    /// metadata names the replica durably, and resync runs in the background. The replica counts as in sync
    /// only after [`Engine::confirm_added`]. A volume must have the journal that the replica is to be
    /// behind.
    ///
    /// False if the replica cannot be added now. Then I/O of an earlier replica in its place is still under
    /// way, or no replica is left as a source.
    ///
    /// # Errors
    /// [`EngineError::NotAdded`] if the metadata of the other replicas cannot be written; no replica was
    /// added then. Other errors if the volume is not open or the reactor has stopped.
    fn add_replica(
        &self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
        homes: (&[VolumeHome], u8),
        journal: Option<DriveId>,
    ) -> Result<bool, EngineError>;

    /// Confirms that control has durably recorded an added replica, so that the next start looks for it.
    ///
    /// # Errors
    /// If the volume is not open; the next open finds the replica.
    fn confirm_added(&self, volume: VolumeId, replica: (ExtentIndex, usize)) -> Result<(), EngineError>;

    /// Adds a journal to an open volume. False if the volume has a journal on that drive, or is about to
    /// close.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn add_journal(&self, volume: VolumeId, spec: JournalSpec) -> Result<bool, EngineError>;

    /// Removes an open volume's journal on a drive, which is unused when this call returns. False if
    /// replicas are behind the journal, or operations are under way.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn drop_journal(&self, volume: VolumeId, drive: DriveId) -> Result<bool, EngineError>;

    /// Removes a replica of an extent. When this call returns, the replica is unused and its file may be
    /// deleted. False if it is the last in-sync replica.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn remove_replica(&self, volume: VolumeId, replica: (ExtentIndex, usize)) -> Result<bool, EngineError>;

    /// Brings back a missing replica of an extent, with the replica metadata that was found beside it. With
    /// `journal`, the replica is behind the journal on that drive, and its file is given. False if there is
    /// no replica to bring back, or not now.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn rejoin_replica(
        &self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
        found: Box<ReplicaMetadata>,
        journal: Option<(DriveId, OwnedFd)>,
    ) -> Result<bool, EngineError>;

    /// Takes a snapshot of volumes, all at the same instant, while clients write to them. Returns when the
    /// snapshot is complete, for each volume and extent, the replicas in it. All of them are identical, and
    /// not durable yet. The caller adds and removes no replicas until then. Writes wait at most 50 ms for all
    /// volumes to begin.
    ///
    /// `at_instant` is called once the instant is fixed: what is written from then on is not in the snapshot. The
    /// snapshot may still fail after that.
    ///
    /// # Errors
    /// If a volume is not open or cannot be in a snapshot now. Then no snapshot stays in progress.
    fn snapshot(
        &self,
        specs: &[SnapshotSpec],
        at_instant: Option<&mut dyn FnMut()>,
    ) -> Result<Vec<Vec<Slots>>, EngineError>;

    /// Begins to record volumes, which are numbered in this order. One recording runs at a time, so that
    /// its memory is bounded.
    ///
    /// # Errors
    /// If another recording runs, a volume is not open, or a reactor has stopped. Nothing is recorded then.
    fn start_recording(
        &self,
        volumes: &[VolumeId],
        duration_ns: u64,
        records_max: u64,
    ) -> Result<Arc<Recording>, EngineError>;

    /// Ends recording volumes, and waits until that is in effect. A volume that was closed is no longer
    /// recorded already.
    fn stop_recording(&self, volumes: &[VolumeId]);

    /// Stops all operations except syncs on a drive whose folder is gone, or resumes them. In effect for
    /// all later commands.
    fn set_drive_away(&self, drive: DriveId, is_away: bool);

    /// The files that volumes have open on a drive.
    fn open_files(&self, drive: DriveId) -> Vec<OpenFile>;

    /// Begins to scrub a volume in the background, or queues it until others are done. The end shows in
    /// [`ScrubProgress::end`]. False if the volume is being scrubbed already, or is about to close.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn scrub(&self, volume: VolumeId, progress: Arc<ScrubProgress>) -> Result<bool, EngineError>;

    /// Cancels the scrub of a volume, if there is one. Pieces under way end soon.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    fn end_scrub(&self, volume: VolumeId) -> Result<(), EngineError>;

    /// Starts to measure a drive.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    fn measure(&self, spec: MeasureSpec) -> Result<Box<dyn RunningMeasurement>, MeasureError>;

    /// Begins a look at the filesystem of the state folder.
    fn begin_look_at_space(&self) -> SpaceLook;

    /// Sets the reserve and reports the free space of the filesystem of the state folder, both in bytes.
    /// Volumes leave the reserve free. The values hold until the next call.
    fn set_space_aside(&self, look: SpaceLook, reserve_bytes: u64, free_bytes: u64);

    /// Sets whether a drive is on the filesystem of the state folder.
    fn set_is_counted(&self, drive: DriveId, is_counted: bool);
}
