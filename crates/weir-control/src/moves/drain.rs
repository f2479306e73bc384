//! Check before a drain: whether the content of a drive can go to other drives.
//!
//! It decides and changes nothing. The moves decide how replicas get there.

use std::collections::{BTreeMap, BTreeSet};

use weir_plan::failure_domain::Room;
use weir_plan::replica_plan::{Candidate, Unreachable, Wish, unreachable};
use weir_types::units::Size;
use weir_types::{ClassPolicy, DriveId, ExtentIndex};
use weir_volume::mirror::ReplicaState;

use crate::engine::OpenVolume;
use crate::error::{ControlError, Outcome, list_names};
use crate::figures::Usages;
use crate::model::{Drive, Model};
use crate::moves::{Moves, Stranded, candidates, wishes};
use crate::records::{DriveRecord, VolumeRecord};

/// Filesystems, by the system's number of each.
type Filesystems = BTreeSet<u64>;

/// Space that a volume uses on draining drives, and the drives and filesystems that can take it.
#[derive(Clone, Debug)]
struct Load {
    volume: String,
    used_bytes: u64,
    destinations: BTreeSet<DriveId>,
    filesystems: Filesystems,
}

/// A set of filesystems with too little space for the loads that can go nowhere else.
#[derive(Debug, PartialEq, Eq)]
struct Shortage {
    filesystems: Filesystems,
    used_bytes: u64,
    available_bytes: u64,
}

/// Finds filesystems with too little space for the loads that can go nowhere else.
fn shortage(loads: &[Load], available: &BTreeMap<u64, u64>) -> Option<Shortage> {
    let all: Filesystems = loads.iter().flat_map(|load| load.filesystems.iter().copied()).collect();
    let sets: BTreeSet<&Filesystems> = loads.iter().map(|load| &load.filesystems).chain([&all]).collect();
    sets.into_iter().find_map(|set| {
        let within = loads.iter().filter(|load| load.filesystems.is_subset(set));
        let used_bytes = within.map(|load| load.used_bytes).sum();
        let available_bytes = set.iter().filter_map(|filesystem| available.get(filesystem)).sum();
        (used_bytes > available_bytes).then(|| Shortage {
            filesystems: set.clone(),
            used_bytes,
            available_bytes,
        })
    })
}

/// Available space by filesystem, as far as it is known.
fn available(usages: &Usages) -> BTreeMap<u64, u64> {
    let usages = usages.values().filter_map(|usage| usage.as_ref().ok());
    usages.map(|usage| (usage.filesystem, usage.available_bytes)).collect()
}

/// A replica of an extent: the extent, its slot and its drive.
type Replica = (ExtentIndex, (usize, DriveId));

/// True if an extent of a volume on a missing drive has no complete replica on a present drive.
fn has_last_replica(model: &Model, missing: &Drive, volume: &VolumeRecord) -> bool {
    let is_good = has_everything(model, volume);
    let mut extents = volume.placement.extents_on(missing.record.id, volume.size_bytes);
    extents.any(|extent| !volume.placement.replicas_of(extent).any(|replica| is_good(extent, replica)))
}

/// Returns a test for replicas of a volume: reachable, on a present drive, and in sync.
fn has_everything(model: &Model, volume: &VolumeRecord) -> impl Fn(ExtentIndex, (usize, DriveId)) -> bool {
    let status = model.open.get(&volume.id).map(OpenVolume::status).unwrap_or_default();
    move |extent, (slot, drive)| {
        // Nothing is known of a volume that is not open: none of its replicas has everything.
        let state = status.replica_states.get(extent.index()).map(|states| states[slot]);
        model.is_there(drive) && state == Some(ReplicaState::InSync) && !status.faults.is_away(extent, slot)
    }
}

