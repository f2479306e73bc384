//! Where the extents of a volume lie, and where new ones should.
//!
//! Pure: it knows drives by their identity and how full they are, and nothing of their files.

use serde::{Deserialize, Serialize};
use weir_types::DriveId;
use weir_types::bounds::EXTENT_BYTES;

use super::bounds::DRIVES_MAX;
use crate::store::extent_count;

/// An extent's drive is kept as its index in the list of drives, in one byte.
const _: () = assert!(DRIVES_MAX <= u8::MAX as usize + 1);

/// Which drive holds which extent of a volume.
///
/// A drive may be named that holds none, because a shrink took them; the volume's folder is there all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Placement {
    /// The drives, none of them twice, at least one.
    drives: Vec<DriveId>,
    /// For each extent the index of its drive. Extents beyond the list are on the first drive.
    extents: Vec<u8>,
}

/// How a placement is written: as its drive if there is only one, which is also how it was before there could be more.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    One(DriveId),
    Several { drives: Vec<DriveId>, extents: Vec<u8> },
}

/// What a drive can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The drive.
    pub drive: DriveId,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// What volumes may come to occupy there, in bytes.
    pub provisioned_bytes: u64,
}

impl Placement {
    /// All on one drive.
    pub fn on(drive: DriveId) -> Placement {
        Placement { drives: vec![drive], extents: Vec::new() }
    }

    /// Extent by extent; `None` if there is no extent.
    pub fn of(extents: &[DriveId]) -> Option<Placement> {
        let mut placement = Placement::on(*extents.first()?);
        placement.extend(0, extents);
        Some(placement)
    }

    /// Adds extents to a volume that has this many.
    pub fn extend(&mut self, count: u64, more: &[DriveId]) {
        // The list must reach as far as the volume before it goes on.
        self.extents.resize(count as usize, 0);
        for drive in more {
            let index = self.drives.iter().position(|known| known == drive).unwrap_or_else(|| {
                self.drives.push(*drive);
                self.drives.len() - 1
            });
            self.extents.push(u8::try_from(index).expect("there are no more drives than bytes can count"));
        }
        self.shorten(count + more.len() as u64);
    }

    /// Forgets where extents beyond this many were.
    pub fn shorten(&mut self, count: u64) {
        self.extents.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        if self.drives.len() == 1 {
            self.extents.clear();
        }
    }

    /// The drives, at least one.
    pub fn drives(&self) -> &[DriveId] {
        &self.drives
    }

    /// For each extent the index of its drive in [`Placement::drives`]; those beyond the list are on the first.
    pub fn indices(&self) -> &[u8] {
        &self.extents
    }

    /// True if extents are, or were, on a drive.
    pub fn names(&self, drive: DriveId) -> bool {
        self.drives.contains(&drive)
    }

    /// The drive of an extent.
    pub fn drive_of(&self, extent: u64) -> DriveId {
        let index = self.extents.get(extent as usize).copied().unwrap_or(0);
        self.drives[usize::from(index)]
    }

    /// The extents on a drive, of a volume of this size, in order.
    pub fn extents_on(&self, drive: DriveId, size_bytes: u64) -> impl Iterator<Item = u32> {
        let is_there = move |extent: &u64| self.drive_of(*extent) == drive;
        (0..extent_count(size_bytes)).filter(is_there).map(|extent| extent as u32)
    }

    /// What a volume of this size may come to occupy on a drive, in bytes.
    pub fn bytes_on(&self, drive: DriveId, size_bytes: u64) -> u64 {
        if self.drives == [drive] {
            return size_bytes;
        }
        let bytes = |extent: u32| (size_bytes - u64::from(extent) * EXTENT_BYTES).min(EXTENT_BYTES);
        self.extents_on(drive, size_bytes).map(bytes).sum()
    }
}

impl From<Placement> for Form {
    fn from(placement: Placement) -> Form {
        match placement.drives[..] {
            [drive] => Form::One(drive),
            _ => Form::Several { drives: placement.drives, extents: placement.extents },
        }
    }
}

impl TryFrom<Form> for Placement {
    type Error = String;

    fn try_from(form: Form) -> Result<Placement, String> {
        let (drives, extents) = match form {
            Form::One(drive) => return Ok(Placement::on(drive)),
            Form::Several { drives, extents } => (drives, extents),
        };
        let is_repeated = (1..drives.len()).any(|index| drives[..index].contains(&drives[index]));
        let highest = extents.iter().copied().max().unwrap_or(0);
        if is_repeated || usize::from(highest) >= drives.len() {
            return Err(format!(
                "a placement names {} drives and extents on the {}th of them",
                drives.len(),
                u32::from(highest) + 1
            ));
        }
        Ok(Placement { drives, extents })
    }
}

/// Volumes from before there were several drives are on the one that always existed.
impl Default for Placement {
    fn default() -> Placement {
        Placement::on(DriveId::DEFAULT)
    }
}

