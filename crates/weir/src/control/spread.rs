//! Which drives new extents should go to.
//!
//! Pure: it sees what drives can take and what they share, and nothing of what lies there.

use std::cmp::Ordering;

use weir_types::DriveId;
use weir_types::bounds::EXTENT_BYTES;

/// Where a drive is: what fails together with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// The zone; all drives of which it is not said share one.
    pub zone: Option<String>,
    /// The rack within that zone; all drives of which it is not said share one.
    pub rack: Option<String>,
}

/// What a drive can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The drive.
    pub drive: DriveId,
    /// Where it is.
    pub domain: Domain,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// What volumes may come to occupy there, in bytes.
    pub provisioned_bytes: u64,
}

/// What fails together, for each of some drives: the first drive of its zone, and the first of its rack.
struct Domains {
    zones: Vec<usize>,
    racks: Vec<usize>,
}

impl Domains {
    fn of<'a>(domains: impl Iterator<Item = &'a Domain>) -> Domains {
        let domains: Vec<&Domain> = domains.collect();
        let first = |is_same: &dyn Fn(&Domain) -> bool| domains.iter().position(|other| is_same(other));
        let zone = |domain: &&Domain| first(&|other| other.zone == domain.zone).unwrap_or(0);
        let rack = |domain: &&Domain| first(&|other| other == *domain).unwrap_or(0);
        Domains { zones: domains.iter().map(zone).collect(), racks: domains.iter().map(rack).collect() }
    }

    /// Number of different zones, and of different racks.
    fn count(&self) -> (usize, usize) {
        let different =
            |firsts: &[usize]| firsts.iter().enumerate().filter(|(at, first)| at == *first).count();
        (different(&self.zones), different(&self.racks))
    }

    /// How many of the drives chosen share the zone of another one, and how many its rack.
    fn shared(&self, chosen: &[usize], drive: usize) -> (usize, usize) {
        let like = |firsts: &[usize]| chosen.iter().filter(|other| firsts[**other] == firsts[drive]).count();
        (like(&self.zones), like(&self.racks))
    }
}

/// Number of different zones that drives are in, and of different racks.
pub fn count_domains<'a>(domains: impl Iterator<Item = &'a Domain>) -> (usize, usize) {
    Domains::of(domains).count()
}

/// Chooses drives for new extents with so many copies: the copies of each on different drives, in as many zones as can
/// be, then in as many racks, then each where the least would be provisioned for the drive's size, the first of equals,
/// so that drives fill up alike. Empty if there are fewer drives than copies.
pub fn spread(count: u64, copies: usize, rooms: &[Room]) -> Vec<Vec<DriveId>> {
    if rooms.len() < copies.max(1) {
        return Vec::new();
    }
    let domains = Domains::of(rooms.iter().map(|room| &room.domain));
    let mut rooms = rooms.to_vec();
    (0..count).map(|_| spread_one(copies, &domains, &mut rooms)).collect()
}

fn spread_one(copies: usize, domains: &Domains, rooms: &mut [Room]) -> Vec<DriveId> {
    let mut chosen: Vec<usize> = Vec::with_capacity(copies);
    for _ in 0..copies {
        let others = (0..rooms.len()).filter(|drive| !chosen.contains(drive));
        let next = others.min_by(|one, other| {
            let shared = |drive: &usize| domains.shared(&chosen, *drive);
            shared(one).cmp(&shared(other)).then_with(|| by_fullness(&rooms[*one], &rooms[*other]))
        });
        chosen.push(next.expect("there are at least as many drives as copies"));
    }
    let take = |drive: usize| {
        rooms[drive].provisioned_bytes += EXTENT_BYTES;
        rooms[drive].drive
    };
    chosen.into_iter().map(take).collect()
}

/// Chooses a drive for one more copy beside others: in another zone than they if it can be, then in another rack, then
/// where the least would be provisioned for its size. `None` if there is no drive.
pub fn choose(rooms: &[Room], beside: &[Domain]) -> Option<DriveId> {
    let shared = |room: &Room| {
        let zones = beside.iter().filter(|other| other.zone == room.domain.zone).count();
        let racks = beside.iter().filter(|other| **other == room.domain).count();
        (zones, racks)
    };
    let best = rooms
        .iter()
        .min_by(|one, other| shared(one).cmp(&shared(other)).then_with(|| by_fullness(one, other)))?;
    Some(best.drive)
}

