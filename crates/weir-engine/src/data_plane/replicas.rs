//! Commands about the replicas and journals of a volume.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use weir_engine_interface::{EngineError, JournalSpec, VolumeHome};
use weir_types::{DriveId, ExtentIndex, VolumeId};
use weir_volume::mirror::ReplicaMetadata;

use super::DataPlane;
use crate::locks::locked;
use crate::volumes::command::{NewJournal, VolumeCommand};
use crate::volumes::replicas::NewChange;

/// How long control waits until a change is durable. The change holds up all others. If a drive does not
/// answer and no other replica serves, it must not hold them up for ever. After a timeout, the replica
/// states show whether the change was made.
const TIMEOUT: Duration = Duration::from_secs(30);

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
    ) -> Result<(), EngineError> {
        self.ask_volume(volume, |done| VolumeCommand::SetReadCosts { read_costs, done })
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
    /// [`EngineError::NotAdded`] if the metadata of the other replicas cannot be written; no replica was
    /// added then. Other errors if the volume is not open or the reactor has stopped.
    pub fn add_replica(
        &self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
        (homes, home): (&[VolumeHome], u8),
        journal: Option<DriveId>,
    ) -> Result<bool, EngineError> {
        let homes = self.new_homes(homes);
        let added = self.change_replica(volume, replica, NewChange::Add { homes, home, journal });
        self.bind_again(volume)?;
        added
    }

    /// Confirms that control has durably recorded an added replica, so that the next start looks for it.
    ///
    /// # Errors
    /// If the volume is not open; the next open finds the replica.
    pub fn confirm_added(&self, volume: VolumeId, replica: (ExtentIndex, usize)) -> Result<(), EngineError> {
        self.send(volume, VolumeCommand::ConfirmAdded { replica })
    }

    /// Puts a volume under its policies again, also on drives that are new to it.
    pub(crate) fn bind_again(&self, volume: VolumeId) -> Result<(), EngineError> {
        let is_bound = locked(&self.policies).contains_key(&volume);
        if is_bound { self.change_policy(volume, |_| ()) } else { Ok(()) }
    }

    /// Adds a journal to an open volume. False if the volume has a journal on that drive, or is about to
    /// close.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn add_journal(&self, volume: VolumeId, spec: JournalSpec) -> Result<bool, EngineError> {
        let journal = Box::new(self.new_journal(spec));
        let is_added = self.ask_volume(volume, |done| VolumeCommand::AddJournal { journal, done })?;
        self.bind_again(volume)?;
        Ok(is_added)
    }

    /// Removes an open volume's journal on a drive, which is unused when this call returns. False if
    /// replicas are behind the journal, or operations are under way.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn drop_journal(&self, volume: VolumeId, drive: DriveId) -> Result<bool, EngineError> {
        self.ask_volume(volume, |done| VolumeCommand::DropJournal { drive, done })
    }

    pub(crate) fn new_journal(&self, spec: JournalSpec) -> NewJournal {
        let home = self.new_homes(std::slice::from_ref(&spec.home)).remove(0);
        NewJournal { spec, home }
    }

    /// Removes a replica of an extent. When this call returns, the replica is unused and its file may be
    /// deleted. False if it is the last in-sync replica.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn remove_replica(
        &self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
    ) -> Result<bool, EngineError> {
        self.change_replica(volume, replica, NewChange::Remove)
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
        replica: (ExtentIndex, usize),
        found: Box<ReplicaMetadata>,
        journal: Option<(DriveId, OwnedFd)>,
    ) -> Result<bool, EngineError> {
        self.change_replica(volume, replica, NewChange::Rejoin { found, journal })
    }

    fn change_replica(
        &self,
        volume: VolumeId,
        replica: (ExtentIndex, usize),
        change: NewChange,
    ) -> Result<bool, EngineError> {
        let (done, answer) = sync_channel(1);
        self.send(volume, VolumeCommand::ChangeReplica { replica, change, done })?;
        let answer = answer.recv_timeout(TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => EngineError::Silent(volume),
            RecvTimeoutError::Disconnected => EngineError::Stopped(volume),
        })?;
        answer.map_err(|reason| EngineError::NotAdded { volume, reason })
    }
}
