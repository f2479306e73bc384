//! Changes of replicas: adding, removing and rejoining extent replicas for control. A change is answered
//! once it is durable in the replica metadata, or cannot be made now.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::time::Duration;

use weir_types::{DriveId, VolumeId};
use weir_volume::mirror::{ReplicaMetadata, ReplicaState, ReplicaStates};

use super::command::{Command, NewHome};
use super::journals::NewJournal;
use super::reactor::Reactor;
use super::served_volume::ServedVolume;
use super::token::VolumeIndex;
use super::{DataPlane, DataPlaneError, JournalSpec, VolumeHome};

/// How long control waits until a change is durable. The change holds up all others. If a drive does not
/// answer and no other replica serves, it must not hold them up for ever. After a timeout, the replica
/// states show whether the change was made.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A change of an extent replica.
pub(super) enum ReplicaChange {
    /// A new replica with an empty file, on the home with this index in `homes`; behind the journal on a
    /// drive, or behind none.
    Add { homes: Vec<NewHome>, home: u8, journal: Option<DriveId> },
    /// The replica is removed.
    Remove,
    /// A missing replica is back, with this replica metadata; behind the journal on a drive, or behind
    /// none.
    Rejoin { found: Box<ReplicaMetadata>, journal: Option<(DriveId, OwnedFd)> },
}

/// A change that is not durable yet, with the caller that waits for it.
pub(super) struct AwaitedChange {
    extent: u32,
    slot: usize,
    is_there_after: bool,
    done: SyncSender<ChangeAnswer>,
}

/// Whether a change was made, or the reason of its failure in words. False if it cannot be made now.
pub(super) type ChangeAnswer = Result<bool, String>;

impl AwaitedChange {
    fn is_met_by(&self, extent: u32, replica_states: &ReplicaStates) -> bool {
        extent == self.extent && (replica_states[self.slot] != ReplicaState::Absent) == self.is_there_after
    }
}

impl Reactor {
    /// Changes an extent replica.
    pub(super) fn change_replica(
        &mut self,
        id: VolumeId,
        (extent, slot): (u32, usize),
        change: ReplicaChange,
        done: SyncSender<ChangeAnswer>,
    ) {
        let Some(&index) = self.by_id.get(&id) else { return tell(done, false) };
        // A snapshot in progress reads the files of the current replicas.
        let is_busy =
            self.volumes[index].is_ending() || self.volumes[index].mirror.has_snapshot_in_progress();
        if is_busy || self.stop_by_ns.is_some() {
            return tell(done, false);
        }
        let is_there_after = !matches!(change, ReplicaChange::Remove);
        if !self.resyncing_volumes.contains(&index) {
            self.volumes[index].publish_replica_states();
        }
        if !self.begin_change(index, (extent, slot), change) {
            return tell(done, false);
        }
        let awaited = AwaitedChange { extent, slot, is_there_after, done };
        self.volumes[index].awaited_changes.push(awaited);
        self.resyncing_volumes.insert(index);
        self.go_on_with_resync(index);
    }

    fn begin_change(
        &mut self,
        index: VolumeIndex,
        (extent, slot): (u32, usize),
        change: ReplicaChange,
    ) -> bool {
        let volume = &mut self.volumes[index];
        // Orphaned I/O may still change the file.
        if !matches!(change, ReplicaChange::Remove) && volume.orphans.are_of(extent, slot) {
            return false;
        }
        match change {
            ReplicaChange::Add { homes, home, journal } => {
                if !volume.mirror.can_add(extent, slot) || !volume.can_attach((extent, slot), journal) {
                    return false;
                }
                let places = self.add_new_homes(index, homes);
                let home = places[usize::from(home)];
                let volume = &mut self.volumes[index];
                volume.mirror.add(extent, slot, &mut volume.effects);
                volume.set_home(extent, slot, home);
                journal.into_iter().for_each(|drive| volume.attach((extent, slot), drive, None));
                volume.set_read_costs_of(extent);
                self.forget_elsewhere(index, (extent, slot));
                true
            }
            ReplicaChange::Remove => volume.mirror.remove(extent, slot, &mut volume.effects),
            ReplicaChange::Rejoin { found, journal } => {
                let drive = journal.as_ref().map(|(drive, _)| *drive);
                let is_foreign = volume.mirror.is_foreign(extent, slot, &found);
                let is_back = volume.can_attach((extent, slot), drive)
                    && volume.mirror.rejoin(extent, slot, &found, &mut volume.effects);
                if is_back {
                    if is_foreign {
                        tracing::warn!(
                            volume = %volume.id, extent, slot, number = found.number,
                            "replica metadata is not what was last written there: the replica is brought in sync in full"
                        );
                    }
                    journal
                        .into_iter()
                        .for_each(|(drive, file)| volume.attach((extent, slot), drive, Some(file)));
                    volume.set_file(slot, extent, None);
                    volume.publish_away(extent);
                    let size_bytes = volume.size_bytes;
                    self.forget_elsewhere(index, (extent, slot));
                    self.resume_binding(index, (extent, slot));
                    self.trim_bindings(index, size_bytes);
                }
                is_back
            }
        }
    }