impl Moves {
    /// Refuses to drain a drive, in addition to the drives that drain already, if any content cannot go
    /// elsewhere.
    ///
    /// # Errors
    /// Refused if a volume is not served, or would be on too few drives. Refused if the drive is missing and
    /// has the only complete replica of an extent. Full if there is too little space elsewhere, with the
    /// missing amount.
    pub(crate) fn refuse_stranded(&self, drive: &DriveRecord) -> Outcome<()> {
        let drain = drain_with(&self.core.model(), drive.id);
        let volumes = volumes_held_by(&self.core.model(), &BTreeSet::from([drive.id]));
        self.refuse_last_replicas(drive, &volumes)?;
        self.refuse_unserved(drive, &volumes)?;
        self.refuse_stranded_journals(drive, &drain)?;
        let usages = self.figures.usages();
        let rooms: Vec<Room> =
            self.placing.rooms().into_iter().filter(|room| !drain.contains(&room.drive)).collect();
        let volumes = volumes_held_by(&self.core.model(), &drain);
        let load = |volume: &VolumeRecord| self.load_of(drive, volume, &drain, (&rooms, &usages));
        let loads: Vec<Load> = volumes.iter().map(load).collect::<Outcome<_>>()?;
        match shortage(&loads, &available(&usages)) {
            Some(shortage) => Err(self.refuse_shortage(drive, &loads, &shortage)),
            None => Ok(()),
        }
    }