/// Chooses drives for new extents: each goes where the least would be provisioned for the drive's size, the first of
/// equals, so that drives fill up alike. Empty if there is no drive.
pub fn spread(count: u64, rooms: &[Room]) -> Vec<DriveId> {
    let mut rooms = rooms.to_vec();
    let mut next = || {
        let fullest_last = |one: &&mut Room, other: &&mut Room| {
            let (a, b) = (one.provisioned_bytes + EXTENT_BYTES, other.provisioned_bytes + EXTENT_BYTES);
            let weigh = |bytes: u64, size: u64| u128::from(bytes) * u128::from(size.max(1));
            weigh(a, other.size_bytes).cmp(&weigh(b, one.size_bytes))
        };
        let room = rooms.iter_mut().min_by(fullest_last)?;
        room.provisioned_bytes += EXTENT_BYTES;
        Some(room.drive)
    };
    (0..count).map_while(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn drive(number: u128) -> DriveId {
        DriveId(uuid::Uuid::from_u128(number))
    }

    fn drives(numbers: &[u128]) -> Vec<DriveId> {
        numbers.iter().map(|number| drive(*number)).collect()
    }

    #[test]
    fn one_drive_is_written_as_it_was_before_there_were_several() {
        let one = Placement::of(&drives(&[7, 7, 7])).unwrap();
        assert_eq!(one, Placement::on(drive(7)));
        assert_eq!(serde_json::to_value(&one).unwrap(), serde_json::json!(drive(7).to_string()));
        assert_eq!(
            serde_json::from_value::<Placement>(serde_json::json!(drive(7).to_string())).unwrap(),
            one
        );
    }

    #[test]
    fn a_placement_that_cannot_be_is_refused() {
        let several = |drives: &[u128], extents: &[u8]| {
            let drives: Vec<_> = drives.iter().map(|number| drive(*number).to_string()).collect();
            serde_json::from_value::<Placement>(serde_json::json!({"drives": drives, "extents": extents}))
        };
        assert!(several(&[1, 2], &[0, 1, 1]).is_ok());
        for (drives, extents) in [(&[][..], &[][..]), (&[1, 1], &[0]), (&[1, 2], &[2])] {
            assert!(several(drives, extents).is_err(), "{drives:?} {extents:?}");
        }
    }

    #[test]
    fn the_last_extent_counts_as_far_as_it_goes() {
        let placement = Placement::of(&drives(&[1, 2, 1])).unwrap();
        let size_bytes = 2 * EXTENT_BYTES + 4096;
        assert_eq!(placement.bytes_on(drive(1), size_bytes), EXTENT_BYTES + 4096);
        assert_eq!(placement.bytes_on(drive(2), size_bytes), EXTENT_BYTES);
        assert_eq!(placement.bytes_on(drive(3), size_bytes), 0);
    }

    proptest! {
        #[test]
        fn a_placement_is_what_a_plain_list_would_be(
            changes in prop::collection::vec((prop::collection::vec(0u128..5, 0..9), 0usize..12), 1..8),
        ) {
            let mut oracle: Vec<DriveId> = vec![drive(0)];
            let mut placement = Placement::on(drive(0));
            for (more, keep) in changes {
                placement.extend(oracle.len() as u64, &drives(&more));
                oracle.extend(drives(&more));
                placement.shorten(keep as u64);
                oracle.truncate(keep);
                let read: Vec<DriveId> =
                    (0..oracle.len()).map(|extent| placement.drive_of(extent as u64)).collect();
                prop_assert_eq!(&read, &oracle);
                let text = serde_json::to_string(&placement).unwrap();
                prop_assert_eq!(&serde_json::from_str::<Placement>(&text).unwrap(), &placement);
                for number in 0..5 {
                    let there: Vec<u32> =
                        (0..oracle.len() as u32).filter(|e| oracle[*e as usize] == drive(number)).collect();
                    let size_bytes = oracle.len() as u64 * EXTENT_BYTES;
                    prop_assert_eq!(placement.extents_on(drive(number), size_bytes).collect::<Vec<_>>(), there);
                }
            }
        }

        #[test]
        fn drives_fill_up_alike(
            count in 0u64..300,
            sizes in prop::collection::vec((1u64..5000, 0u64..500), 1..6),
        ) {
            let rooms: Vec<Room> = sizes
                .iter()
                .enumerate()
                .map(|(number, &(size, used))| Room {
                    drive: drive(number as u128),
                    size_bytes: size * EXTENT_BYTES,
                    provisioned_bytes: used * EXTENT_BYTES,
                })
                .collect();
            let chosen = spread(count, &rooms);
            prop_assert_eq!(chosen.len() as u64, count);
            let mut given: BTreeMap<DriveId, u64> = BTreeMap::new();
            chosen.iter().for_each(|drive| *given.entry(*drive).or_default() += 1);
            // Wherever an extent was put, no other drive would have been less full with it.
            let full = |room: &Room, more: u64| {
                (room.provisioned_bytes / EXTENT_BYTES + more) as f64 / (room.size_bytes / EXTENT_BYTES) as f64
            };
            for room in &rooms {
                let own = given.get(&room.drive).copied().unwrap_or(0);
                for other in rooms.iter().filter(|_| own > 0) {
                    let others = given.get(&other.drive).copied().unwrap_or(0);
                    prop_assert!(full(room, own) <= full(other, others + 1) + 1e-9);
                }
            }
        }
    }
}
