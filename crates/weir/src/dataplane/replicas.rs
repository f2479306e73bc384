//! Replicas of extents that come, go and come back, as control asks for it. Whoever asks is answered once it is durably
//! known beside the replicas, or that it cannot be now.

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

/// How long control waits until a change is durably known. It holds up all others meanwhile, and a drive that does not
/// answer, and that no other replica can stand in for, must not do so for ever. Whether the change came about is seen then
/// from how replicas stand.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What becomes of a replica of an extent.
pub(super) enum ReplicaChange {
    /// Its file is there and holds nothing, on the home with this index of these; it is behind the journal on a drive, or
    /// behind none.
    Add { homes: Vec<NewHome>, home: u8, journal: Option<DriveId> },
    /// It is given up.
    Remove,
    /// It could not be reached and is there again with this replica metadata, behind the journal on a drive, or behind
    /// none.
    Rejoin { found: Box<ReplicaMetadata>, journal: Option<(DriveId, OwnedFd)> },
}

/// A change that is not durably known yet, and who waits for it.
pub(super) struct AwaitedChange {
    extent: u32,
    slot: usize,
    is_there_after: bool,
    done: SyncSender<ChangeAnswer>,
}

/// Whether a change came about, or cannot now; or why not, in words.
pub(super) type ChangeAnswer = Result<bool, String>;

impl AwaitedChange {
    fn is_met_by(&self, extent: u32, replica_states: &ReplicaStates) -> bool {
        extent == self.extent && (replica_states[self.slot] != ReplicaState::Absent) == self.is_there_after
    }
}

impl Reactor {
    /// Changes a replica of an extent.
    pub(super) fn change_replica(
        &mut self,
        id: VolumeId,
        (extent, slot): (u32, usize),
        change: ReplicaChange,
        done: SyncSender<ChangeAnswer>,
    ) {
        let Some(&index) = self.by_id.get(&id) else { return tell(done, false) };
        // What is captured is read from the files of replicas as they are.
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
        // What was given up there may still be carried out.
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

    /// A replica that was added is recorded: it may count as in sync.
    pub(super) fn confirm_added(&mut self, id: VolumeId, (extent, slot): (u32, usize)) {
        if let Some(&index) = self.by_id.get(&id) {
            self.volumes[index].mirror.confirm_added(extent, slot);
            self.look_at_replicas_again(index, extent);
            self.carry_out(index);
        }
    }

    /// Has other replicas of a volume read from now on.
    pub(super) fn set_read_costs(&mut self, id: VolumeId, read_costs: &[(DriveId, u32)]) {
        if let Some(&index) = self.by_id.get(&id) {
            self.volumes[index].take_read_costs(read_costs);
        }
    }

    /// A replica could not be added, because no metadata could be written that names it: whoever waits for it is told why, and
    /// asks again.
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
            // They may have stopped waiting.
            let _ = change.done.send(Err(reason.clone()));
        }
    }

    /// Answers those who wait for what stands now; and those who wait in vain, because no replica is left that has
    /// everything.
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
            // Its file must stay while a journal may still bring something there, or a request reads it: it is asked again.
            let is_needed =
                journals.is_forgetting(extent, change.slot) || !mirror.has_answered(extent, change.slot);
            let is_settled = change.is_there_after || !is_needed;
            tell(change.done, replica_states.is_some() && is_settled);
        }
    }
}

/// Tells whoever asked. They may have stopped waiting.
fn tell(done: SyncSender<ChangeAnswer>, is_so: bool) {
    let _ = done.send(Ok(is_so));
}

impl DataPlane {
    /// Says how long reads take on the drives of a volume, in any unit: the replicas on those with the least are read. Holds
    /// from the answer on.
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

    /// Adds a replica of an extent, whose file is there and holds nothing: from the answer on it is durably known to be
    /// there, and it is brought up to date in the background; it counts as in sync only after
    /// [`DataPlane::confirm_added`]. False if it cannot be added now: something of an earlier one there is still under way,
    /// or no replica is left to duplicate from. If it is to be behind a journal, the volume has that.
    ///
    /// # Errors
    /// [`DataPlaneError::NotAdded`] if it cannot be recorded beside the other replicas: nothing knows of it then. Others if
    /// the volume is not open or the reactor has stopped.
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

    /// A replica that was added is durably recorded, so that the next start looks for it.
    ///
    /// # Errors
    /// If the volume is not open: it finds the replica when it is opened.
    pub fn confirm_added(&self, volume: VolumeId, replica: (u32, usize)) -> Result<(), DataPlaneError> {
        let reactor = self.reactor_of(volume)?;
        self.reactors[reactor].order(Command::ConfirmAdded { volume, replica });
        Ok(())
    }

    /// Puts a volume under its policies also on drives that are new to it.
    pub(super) fn bind_again(&self, volume: VolumeId) -> Result<(), DataPlaneError> {
        let path = super::locked(&self.paths).get(&volume).cloned();
        path.map_or(Ok(()), |path| self.bind(volume, path))
    }

    /// Has an open volume use one more journal. False if it has one on that drive, or is about to be closed.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn add_journal(&self, volume: VolumeId, spec: JournalSpec) -> Result<bool, DataPlaneError> {
        let journal = Box::new(self.new_journal(spec));
        let is_added = self.ask_whether(volume, |done| Command::AddJournal { volume, journal, done })?;
        self.bind_again(volume)?;
        Ok(is_added)
    }

    /// Has an open volume give up its journal on a drive: from the answer on nothing is asked of it. False if something is
    /// behind it, or still under way.
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

    /// Gives an order and waits for the answer to it.
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

    /// Gives up a replica of an extent; from the answer on nothing is asked of it any more, and its file may go. False if
    /// it is the last that has everything.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn remove_replica(&self, volume: VolumeId, replica: (u32, usize)) -> Result<bool, DataPlaneError> {
        self.change_replica(volume, replica, ReplicaChange::Remove)
    }

    /// Takes back a replica of an extent that could not be reached, with the replica metadata that was found beside it; it is
    /// behind the journal on a drive, then with its file, or behind none.
    /// False if there is nothing to take back, or not now.
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
