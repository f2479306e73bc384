//! Homes: the drives that hold a volume, with its journals, and which replicas rely on each.

use weir_types::{DriveId, ExtentIndex};
use weir_volume::zeroing::Filesystem;

use super::Disk;
use crate::drive_queue::HomeQueue;
use crate::policy_path::own_level;
use crate::volumes::command::NewJournal;
use crate::volumes::volume_files::{Home, NewHome};

impl Disk<'_> {
    /// Adds a home to the volume, with leaves in its drive queue for the volume's connections.
    pub fn add_home(&mut self, home: NewHome) {
        let NewHome { drive, directory, read_cost, is_counted, emulated, drive_queue } = home;
        let now_ns = self.desk.io.now_ns;
        let queue = HomeQueue::new(drive_queue, &[own_level(self.id)], now_ns);
        self.desk.queues.add_home(now_ns, self.volume, &queue);
        self.emulated.add_home(emulated);
        let (is_away, filesystem) = (false, Filesystem::default());
        let home = Home { drive, directory, read_cost, is_away, is_counted, filesystem, queue };
        self.files.homes.push(home);
    }

    /// Adds the homes that the volume does not have yet. Answers the index of each given home. The volume may
    /// have other homes, left by a change that was begun and not recorded.
    pub fn add_new_homes(&mut self, homes: Vec<NewHome>) -> Vec<u8> {
        let mut indices = Vec::with_capacity(homes.len());
        for home in homes {
            let known = self.files.home_on(home.drive);
            let index = known.unwrap_or(self.files.homes.len());
            match known {
                None => self.add_home(home),
                // The drive may have been removed, and added at another path.
                Some(known) => self.files.homes[known].directory = home.directory,
            }
            indices.push(u8::try_from(index).expect("there are no more drives than bytes can count"));
        }
        indices
    }

    /// Adds a journal to the volume, whose size in bytes is given.
    pub fn add_journal(&mut self, new: NewJournal, size_bytes: u64) {
        let home = usize::from(self.add_new_homes(vec![new.home])[0]);
        let bindings = new.spec.bindings.iter().map(|((extent, slot), _)| (*extent, *slot));
        let homes: Vec<_> =
            bindings.map(|(extent, slot)| ((extent, slot), self.files.home_of(slot, extent))).collect();
        let home_of = |replica| homes.iter().find(|(of, _)| *of == replica).and_then(|(_, home)| *home);
        self.with_journals(|journals, desk| {
            journals.add(new.spec, home, home_of, desk);
            // A shrink may have been interrupted before it reached the journal.
            journals.trim_beyond(size_bytes, desk);
            journals.begin_last();
        });
    }

    /// The homes of an extent replica and of its journal.
    fn homes_of(&self, slot: usize, extent: ExtentIndex) -> impl Iterator<Item = usize> {
        self.files.home_of(slot, extent).into_iter().chain(self.journals.home_of(extent, slot))
    }

    /// True if the drive of an extent replica, or of its journal, is away.
    pub fn is_away(&self, slot: usize, extent: ExtentIndex) -> bool {
        self.homes_of(slot, extent).any(|home| self.files.homes[home].is_away)
    }

    /// The extent replicas on a home, or behind a journal on it, as pairs of slot and extent.
    pub fn replicas_relying_on(&self, home: usize) -> Vec<(usize, ExtentIndex)> {
        let all = (0..self.files.slots())
            .flat_map(|slot| ExtentIndex::first(self.mirror.extents()).map(move |extent| (slot, extent)));
        all.filter(|(slot, extent)| self.homes_of(*slot, *extent).any(|other| other == home)).collect()
    }

    /// Takes over the costs of reads on the volume's drives.
    pub fn take_read_costs(&mut self, read_costs: &[(DriveId, u32)]) {
        for (drive, cost) in read_costs {
            let home = self.files.homes.iter_mut().find(|home| home.drive == *drive);
            home.into_iter().for_each(|home| home.read_cost = *cost);
        }
        self.set_read_costs();
    }

    /// Makes reads use the fastest replicas.
    pub fn set_read_costs(&mut self) {
        if self.mirror.has_replicas() {
            ExtentIndex::first(self.mirror.extents()).for_each(|extent| self.set_read_costs_of(extent));
        }
    }

    /// Makes reads of an extent use its fastest replicas.
    pub fn set_read_costs_of(&mut self, extent: ExtentIndex) {
        for slot in 0..self.files.slots() {
            let home = self.files.home_of(slot, extent).and_then(|home| self.files.homes.get(home));
            let cost = home.map_or(u32::MAX, |home| home.read_cost);
            self.mirror.set_read_cost(extent, slot, cost);
        }
    }
}