/// Which of two drives would be less full with one more extent.
fn by_fullness(one: &Room, other: &Room) -> Ordering {
    let (a, b) = (one.provisioned_bytes + EXTENT_BYTES, other.provisioned_bytes + EXTENT_BYTES);
    let weigh = |bytes: u64, size: u64| u128::from(bytes) * u128::from(size.max(1));
    weigh(a, other.size_bytes).cmp(&weigh(b, one.size_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn drive(number: usize) -> DriveId {
        DriveId(uuid::Uuid::from_u128(number as u128))
    }

    /// Drives by their zone and rack, of which 0 is none, their size and how much is provisioned, both in extents.
    fn rooms(drives: &[(u32, u32, u64, u64)]) -> Vec<Room> {
        let label = |number: u32| (number > 0).then(|| number.to_string());
        let room = |(number, &(zone, rack, size, used)): (usize, &(u32, u32, u64, u64))| Room {
            drive: drive(number),
            domain: Domain { zone: label(zone), rack: label(rack) },
            size_bytes: size * EXTENT_BYTES,
            provisioned_bytes: used * EXTENT_BYTES,
        };
        drives.iter().enumerate().map(room).collect()
    }

    /// How full a drive is with so many extents more.
    fn full(room: &Room, more: u64) -> f64 {
        (room.provisioned_bytes / EXTENT_BYTES + more) as f64 / (room.size_bytes / EXTENT_BYTES) as f64
    }

    /// Different zones and racks of some drives, counted naively.
    fn different(rooms: &[&Room]) -> (usize, usize) {
        let zones: BTreeSet<_> = rooms.iter().map(|room| room.domain.zone.clone()).collect();
        let rack = |room: &&Room| (room.domain.zone.clone(), room.domain.rack.clone());
        let racks: BTreeSet<_> = rooms.iter().map(rack).collect();
        (zones.len(), racks.len())
    }

    /// All ways to choose so many of the drives.
    fn choices(rooms: &[Room], copies: usize) -> Vec<Vec<&Room>> {
        let all = (0_u32..1 << rooms.len()).filter(|bits| bits.count_ones() as usize == copies);
        let of = |bits: u32| {
            rooms.iter().enumerate().filter(move |(at, _)| bits & (1 << at) != 0).map(|(_, room)| room)
        };
        all.map(|bits| of(bits).collect()).collect()
    }

    proptest! {
        #[test]
        fn copies_are_as_far_apart_as_any_choice_could_be_and_then_on_the_emptiest_drives(
            drives in prop::collection::vec((0u32..3, 0u32..3, 1u64..50, 0u64..50), 1..7),
            copies in 1usize..4,
            count in 1u64..6,
        ) {
            let mut rooms = rooms(&drives);
            let chosen = spread(count, copies, &rooms);
            if rooms.len() < copies {
                prop_assert!(chosen.is_empty());
                return Ok(());
            }
            let domains = count_domains(rooms.iter().map(|room| &room.domain));
            prop_assert_eq!(domains, different(&rooms.iter().collect::<Vec<_>>()));
            prop_assert_eq!(chosen.len() as u64, count);
            for homes in chosen {
                let homes: BTreeSet<DriveId> = homes.into_iter().collect();
                prop_assert_eq!(homes.len(), copies, "copies are on different drives");
                let (taken, others): (Vec<&Room>, Vec<&Room>) =
                    rooms.iter().partition(|room| homes.contains(&room.drive));
                let best = choices(&rooms, copies).iter().map(|choice| different(choice)).max();
                prop_assert_eq!(Some(different(&taken)), best);
                // None of them could be on an emptier drive without their being closer together.
                for (at, other) in (0..copies).flat_map(|at| others.iter().map(move |other| (at, *other))) {
                    let mut swapped = taken.clone();
                    swapped[at] = other;
                    let is_as_far = Some(different(&swapped)) == best;
                    prop_assert!(!is_as_far || full(taken[at], 1) <= full(other, 1) + 1e-9);
                }
                let taken = rooms.iter_mut().filter(|room| homes.contains(&room.drive));
                taken.for_each(|room| room.provisioned_bytes += EXTENT_BYTES);
            }
        }

        #[test]
        fn drives_fill_up_alike(
            count in 0u64..300,
            sizes in prop::collection::vec((1u64..5000, 0u64..500), 1..6),
        ) {
            let drives: Vec<_> = sizes.iter().map(|&(size, used)| (0, 0, size, used)).collect();
            let rooms = rooms(&drives);
            let chosen = spread(count, 1, &rooms);
            prop_assert_eq!(chosen.len() as u64, count);
            let mut given: BTreeMap<DriveId, u64> = BTreeMap::new();
            chosen.iter().flatten().for_each(|drive| *given.entry(*drive).or_default() += 1);
            // Wherever an extent was put, no other drive would have been less full with it.
            for room in &rooms {
                let own = given.get(&room.drive).copied().unwrap_or(0);
                for other in rooms.iter().filter(|_| own > 0) {
                    let others = given.get(&other.drive).copied().unwrap_or(0);
                    prop_assert!(full(room, own) <= full(other, others + 1) + 1e-9);
                }
            }
        }
    }

    #[test]
    fn a_rack_is_one_within_its_zone() {
        let rooms = rooms(&[(1, 1, 9, 0), (1, 1, 9, 0), (2, 1, 9, 5), (2, 2, 9, 7), (2, 0, 9, 7)]);
        assert_eq!(count_domains(rooms.iter().map(|room| &room.domain)), (2, 4));
        assert_eq!(spread(1, 3, &rooms), [[drive(0), drive(2), drive(3)]]);
    }
}
