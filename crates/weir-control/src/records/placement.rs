//! Placement: the drives of a volume's extent replicas.
//!
//! The module is pure: it knows drives by their identity, and nothing of their files. Two replicas of an
//! extent are never on the same drive. Replicas have slots, and an extent may lack the replica of a slot. A
//! move works extent by extent, each between two slots.
//!
//! A drive's position in the volume's list is fixed while a daemon runs, because the data plane uses it as
//! the drive's name. So a forgotten drive leaves a gap, and only the next daemon closes the gap.

use serde::{Deserialize, Serialize};
use weir_engine_interface::{NO_HOME, home_beyond_list};
use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_types::control_bounds::DRIVES_MAX;
use weir_types::{DriveId, ExtentIndex};

/// A replica's drive is stored as a one-byte index into the list of drives. One value means "none".
const _: () = assert!(DRIVES_MAX <= NO_HOME as usize);

/// Marks the position of a forgotten drive. No drive has this identity: identities are random or nil.
const GONE: DriveId = DriveId(uuid::Uuid::max());

/// The drives of each extent of a volume.
///
/// A listed drive may hold no extent, because a shrink removed them. The volume's folder exists there all the
/// same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Placement {
    /// The drives: at least one, none of them twice, with [`GONE`] at the positions of forgotten drives.
    drives: Vec<DriveId>,
    /// For each slot, of which there is at least one, and each extent: the index of its drive, or
    /// [`NO_HOME`].
    ///
    /// Extents beyond a list are on the first drive in slot 0, and absent in the other slots.
    replicas: Vec<Vec<u8>>,
}

/// Serialized form of a placement. A single drive is written alone, and the list of replicas is left out if
/// no extent has several.
///
/// These two forms are those of versions without several drives or replicas.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    One(DriveId),
    Single { drives: Vec<DriveId>, extents: Vec<u8> },
    Several { drives: Vec<DriveId>, replicas: Vec<Vec<u8>> },
}

impl Placement {
    /// All extents on one drive, with one replica each.
    pub fn on(drive: DriveId) -> Placement {
        Placement { drives: vec![drive], replicas: vec![Vec::new()] }
    }

    /// The placement of these extents, each with its replicas; `None` if there is no extent.
    pub fn of(extents: &[Vec<DriveId>]) -> Option<Placement> {
        let mut placement = Placement::on(*extents.first()?.first()?);
        placement.extend(0, extents);
        Some(placement)
    }

    /// Adds extents, each with its replicas, to a volume that has this many extents.
    pub fn extend(&mut self, count: u64, more: &[Vec<DriveId>]) {
        let slots = more.iter().map(Vec::len).max().unwrap_or(0).max(self.replicas.len());
        self.replicas.resize(slots, Vec::new());
        for (slot, list) in self.replicas.iter_mut().enumerate() {
            // The list must cover the present volume before extents are appended.
            list.resize(count as usize, home_beyond_list(slot));
        }
        for homes in more {
            for slot in 0..slots {
                let index = homes.get(slot).map_or(NO_HOME, |drive| self.index_of(*drive));
                self.replicas[slot].push(index);
            }
        }
        self.shorten(count + more.len() as u64);
    }

    /// The index of a drive, which is added if it is new.
    ///
    /// A caller that adds drives to a daemon leaves room for forgotten ones: see [`Placement::gone_count`].
    fn index_of(&mut self, drive: DriveId) -> u8 {
        let known = self.drives.iter().position(|known| *known == drive);
        let index = known.unwrap_or_else(|| {
            self.drives.push(drive);
            self.drives.len() - 1
        });
        u8::try_from(index).expect("there are no more drives than bytes can count")
    }