    /// Control has recorded an added replica, so it may count as in sync.
    pub(super) fn confirm_added(&mut self, id: VolumeId, (extent, slot): (u32, usize)) {
        if let Some(&index) = self.by_id.get(&id) {
            self.volumes[index].mirror.confirm_added(extent, slot);
            self.look_at_replicas_again(index, extent);
            self.carry_out(index);
        }
    }

    /// Sets the cost of reads on the volume's drives, which decides which replicas are read.
    pub(super) fn set_read_costs(&mut self, id: VolumeId, read_costs: &[(DriveId, u32)]) {
        if let Some(&index) = self.by_id.get(&id) {
            self.volumes[index].take_read_costs(read_costs);
        }
    }

    /// A replica was not added, because no metadata that names it could be written. The waiting caller
    /// learns the reason, and may try again.
    pub(super) fn addition_refused(&mut self, index: VolumeIndex, (extent, slot): (u32, usize)) {
        if self.volumes[index].journals.knows(extent, slot) {
            self.detach_replica(index, extent, slot);
        }
        let volume = &mut self.volumes[index];
        let reason = volume.fault_message.take().unwrap_or_default();
        let is_meant = |change: &mut AwaitedChange| {
            (change.extent, change.slot, change.is_there_after) == (extent, slot, true)
        };
        for change in volume.awaited_changes.extract_if(.., is_meant) {
            // The caller may have stopped waiting.
            let _ = change.done.send(Err(reason.clone()));
        }
    }

    /// Answers the callers whose change is made. With `None`, no in-sync replica is left, and all callers
    /// of the extent get a negative answer.
    pub(super) fn answer_changes(
        &mut self,
        index: VolumeIndex,
        extent: u32,
        replica_states: Option<&ReplicaStates>,
    ) {
        let ServedVolume { awaited_changes, journals, mirror, .. } = &mut self.volumes[index];
        let met = |change: &mut AwaitedChange| match replica_states {
            Some(replica_states) => change.is_met_by(extent, replica_states),
            None => change.extent == extent,
        };
        for change in awaited_changes.extract_if(.., met) {
            // The file of a removed replica must stay while a journal may destage to it or a request reads
            // it; the caller tries again.
            let is_needed =
                journals.is_forgetting(extent, change.slot) || !mirror.has_answered(extent, change.slot);
            let is_settled = change.is_there_after || !is_needed;
            tell(change.done, replica_states.is_some() && is_settled);
        }
    }
}

/// Answers a caller, which may have stopped waiting.
fn tell(done: SyncSender<ChangeAnswer>, is_so: bool) {
    let _ = done.send(Ok(is_so));
}

