//! Changes: the files and journals of replicas that come, go and return, and of a volume that is resized.

use std::os::fd::OwnedFd;

use weir_types::{DriveId, ExtentIndex};
use weir_volume::geometry::extent_count;
use weir_volume::mirror::FileState;

use super::Disk;
use crate::volumes::replicas::NewChange;

impl Disk<'_> {
    /// What is known of the files of a replica that is to change.
    pub fn file_state(&self, (extent, slot): (ExtentIndex, usize), change: &NewChange) -> FileState {
        let can_attach = match change {
            NewChange::Add { journal, .. } => self.journals.can_attach((extent, slot), *journal),
            NewChange::Rejoin { journal, .. } => {
                let drive = journal.as_ref().map(|(drive, _)| *drive);
                self.journals.can_attach((extent, slot), drive)
            }
            NewChange::Remove => true,
        };
        FileState { has_orphaned_io: self.operations.has_orphans_of(extent, slot), can_attach }
    }

    /// Uses the files of a replica that comes or returns. `size_bytes` is the size of the volume.
    pub fn take_changed(&mut self, (extent, slot): (ExtentIndex, usize), change: NewChange, size_bytes: u64) {
        match change {
            NewChange::Add { homes, home, journal } => {
                let home = self.add_new_homes(homes)[usize::from(home)];
                self.files.set_home((extent, slot), home, self.mirror.extents());
                self.operations.set_slots(self.files.slots());
                self.attach((extent, slot), journal, None);
                self.set_read_costs_of(extent);
                self.with_journals(|journals, desk| journals.forget_elsewhere((extent, slot), desk));
            }
            NewChange::Remove => {}
            NewChange::Rejoin { journal, .. } => {
                let (drive, file) = journal.unzip();
                self.attach((extent, slot), drive, file);
                self.files.set_file(slot, extent, None);
                self.with_journals(|journals, desk| {
                    journals.forget_elsewhere((extent, slot), desk);
                    journals.resume((extent, slot), desk);
                    journals.trim_beyond(size_bytes, desk);
                });
            }
        }
    }

    /// Attaches a replica to the journal on a drive, if it is to be behind one.
    fn attach(
        &mut self,
        (extent, slot): (ExtentIndex, usize),
        journal: Option<DriveId>,
        file: Option<OwnedFd>,
    ) {
        let replica = ((extent, slot), self.files.home_of(slot, extent));
        if let Some(drive) = journal {
            self.journals.attach(replica, drive, file);
        }
    }

    /// Detaches a removed extent replica; its journal forgets its data.
    pub fn detach(&mut self, extent: ExtentIndex, slot: usize) {
        if self.journals.knows(extent, slot) {
            self.with_journals(|journals, desk| journals.detach(extent, slot, desk));
        }
    }

    /// Attaches the replicas of new extents to the journals that were chosen for them.
    pub fn attach_new(&mut self, bindings: Vec<((ExtentIndex, usize), DriveId)>) {
        for (replica, drive) in bindings {
            match self.journals.can_attach(replica, Some(drive)) {
                true => self.attach(replica, Some(drive), None),
                // The journal has failed since it was chosen.
                false => self.journals.invalidate(replica.0, replica.1),
            }
        }
        self.with_journals(|_, _| {});
    }

    /// Makes journals forget the data beyond a smaller size. The range may grow again, and old data must not
    /// be destaged there. [`VolumeJournals::is_cutting`](crate::volumes::journals::VolumeJournals::is_cutting) is false
    /// once they have forgotten it for good.
    pub fn cut_journals(&mut self, size_bytes: u64) {
        self.with_journals(|journals, desk| {
            journals.detach_from(extent_count(size_bytes), desk);
            journals.trim_beyond(size_bytes, desk);
        });
    }

    /// Empties journals that receive no writes. A replica that is in the way of a full journal fails if
    /// another replica has the data, so that the journal need not wait for ever.
    pub fn look_at_journals(&mut self) {
        let in_the_way = self.with_journals(|journals, desk| journals.look(desk));
        let mirror = &*self.mirror;
        let served: Vec<_> =
            in_the_way.into_iter().filter(|(extent, slot)| mirror.has_other(*extent, *slot)).collect();
        self.with_journals(|journals, _| {
            served.into_iter().for_each(|(extent, slot)| journals.invalidate(extent, slot));
        });
    }
}