    /// Forgets the placement of extents beyond this many.
    pub fn shorten(&mut self, count: u64) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.replicas.iter_mut().for_each(|list| list.truncate(count));
        if self.drives.len() == 1 && !self.has_replicas() {
            self.replicas[0].clear();
        }
    }

    /// Sets or removes the drive of an extent replica, in a volume of `count` extents.
    ///
    /// The caller must leave another replica when it removes one.
    pub fn set(&mut self, count: u64, (extent, slot): (ExtentIndex, usize), drive: Option<DriveId>) {
        let slots = self.replicas.len().max(slot + 1);
        self.replicas.resize(slots, Vec::new());
        let index = drive.map_or(NO_HOME, |drive| self.index_of(drive));
        let list = &mut self.replicas[slot];
        list.resize(count as usize, home_beyond_list(slot));
        list[extent.index()] = index;
    }

    /// Forgets a drive that holds no replica of a volume of `count` extents; its position becomes a gap.
    ///
    /// Returns false if the drive holds a replica, or is the only drive.
    pub fn forget(&mut self, count: u64, drive: DriveId) -> bool {
        let Some(place) = self.drives.iter().position(|known| *known == drive) else { return false };
        let is_there =
            |extent: ExtentIndex| (0..self.replicas.len()).any(|slot| self.is_at(place, slot, extent));
        let is_needed =
            ExtentIndex::first(count as u32).any(is_there) || self.gone_count() + 1 == self.drives.len();
        if !is_needed {
            self.drives[place] = GONE;
        }
        !is_needed
    }

    /// Number of gaps in the list of drives.
    pub fn gone_count(&self) -> usize {
        self.drives.iter().filter(|drive| **drive == GONE).count()
    }

    /// The placement without gaps. This is for a starting daemon only: every user of positions must look them
    /// up again.
    pub fn compacted(mut self) -> Placement {
        if self.gone_count() == 0 {
            return self;
        }
        let mut next = 0..NO_HOME;
        let renumber =
            |drive: &DriveId| Some(*drive).filter(|drive| *drive != GONE).and_then(|_| next.next());
        let renumbered: Vec<u8> = self.drives.iter().map(renumber).map(|at| at.unwrap_or(NO_HOME)).collect();
        for home in self.replicas.iter_mut().flatten() {
            *home = renumbered.get(usize::from(*home)).copied().unwrap_or(NO_HOME);
        }
        self.drives.retain(|drive| *drive != GONE);
        // A list that is no longer needed is not written.
        self.shorten(u64::MAX);
        self
    }

    /// The drives, at least one.
    pub fn drives(&self) -> Vec<DriveId> {
        self.drives.iter().copied().filter(|drive| *drive != GONE).collect()
    }

    /// The drives by position; `None` at a gap.
    pub fn places(&self) -> impl Iterator<Item = Option<DriveId>> {
        self.drives.iter().map(|drive| (*drive != GONE).then_some(*drive))
    }

    /// For each slot and extent: the position of its drive in [`Placement::places`], or [`NO_HOME`].
    ///
    /// Extents beyond a list are on the first drive in slot 0, and absent in the other slots.
    pub fn replicas(&self) -> &[Vec<u8>] {
        &self.replicas
    }

    /// True if extents may have more than one replica.
    pub fn has_replicas(&self) -> bool {
        self.replicas.len() > 1
    }

    /// True if extents are, or were, on a drive.
    pub fn names(&self, drive: DriveId) -> bool {
        self.drives.contains(&drive)
    }

    fn index(&self, slot: usize, extent: ExtentIndex) -> u8 {
        self.replicas[slot].get(extent.index()).copied().unwrap_or(home_beyond_list(slot))
    }

    fn is_at(&self, place: usize, slot: usize, extent: ExtentIndex) -> bool {
        usize::from(self.index(slot, extent)) == place
    }

    /// The replicas of an extent: their slots and drives, in the order of the slots.
    pub fn replicas_of(&self, extent: ExtentIndex) -> impl Iterator<Item = (usize, DriveId)> {
        let home = move |slot| {
            let drive = self.drives.get(usize::from(self.index(slot, extent)))?;
            Some((slot, *drive))
        };
        (0..self.replicas.len()).filter_map(home)
    }

    /// The extents of a volume of this size that have a replica on a drive, in order.
    pub fn extents_on(&self, drive: DriveId, size_bytes: u64) -> impl Iterator<Item = ExtentIndex> {
        let place = self.drives.iter().position(|known| *known == drive);
        let is_there = move |extent: &ExtentIndex| {
            place.is_some_and(|place| (0..self.replicas.len()).any(|slot| self.is_at(place, slot, *extent)))
        };
        ExtentIndex::all_of(size_bytes).filter(is_there)
    }

    /// Bytes that a volume of this size may come to occupy on a drive.
    pub fn bytes_on(&self, drive: DriveId, size_bytes: u64) -> u64 {
        if self.drives == [drive] {
            return size_bytes;
        }
        let bytes = |extent: ExtentIndex| (size_bytes - extent.start_bytes()).min(EXTENT_BYTES);
        self.extents_on(drive, size_bytes).map(bytes).sum()
    }

    /// The drives that hold a replica of any extent of a volume of this size.
    pub fn holders(&self, size_bytes: u64) -> Vec<DriveId> {
        if self.drives.len() == 1 {
            return self.drives.clone();
        }
        let by_replica = self.drives_by_replica(size_bytes);
        self.drives
            .iter()
            .copied()
            .filter(|drive| by_replica.iter().any(|replica| replica.contains(drive)))
            .collect()
    }

    /// For each slot: the drives that hold a replica of any extent of a volume of this size.
    pub fn drives_by_replica(&self, size_bytes: u64) -> Vec<Vec<DriveId>> {
        let drives_of = |slot: usize| {
            let mut is_used = vec![false; self.drives.len()];
            for extent in ExtentIndex::all_of(size_bytes) {
                if let Some(is_used) = is_used.get_mut(usize::from(self.index(slot, extent))) {
                    *is_used = true;
                }
            }
            let used = self.drives.iter().zip(is_used).filter(|(_, is_used)| *is_used);
            used.map(|(drive, _)| *drive).collect()
        };
        (0..self.replicas.len()).map(drives_of).collect()
    }

    /// True if the drives that pass `is_there` together have a replica of each extent of a volume of this
    /// size.
    pub fn is_covered(&self, size_bytes: u64, is_there: impl Fn(DriveId) -> bool) -> bool {
        let is_there: Vec<bool> = self.drives.iter().map(|drive| is_there(*drive)).collect();
        let has = |slot: usize, extent: ExtentIndex| {
            is_there.get(usize::from(self.index(slot, extent))) == Some(&true)
        };
        ExtentIndex::all_of(size_bytes).all(|extent| (0..self.replicas.len()).any(|slot| has(slot, extent)))
    }
}