    /// Refuses a missing drive while no other replica of its extents is known to have everything.
    fn refuse_last_replicas(&self, drive: &DriveRecord, volumes: &[VolumeRecord]) -> Outcome<()> {
        let model = self.core.model();
        let Some(missing) = model.drives.get(&drive.id).filter(|drive| drive.store.is_err()) else {
            return Ok(());
        };
        let last: Vec<String> = volumes
            .iter()
            .filter(|volume| has_last_replica(&model, missing, volume))
            .map(VolumeRecord::export_name)
            .collect();
        if last.is_empty() {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "{}; it has the only replica that has everything of extents of: {}; bring it back first",
            missing.unavailable(),
            list_names(last.iter())
        )))
    }

    fn refuse_unserved(&self, drive: &DriveRecord, volumes: &[VolumeRecord]) -> Outcome<()> {
        let model = self.core.model();
        let unserved = volumes.iter().filter(|volume| !model.open.contains_key(&volume.id));
        let unserved = list_names(unserved.map(VolumeRecord::export_name));
        if unserved.is_empty() {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "drive '{}' cannot be emptied: it holds extents of volumes that are not served: {unserved}; 'weir status' \
             says why they are not",
            drive.name
        )))
    }

    /// Refuses to drain a drive with a write journal whose replicas cannot go behind another journal.
    fn refuse_stranded_journals(&self, drive: &DriveRecord, drain: &BTreeSet<DriveId>) -> Outcome<()> {
        for volume in self.journals.volumes_on(drive.id) {
            let record = self.core.model().volumes.get(&volume).map(|volume| volume.record.clone());
            // A volume that is being made is not known yet. The drive is not empty before its journal is elsewhere.
            let Some(record) = record else { continue };
            self.journals.refuse_too_few_drives(&record, drain).map_err(|mut error| {
                error.message = format!("drive '{}' cannot be emptied: {}", drive.name, error.message);
                error
            })?;
            let Some(Stranded { why, class }) = self.journal_strands(volume, drive.id, drain) else {
                continue;
            };
            let model = self.core.model();
            let volume = model.volume_by_id(volume)?.record.export_name();
            return Err(ControlError::refused(format!(
                "drive '{}' cannot be emptied: the write journal of volume '{volume}' on it cannot go before the \
                 replica behind it is on another drive: {why}; add a drive of {class}, or have the volume follow \
                 another template",
                drive.name
            )));
        }
        Ok(())
    }

    /// The space that a volume uses on draining drives. Refused if there are too few other drives.
    fn load_of(
        &self,
        drive: &DriveRecord,
        volume: &VolumeRecord,
        drain: &BTreeSet<DriveId>,
        (rooms, usages): (&[Room], &Usages),
    ) -> Outcome<Load> {
        let (wishes, destinations) = destinations(&self.core.model(), volume, rooms.to_vec());
        if let Some(Unreachable { wish, wished, there }) = unreachable(&wishes, &destinations) {
            let class = wish.map_or("any class".to_owned(), |class| format!("class {class}"));
            return Err(ControlError::refused(format!(
                "drive '{}' cannot be emptied: the replicas of volume '{}' need {wished} drives of {class}, and without \
                 this one there are {there}; add a drive first",
                drive.name,
                volume.export_name()
            )));
        }
        let destinations: BTreeSet<DriveId> =
            destinations.iter().map(|candidate| candidate.room.drive).collect();
        let usage = |drive: &DriveId| usages.get(drive)?.as_ref().ok();
        Ok(Load {
            volume: volume.export_name(),
            used_bytes: self.used_bytes_on(volume, drain),
            filesystems: destinations.iter().filter_map(usage).map(|usage| usage.filesystem).collect(),
            destinations,
        })
    }

    /// Bytes that replicas of a volume on these drives occupy. For a missing drive, they are estimated from
    /// other replicas of the same extents.
    fn used_bytes_on(&self, volume: &VolumeRecord, drives: &BTreeSet<DriveId>) -> u64 {
        let mut used: BTreeMap<ExtentIndex, u64> = BTreeMap::new();
        for (_, store) in self.core.stores_there(volume) {
            // An unreadable folder has an alarm, and holds nothing that could be moved.
            for (extent, bytes) in store.used_by_extent(volume.id).unwrap_or_default() {
                let most = used.entry(extent).or_default();
                *most = bytes.max(*most);
            }
        }
        let on = |drive: &DriveId| volume.placement.extents_on(*drive, volume.size_bytes).collect::<Vec<_>>();
        drives.iter().flat_map(on).filter_map(|extent| used.get(&extent)).sum()
    }

    fn refuse_shortage(&self, drive: &DriveRecord, loads: &[Load], shortage: &Shortage) -> ControlError {
        let within = || loads.iter().filter(|load| load.filesystems.is_subset(&shortage.filesystems));
        let destinations: BTreeSet<DriveId> =
            within().flat_map(|load| load.destinations.iter().copied()).collect();
        let volumes = list_names(within().filter(|load| load.used_bytes > 0).map(|load| &load.volume));
        let model = self.core.model();
        let others = destinations.iter().filter_map(|drive| model.drives.get(drive));
        let others = list_names(others.map(|drive| &drive.record.name));
        let Shortage { used_bytes, available_bytes, .. } = *shortage;
        ControlError::full(format!(
            "drive '{}' cannot be emptied: {} are to be moved of: {volumes}; the drives that can take them have {} free: \
             {others}; {} are missing: add a drive, or delete what is not needed",
            drive.name,
            Size(used_bytes),
            Size(available_bytes),
            Size(used_bytes - available_bytes)
        ))
    }

    /// The replicas of a volume that another complete replica can replace, on a drive that is present.
    pub(crate) fn replaceable(&self, volume: &VolumeRecord) -> Outcome<Vec<Replica>> {
        let replicas = |extent| volume.placement.replicas_of(extent).map(move |replica| (extent, replica));
        let all = ExtentIndex::all_of(volume.size_bytes).flat_map(replicas);
        let model = self.core.model();
        if !model.open.contains_key(&volume.id) {
            drop(model);
            // The volume is not served because of another extent, so its files decide.
            let servable = self.extents.servable_extents(volume)?;
            return Ok(all.filter(|(extent, _)| servable.contains(extent)).collect());
        }
        let is_good = has_everything(&model, volume);
        let others_have = |(extent, (slot, _)): &Replica| {
            let others = volume.placement.replicas_of(*extent);
            others.filter(|(other, _)| other != slot).any(|other| is_good(*extent, other))
        };
        Ok(all.filter(others_have).collect())
    }
}

