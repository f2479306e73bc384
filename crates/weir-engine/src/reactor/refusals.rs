//! Refusals: answering refused operations, and drives that are away.

use crate::helper::OpenError;
use crate::reactor::Reactor;
use crate::refusals::Refused;
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};
use weir_engine_interface::{Content, OpenFile};
use weir_types::DriveId;
use weir_types::bounds::EXTENT_BYTES;
use weir_volume::mirror::Answer;
use weir_volume::{Action, Fault, OperationId};

impl Reactor {
    /// Fails an action; the answer follows later.
    pub(crate) fn refuse_action(
        &mut self,
        replica: ReplicaIndex,
        number: AskNumber,
        action: &Action,
        fault: Fault,
    ) {
        let refused = match *action {
            Action::Open { extent, .. } => Refused::Open { replica, number, extent },
            Action::Allocate { extent, piece, .. } => {
                Refused::Allocate { replica, number, extent, piece, fault }
            }
            _ => {
                let operation = action.operation().expect("all else belongs to an operation");
                Refused::Operation { replica, operation, number, fault }
            }
        };
        self.refusals.0.push_back(refused);
    }

    /// Answers refused operations.
    pub(crate) fn pass_on_refusals(&mut self) {
        // An operation that is refused here again is answered in the next round.
        for _ in 0..self.refusals.0.len() {
            match self.refusals.0.pop_front().expect("it was counted") {
                Refused::Open { replica, number, extent } => {
                    let message = "its drive is away".to_owned();
                    self.extent_opened(
                        (replica, number),
                        extent,
                        Err(OpenError { message, fault: Fault::Away }),
                    );
                }
                Refused::Allocate { replica, number, extent, piece, fault } => {
                    self.allocation_refused((replica, number), (extent, piece), fault);
                }
                Refused::Operation { replica, operation, number, fault } => {
                    self.operation_refused(replica, (operation, number), fault);
                }
            }
        }
    }

    fn allocation_refused(
        &mut self,
        (replica, number): (ReplicaIndex, AskNumber),
        (extent, piece): (u32, u32),
        fault: Fault,
    ) {
        let Some(generation) = self.volumes[replica.volume].operations.answered(replica.slot, number) else {
            self.is_orphaned(replica, number);
            return;
        };
        let answer = Answer::Refused(extent, generation, piece, fault);
        self.volumes[replica.volume].disk(&mut self.io).tell(replica.slot, answer);
        self.answered(replica.volume, None);
    }

    fn operation_refused(
        &mut self,
        replica: ReplicaIndex,
        (operation, number): (OperationId, AskNumber),
        fault: Fault,
    ) {
        if !self.volumes[replica.volume].operations.is_wanted(replica.slot, operation, number) {
            self.is_orphaned(replica, number);
            return;
        }
        let mut disk = self.volumes[replica.volume].disk(&mut self.io);
        let waited_for = disk.completed(replica.slot, operation, Err(fault));
        self.answered(replica.volume, waited_for);
    }

    /// Marks a drive as away, or as back with its data.
    pub(crate) fn set_away(&mut self, drive: DriveId, is_away: bool) {
        let indices: Vec<VolumeIndex> = self.volumes.iter().map(|(index, _)| index).collect();
        for index in indices {
            let volume = &mut self.volumes[index];
            let Some(home) = volume.files.home_on(drive) else { continue };
            volume.files.homes[home].is_away = is_away;
            if is_away {
                self.leave_to_others(index, home);
            } else if self.resyncs.has(index) {
                self.resyncs.wake_at(self.io.now_ns);
            }
        }
    }

    /// Fails the replicas on a home for which other replicas serve.
    fn leave_to_others(&mut self, index: VolumeIndex, home: usize) {
        let volume = &mut self.volumes[index];
        if !volume.mirror.has_replicas() {
            return;
        }
        let replicas = volume.replicas_relying_on(home);
        volume.mirror.leave_to_others(replicas, &mut volume.effects);
        self.carry_out(index);
        self.settle_volume(index);
    }

    /// The files that are open on a drive.
    pub(crate) fn open_files(&self, drive: DriveId) -> Vec<OpenFile> {
        let mut files = Vec::new();
        for (_, volume) in &self.volumes {
            let Some(home) = volume.files.home_on(drive) else { continue };
            for (slot, extent) in volume.files.replicas_at(home, volume.mirror.extents()) {
                files.extend(volume.files.file_identity(slot, extent).map(|identity| OpenFile {
                    volume: volume.id,
                    content: Content::Replica(extent, slot),
                    path: volume.files.extent_path(slot, extent),
                    identity,
                    size_bytes: EXTENT_BYTES,
                }));
            }
            files.extend(volume.journals.log_on(drive).map(|(path, identity, size_bytes)| OpenFile {
                volume: volume.id,
                content: Content::Journal,
                path,
                identity,
                size_bytes,
            }));
        }
        files
    }
}