impl From<Placement> for Form {
    fn from(Placement { drives, mut replicas }: Placement) -> Form {
        match (&drives[..], replicas.len()) {
            ([drive], 1) => Form::One(*drive),
            (_, 1) => Form::Single { drives, extents: replicas.swap_remove(0) },
            _ => Form::Several { drives, replicas },
        }
    }
}

impl TryFrom<Form> for Placement {
    type Error = String;

    fn try_from(form: Form) -> Result<Placement, String> {
        let (drives, replicas) = match form {
            Form::One(drive) => (vec![drive], vec![Vec::new()]),
            Form::Single { drives, extents } => (drives, vec![extents]),
            Form::Several { drives, replicas } => (drives, replicas),
        };
        let placement = Placement { drives, replicas };
        placement.check().map(|()| placement)
    }
}

impl Placement {
    /// Refuses an invalid placement with the reason.
    fn check(&self) -> Result<(), String> {
        let Placement { drives, replicas } = self;
        let is_twice = |index: usize| drives[index] != GONE && drives[..index].contains(&drives[index]);
        if self.gone_count() == drives.len() || (1..drives.len()).any(is_twice) {
            return Err(format!("a placement names {} drives, none or one of them twice", drives.len()));
        }
        if !(1..=REPLICA_SLOTS_MAX).contains(&replicas.len()) {
            return Err(format!(
                "a placement has {} replicas, where 1 to {REPLICA_SLOTS_MAX} can be",
                replicas.len()
            ));
        }
        let extents = replicas.iter().map(Vec::len).max().unwrap_or(0);
        ExtentIndex::first(extents as u32).try_for_each(|extent| self.check_extent(extent))
    }

    fn check_extent(&self, extent: ExtentIndex) -> Result<(), String> {
        let slots = 0..self.replicas.len();
        let places: Vec<u8> =
            slots.map(|slot| self.index(slot, extent)).filter(|at| *at != NO_HOME).collect();
        let wrong = match places.iter().copied().max() {
            None => "no replica".to_owned(),
            Some(highest) if usize::from(highest) >= self.drives.len() => {
                format!("a replica on the {}th of {} drives", u32::from(highest) + 1, self.drives.len())
            }
            Some(_) if (1..places.len()).any(|at| places[..at].contains(&places[at])) => {
                "two replicas on one drive".to_owned()
            }
            Some(_) if places.iter().any(|place| self.drives[usize::from(*place)] == GONE) => {
                "a replica on a drive that is forgotten".to_owned()
            }
            Some(_) => return Ok(()),
        };
        Err(format!("a placement has {wrong} of extent {extent}"))
    }
}

