//! Drive grants: running the operations that drive queues grant.

use super::Reactor;
use crate::drive_queue::{Pending, SharedDriveQueue};
use crate::shared_state::{DriveGrant, Message};
use crate::volumes::orphans::Orphan;

impl Reactor {
    /// A waiting operation may run. Orphaned I/O leaves its room at once; the drive queue is answered if
    /// others wait for the room.
    fn granted(&mut self, grant: DriveGrant) -> Option<SharedDriveQueue> {
        match self.volumes.queues.take(grant.pending) {
            Pending::Background(index) => self.background.carry_out_step(&mut self.io, index),
            Pending::Volume { replica, number, action } => {
                let (volume, mut desk) = self.volumes.at(&mut self.io, replica.volume);
                let mut disk = volume.disk(&mut desk);
                match disk.end_orphan(replica.slot, number) {
                    Orphan::Unknown => disk.submit_granted(replica.slot, action, &grant),
                    Orphan::Ended => {}
                    Orphan::LeftRoom(drive_queue) => return Some(drive_queue),
                }
            }
        }
        None
    }

    /// Runs the operations that a drive queue has room for.
    pub(super) fn release_drive_queue(&mut self, drive_queue: &SharedDriveQueue) {
        // Thousands of orphaned operations may wait in the drive queue, each of which makes room for the
        // next.
        let mut is_waited_for = true;
        while std::mem::take(&mut is_waited_for) {
            let mut grants = self.volumes.queues.grants(drive_queue, self.io.now_ns);
            for grant in grants.drain(..) {
                is_waited_for |= self.granted(grant).is_some();
            }
            self.volumes.queues.reuse(grants);
        }
    }

    /// Takes the messages of other reactors: requests and operations that may run.
    pub(super) fn take_messages(&mut self) {
        for message in self.shared_state.collect(self.io.reactor) {
            match message {
                Message::Admitted(admitted) => self.admitted(admitted),
                Message::Granted(grant) => {
                    if let Some(drive_queue) = self.granted(grant) {
                        self.release_drive_queue(&drive_queue);
                    }
                }
            }
        }
    }
}
