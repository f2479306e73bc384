//! Refusals: operations that a reactor fails without asking the drive, because the drive is away or has no
//! space (`space`).
//!
//! A refused operation is answered like any other failed operation.
//!
//! A drive is away while its folder is not at its path. Replicas on this drive, or behind a journal on it,
//! fail if other replicas serve, and are resynced later. The last replica of an extent stays in service
//! with its file open. No acknowledged write is lost, and I/O continues once control has found the same
//! file in its place.
//!
//! Until then, only syncs go to the drive. An open file can be made stable wherever its folder is, but not
//! after it was unlinked.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_reactor::Descriptor;
use weir_types::DriveId;
use weir_types::bounds::EXTENT_BYTES;
use weir_volume::mirror::Answer;
use weir_volume::mirror::absence::is_asked_while_away;
use weir_volume::{Action, Fault, OperationId};

use super::helper::OpenError;
use super::open_file::{Content, OpenFile};
use super::reactor::Reactor;
use super::space_count::SpaceAtHand;
use super::space_permission::{IsCounted, Permission};
use super::token::{AskNumber, ReplicaIndex, VolumeIndex};

/// A refused operation, which is answered in the next round.
enum Refused {
    Operation { replica: ReplicaIndex, operation: OperationId, number: AskNumber, fault: Fault },
    Allocate { replica: ReplicaIndex, number: AskNumber, extent: u32, piece: u32, fault: Fault },
    Open { replica: ReplicaIndex, number: AskNumber, extent: u32 },
}

/// A reactor's refusals that are not answered yet; each belongs to an operation under way.
#[derive(Default)]
pub(super) struct Refusals(VecDeque<Refused>);

impl Refusals {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether an action on a file of a home may be carried out now.
pub(super) fn permission(
    is_away: bool,
    is_counted: &IsCounted,
    space: &Rc<SpaceAtHand>,
    action: &Action,
) -> Permission {
    match action {
        Action::Sync { .. } => Permission::Granted(None),
        _ if is_away && !is_asked_while_away(action) => Permission::Refused(Fault::Away),
        _ => is_counted.permit(space, action),
    }
}

impl Reactor {
    /// Fails an action; the answer follows later.
    pub(super) fn refuse_action(
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
    pub(super) fn pass_on_refusals(&mut self) {
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
        self.tell(replica, Answer::Refused(extent, generation, piece, fault));
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
        let waited_for = self.completed(replica, operation, Err(fault));
        self.answered(replica.volume, waited_for);
    }

    /// Marks a drive as away, or as back with its data.
    pub(super) fn set_away(&mut self, drive: DriveId, is_away: bool) {
        let indices: Vec<VolumeIndex> = self.volumes.iter().map(|(index, _)| index).collect();
        for index in indices {
            let volume = &mut self.volumes[index];
            let Some(home) = volume.files.home_on(drive) else { continue };
            volume.files.homes[home].is_away = is_away;
            if is_away {
                self.leave_to_others(index, home);
            } else if self.resyncing_volumes.contains(&index) {
                self.wake_resync();
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
    pub(super) fn open_files(&self, drive: DriveId) -> Vec<OpenFile> {
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

    /// True if an open file on a missing drive was unlinked: data that is made stable in it is lost.
    pub(super) fn is_nameless(&self, replica: ReplicaIndex, extent: u32) -> bool {
        let volume = &self.volumes[replica.volume];
        let is_nameless = |file: &Descriptor| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0);
        let log = volume.journals.log_of(extent, replica.slot);
        volume.is_away(replica.slot, extent)
            && (is_nameless(&volume.files.file(replica.slot, extent)) || log.is_some_and(is_nameless))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn missing_drive_gets_only_syncs() {
        let (is_counted, generation) = (IsCounted::default(), weir_volume::Generation::default());
        let space = SpaceAtHand::new(&Arc::default());
        let allocate = Action::Allocate { extent: 0, generation, piece: 0 };
        let permission = |is_away, action| permission(is_away, &is_counted, &space, action);
        assert!(matches!(permission(false, &allocate), Permission::Granted(None)));
        assert!(matches!(permission(true, &allocate), Permission::Refused(Fault::Away)));
        let sync = Action::Sync { extent: 0, generation };
        assert!(matches!(permission(true, &sync), Permission::Granted(None)));
    }
}