/// Records from before there were several drives have no placement: their volumes are on the default drive.
impl Default for Placement {
    fn default() -> Placement {
        Placement::on(DriveId::DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseError;

    fn drive(number: u128) -> DriveId {
        DriveId(uuid::Uuid::from_u128(number))
    }

    /// Extents with one replica each.
    fn single(numbers: &[u128]) -> Vec<Vec<DriveId>> {
        numbers.iter().map(|number| vec![drive(*number)]).collect()
    }

    fn read(value: serde_json::Value) -> Result<Placement, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn single_replicas_keep_their_older_form() {
        let one = Placement::of(&single(&[7, 7, 7])).unwrap();
        assert_eq!(one, Placement::on(drive(7)));
        let written = serde_json::json!(drive(7).to_string());
        assert_eq!(serde_json::to_value(&one).unwrap(), written);
        assert_eq!(read(written).unwrap(), one);
        let two = Placement::of(&single(&[7, 8, 7])).unwrap();
        let drives = [drive(7).to_string(), drive(8).to_string()];
        let written = serde_json::json!({"drives": drives, "extents": [0, 1, 0]});
        assert_eq!(serde_json::to_value(&two).unwrap(), written);
        assert_eq!(read(written).unwrap(), two);
        let copied = Placement::of(&[vec![drive(7), drive(8)]]).unwrap();
        let written = serde_json::json!({"drives": drives, "replicas": [[0], [1]]});
        assert_eq!(serde_json::to_value(&copied).unwrap(), written);
        assert_eq!(read(written).unwrap(), copied);
    }

    #[test]
    fn invalid_placement_is_refused() {
        let several = |drives: &[u128], field: &str, lists: serde_json::Value| {
            let drives: Vec<_> = drives.iter().map(|number| drive(*number).to_string()).collect();
            read(serde_json::json!({"drives": drives, field: lists}))
        };
        assert!(several(&[1, 2], "extents", [0, 1, 1].into()).is_ok());
        for (drives, extents) in [(&[][..], &[][..]), (&[1, 1], &[0]), (&[1, 2], &[2]), (&[1, 2], &[255])] {
            assert!(several(drives, "extents", extents.into()).is_err(), "{drives:?} {extents:?}");
        }
        let replicas = |lists: &[&[u8]]| several(&[1, 2], "replicas", serde_json::json!(lists));
        assert!(replicas(&[&[0, 255], &[1, 0]]).is_ok());
        assert!(replicas(&[&[], &[1]]).is_ok());
        for (lists, words) in [
            (&[][..], "has 0 replicas"),
            (&[&[0][..]; 5], "has 5 replicas"),
            (&[&[0, 1], &[1, 1]], "two replicas on one drive of extent 1"),
            (&[&[], &[0]], "two replicas on one drive of extent 0"),
            (&[&[0, 255], &[1, 255]], "no replica of extent 1"),
            (&[&[0], &[2]], "a replica on the 3th of 2 drives of extent 0"),
        ] {
            let error = replicas(lists).unwrap_err();
            assert!(error.contains(words), "{lists:?}: {error}");
        }
        let forgotten =
            |lists: &[&[u8]]| several(&[1, u128::MAX, u128::MAX], "replicas", serde_json::json!(lists));
        assert!(forgotten(&[&[0, 0]]).is_ok());
        let error = forgotten(&[&[0, 0], &[255, 2]]).unwrap_err();
        assert!(error.contains("a replica on a drive that is forgotten of extent 1"), "{error}");
        assert!(read(serde_json::json!(GONE.to_string())).is_err(), "no drive is left");
    }

    #[test]
    fn last_extent_counts_with_its_actual_size() {
        let placement = Placement::of(&single(&[1, 2, 1])).unwrap();
        let size_bytes = 2 * EXTENT_BYTES + 4096;
        assert_eq!(placement.bytes_on(drive(1), size_bytes), EXTENT_BYTES + 4096);
        assert_eq!(placement.bytes_on(drive(2), size_bytes), EXTENT_BYTES);
        assert_eq!(placement.bytes_on(drive(3), size_bytes), 0);
        let mirrored = Placement::of(&[vec![drive(1), drive(2)], vec![drive(2), drive(3)]]).unwrap();
        assert_eq!(mirrored.bytes_on(drive(2), EXTENT_BYTES + 4096), EXTENT_BYTES + 4096);
        assert_eq!(
            mirrored.drives_by_replica(2 * EXTENT_BYTES),
            [vec![drive(1), drive(2)], vec![drive(2), drive(3)]]
        );
    }

    /// Extents with 1 to 3 replicas on distinct drives out of 5.
    fn extents() -> impl Strategy<Value = Vec<Vec<DriveId>>> {
        let homes = (Just(vec![0, 1, 2, 3, 4]).prop_shuffle(), 1usize..4);
        let homes = homes.prop_map(|(order, replicas)| order.into_iter().take(replicas).map(drive).collect());
        prop::collection::vec(homes, 0..9)
    }

    /// The drives of all replicas of each extent.
    fn homes(placement: &Placement, count: usize) -> Vec<Vec<DriveId>> {
        let of = |extent| placement.replicas_of(extent).map(|(_, drive)| drive).collect();
        ExtentIndex::first(count as u32).map(of).collect()
    }

    /// Forgets a drive if it holds nothing. No other drive may change its position, and compaction must
    /// change nothing else.
    fn forget_and_check(
        placement: &mut Placement,
        oracle: &[Vec<DriveId>],
        drive: DriveId,
    ) -> Result<(), TestCaseError> {
        let before = placement.clone();
        let is_needed = oracle.iter().flatten().any(|home| *home == drive) || before.drives() == [drive];
        let is_forgotten = placement.forget(oracle.len() as u64, drive);
        prop_assert_eq!(is_forgotten, before.names(drive) && !is_needed);
        prop_assert_eq!(placement.names(drive), before.names(drive) && !is_forgotten);
        prop_assert_eq!(placement.replicas(), before.replicas());
        let left: Vec<_> = before.places().map(|place| place.filter(|known| *known != drive)).collect();
        let same = if is_forgotten { left } else { before.places().collect() };
        prop_assert_eq!(placement.places().collect::<Vec<_>>(), same);
        let compacted = placement.clone().compacted();
        prop_assert_eq!((compacted.gone_count(), compacted.drives()), (0, placement.drives()));
        prop_assert_eq!(compacted.check(), Ok(()));
        prop_assert_eq!(compacted.has_replicas(), placement.has_replicas());
        let by_number = |placement: &Placement| -> Vec<Vec<(usize, DriveId)>> {
            ExtentIndex::first(oracle.len() as u32)
                .map(|extent| placement.replicas_of(extent).collect())
                .collect()
        };
        prop_assert_eq!(by_number(&compacted), by_number(placement));
        Ok(())
    }

    proptest! {
        #[test]
        fn placement_matches_a_plain_list(
            changes in prop::collection::vec((extents(), 0usize..12), 1..8),
            away in 0u128..5,
            forgets in prop::collection::vec(0u128..5, 8),
        ) {
            let mut oracle: Vec<Vec<DriveId>> = vec![vec![drive(0)]];
            let mut placement = Placement::on(drive(0));
            for ((more, keep), forgotten) in changes.into_iter().zip(forgets) {
                placement.extend(oracle.len() as u64, &more);
                oracle.extend(more);
                placement.shorten(keep as u64);
                oracle.truncate(keep);
                forget_and_check(&mut placement, &oracle, drive(forgotten))?;
                prop_assert_eq!(&homes(&placement, oracle.len()), &oracle);
                let text = serde_json::to_string(&placement).unwrap();
                prop_assert_eq!(&serde_json::from_str::<Placement>(&text).unwrap(), &placement);
                let size_bytes = oracle.len() as u64 * EXTENT_BYTES;
                for number in 0..5 {
                    let has = |extent: &ExtentIndex| oracle[extent.index()].contains(&drive(number));
                    let there: Vec<ExtentIndex> = ExtentIndex::first(oracle.len() as u32).filter(has).collect();
                    prop_assert_eq!(placement.extents_on(drive(number), size_bytes).collect::<Vec<_>>(), there);
                }
                let is_there = |drive_id: DriveId| drive_id != drive(away);
                let is_covered = oracle.iter().all(|homes| homes.iter().any(|home| is_there(*home)));
                prop_assert_eq!(placement.is_covered(size_bytes, is_there), is_covered);
            }
        }
    }
}