impl DataPlane {
    /// Sets the cost of reads on a volume's drives, in any unit. The replicas with the lowest cost are
    /// read. In effect when this call returns.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn set_read_costs(
        &self,
        volume: VolumeId,
        read_costs: Vec<(DriveId, u32)>,
    ) -> Result<(), DataPlaneError> {
        let reactor = self.reactor_of(volume)?;
        self.ask(reactor, volume, |done| Command::SetReadCosts { volume, read_costs, done })
    }

    /// Adds a replica of an extent, whose empty file exists already. When this call returns, the replica
    /// metadata names the replica durably, and resync runs in the background. The replica counts as in sync
    /// only after [`DataPlane::confirm_added`]. A volume must have the journal that the replica is to be
    /// behind.
    ///
    /// False if the replica cannot be added now. Then I/O of an earlier replica in its place is still under
    /// way, or no replica is left as a source.
    ///
    /// # Errors
    /// [`DataPlaneError::NotAdded`] if the metadata of the other replicas cannot be written; no replica was
    /// added then. Other errors if the volume is not open or the reactor has stopped.
    pub fn add_replica(
        &self,
        volume: VolumeId,
        replica: (u32, usize),
        (homes, home): (&[VolumeHome], u8),
        journal: Option<DriveId>,
    ) -> Result<bool, DataPlaneError> {
        let homes = self.new_homes(homes);
        let added = self.change_replica(volume, replica, ReplicaChange::Add { homes, home, journal });
        self.bind_again(volume)?;
        added
    }

    /// Confirms that control has durably recorded an added replica, so that the next start looks for it.
    ///
    /// # Errors
    /// If the volume is not open; the next open finds the replica.
    pub fn confirm_added(&self, volume: VolumeId, replica: (u32, usize)) -> Result<(), DataPlaneError> {
        let reactor = self.reactor_of(volume)?;
        self.reactors[reactor].order(Command::ConfirmAdded { volume, replica });
        Ok(())
    }

    /// Puts a volume under its policies again, also on drives that are new to it.
    pub(super) fn bind_again(&self, volume: VolumeId) -> Result<(), DataPlaneError> {
        let path = super::locked(&self.paths).get(&volume).cloned();
        path.map_or(Ok(()), |path| self.bind(volume, path))
    }

    /// Adds a journal to an open volume. False if the volume has a journal on that drive, or is about to
    /// close.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn add_journal(&self, volume: VolumeId, spec: JournalSpec) -> Result<bool, DataPlaneError> {
        let journal = Box::new(self.new_journal(spec));
        let is_added = self.ask_whether(volume, |done| Command::AddJournal { volume, journal, done })?;
        self.bind_again(volume)?;
        Ok(is_added)
    }

    /// Removes an open volume's journal on a drive, which is unused when this call returns. False if
    /// replicas are behind the journal, or operations are under way.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn drop_journal(&self, volume: VolumeId, drive: DriveId) -> Result<bool, DataPlaneError> {
        self.ask_whether(volume, |done| Command::DropJournal { volume, drive, done })
    }

    pub(super) fn new_journal(&self, spec: JournalSpec) -> NewJournal {
        let home = self.new_homes(std::slice::from_ref(&spec.home)).remove(0);
        NewJournal { spec, home }
    }

    /// Sends an order and waits for its answer.
    fn ask_whether(
        &self,
        volume: VolumeId,
        command: impl FnOnce(SyncSender<bool>) -> Command,
    ) -> Result<bool, DataPlaneError> {
        let reactor = self.reactor_of(volume)?;
        let (done, answer) = std::sync::mpsc::sync_channel(1);
        self.reactors[reactor].order(command(done));
        answer.recv().map_err(|_| DataPlaneError::Stopped(volume))
    }

    /// Removes a replica of an extent. When this call returns, the replica is unused and its file may be
    /// deleted. False if it is the last in-sync replica.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn remove_replica(&self, volume: VolumeId, replica: (u32, usize)) -> Result<bool, DataPlaneError> {
        self.change_replica(volume, replica, ReplicaChange::Remove)
    }

    /// Brings back a missing replica of an extent, with the replica metadata that was found beside it. With
    /// `journal`, the replica is behind the journal on that drive, and its file is given. False if there is
    /// no replica to bring back, or not now.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn rejoin_replica(
        &self,
        volume: VolumeId,
        replica: (u32, usize),
        found: Box<ReplicaMetadata>,
        journal: Option<(DriveId, OwnedFd)>,
    ) -> Result<bool, DataPlaneError> {
        self.change_replica(volume, replica, ReplicaChange::Rejoin { found, journal })
    }

    fn change_replica(
        &self,
        volume: VolumeId,
        replica: (u32, usize),
        change: ReplicaChange,
    ) -> Result<bool, DataPlaneError> {
        let reactor = self.reactor_of(volume)?;
        let (done, answer) = std::sync::mpsc::sync_channel(1);
        self.reactors[reactor].order(Command::ChangeReplica { volume, replica, change, done });
        let answer = answer.recv_timeout(TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => DataPlaneError::Silent(volume),
            RecvTimeoutError::Disconnected => DataPlaneError::Stopped(volume),
        })?;
        answer.map_err(|reason| DataPlaneError::NotAdded { volume, reason })
    }
}