/// The draining drives, with one more.
fn drain_with(model: &Model, drive: DriveId) -> BTreeSet<DriveId> {
    let all = model.drives.values().map(|drive| &drive.record);
    all.filter(|record| record.is_draining || record.id == drive).map(|record| record.id).collect()
}

/// Volumes with extents on any of these drives.
fn volumes_held_by(model: &Model, drives: &BTreeSet<DriveId>) -> Vec<VolumeRecord> {
    let holds = |volume: &&VolumeRecord| {
        volume.placement.holders(volume.size_bytes).iter().any(|holder| drives.contains(holder))
    };
    model.volumes.values().map(|volume| &volume.record).filter(holds).cloned().collect()
}

/// The destinations for a volume's replicas if only the drives of `rooms` stay.
///
/// A preferred class that none of these drives has is ignored.
fn destinations(model: &Model, volume: &VolumeRecord, rooms: Vec<Room>) -> (Vec<Wish>, Vec<Candidate>) {
    let candidates = candidates(model, volume, rooms);
    let is_to_be_had = |wish: &Wish| candidates.iter().any(|candidate| candidate.class == *wish);
    let relaxed =
        |wish: Wish| wish.filter(|_| volume.class_policy != ClassPolicy::Prefer || is_to_be_had(&wish));
    let wishes: Vec<Wish> = wishes(model, volume, &candidates).into_iter().map(relaxed).collect();
    let suits = |candidate: &Candidate| wishes.iter().any(|wish| wish.is_none() || *wish == candidate.class);
    let suitable = candidates.into_iter().filter(suits).collect();
    (wishes, suitable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(used_bytes: u64, filesystems: &[u64]) -> Load {
        Load {
            volume: "vol1".to_owned(),
            used_bytes,
            destinations: BTreeSet::new(),
            filesystems: filesystems.iter().copied().collect(),
        }
    }

    #[test]
    fn drained_loads_fit_their_destinations_singly_and_together() {
        let available = BTreeMap::from([(1, 10), (2, 5), (3, 7)]);
        let short = |loads: &[Load]| {
            let found = shortage(loads, &available)?;
            Some((found.filesystems.into_iter().collect::<Vec<_>>(), found.used_bytes, found.available_bytes))
        };
        assert_eq!(short(&[]), None);
        assert_eq!(short(&[load(10, &[1])]), None);
        assert_eq!(short(&[load(11, &[1])]), Some((vec![1], 11, 10)));
        assert_eq!(short(&[load(11, &[1, 2])]), None);
        assert_eq!(short(&[load(6, &[2]), load(0, &[1, 2])]), Some((vec![2], 6, 5)));
        assert_eq!(short(&[load(5, &[2]), load(11, &[1, 2])]), Some((vec![1, 2], 16, 15)));
        assert_eq!(short(&[load(15, &[1, 2]), load(7, &[3])]), None);
        assert_eq!(short(&[load(12, &[1, 2]), load(11, &[2, 3])]), Some((vec![1, 2, 3], 23, 22)));
        assert_eq!(short(&[load(1, &[9])]), Some((vec![9], 1, 0)), "nothing is known of that");
    }

    #[test]
    fn filesystem_of_several_drives_counts_once() {
        use weir_store::DriveUsage;
        let usage = |filesystem, available_bytes| {
            Ok(DriveUsage { size_bytes: 100, used_bytes: 0, available_bytes, filesystem })
        };
        let drive = |number: u128| DriveId(uuid::Uuid::from_u128(number));
        let usages: Usages = [
            (drive(1), usage(7, 30)),
            (drive(2), usage(7, 30)),
            (drive(3), usage(8, 5)),
            (drive(4), Err("it is missing".to_owned())),
        ]
        .into();
        assert_eq!(available(&usages), BTreeMap::from([(7, 30), (8, 5)]));
    }
}
