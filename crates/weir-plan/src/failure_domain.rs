//! Failure domains: the choice of drives for new extents, as far apart as possible.
//!
//! The module is pure: it sees the capacity and failure domains of drives, and nothing of their content.

use std::cmp::Ordering;

use weir_types::DriveId;
use weir_types::bounds::EXTENT_BYTES;

/// Failure domain of a drive: drives in the same one fail together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureDomain {
    /// The zone; all drives without one share an unnamed zone.
    pub zone: Option<String>,
    /// The rack within that zone; all drives without one share an unnamed rack.
    pub rack: Option<String>,
}

/// Space on a drive for new extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The drive.
    pub drive: DriveId,
    /// Its failure domain.
    pub domain: FailureDomain,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that volumes may come to occupy there.
    pub provisioned_bytes: u64,
}

/// Failure domains of a list of drives: for each drive, the index of the first drive in its zone and in its
/// rack.
struct FailureDomains {
    zones: Vec<usize>,
    racks: Vec<usize>,
}

impl FailureDomains {
    fn of<'a>(domains: impl Iterator<Item = &'a FailureDomain>) -> FailureDomains {
        let domains: Vec<&FailureDomain> = domains.collect();
        let first =
            |is_same: &dyn Fn(&FailureDomain) -> bool| domains.iter().position(|other| is_same(other));
        let zone = |domain: &&FailureDomain| first(&|other| other.zone == domain.zone).unwrap_or(0);
        let rack = |domain: &&FailureDomain| first(&|other| other == *domain).unwrap_or(0);
        FailureDomains {
            zones: domains.iter().map(zone).collect(),
            racks: domains.iter().map(rack).collect(),
        }
    }

    /// Number of different zones, and of different racks.
    fn count(&self) -> (usize, usize) {
        let different =
            |firsts: &[usize]| firsts.iter().enumerate().filter(|(at, first)| at == *first).count();
        (different(&self.zones), different(&self.racks))
    }

    /// How many of the chosen drives share the zone of a drive, and how many share its rack.
    fn shared(&self, chosen: &[usize], drive: usize) -> (usize, usize) {
        let like = |firsts: &[usize]| chosen.iter().filter(|other| firsts[**other] == firsts[drive]).count();
        (like(&self.zones), like(&self.racks))
    }
}

/// Number of different zones and of different racks of drives.
pub fn count_failure_domains<'a>(domains: impl Iterator<Item = &'a FailureDomain>) -> (usize, usize) {
    FailureDomains::of(domains).count()
}

/// Chooses drives for `count` new extents with this many replicas.
///
/// The replicas of an extent are on different drives. They are in as many zones as possible, then in as many
/// racks as possible. Then each goes to the drive with the lowest provisioned fraction, the first of equals,
/// so that drives fill evenly. Empty if there are fewer drives than replicas.
pub fn spread(count: u64, replicas: usize, rooms: &[Room]) -> Vec<Vec<DriveId>> {
    let all: Vec<usize> = (0..rooms.len()).collect();
    spread_among(count, &vec![all; replicas], rooms)
}

/// Chooses drives as [`spread`] does, if each replica has its own set of drives, given by their indexes in
/// `rooms`.
///
/// The sets of two replicas are equal or disjoint. Empty if there are too few drives.
pub fn spread_among(count: u64, among: &[Vec<usize>], rooms: &[Room]) -> Vec<Vec<DriveId>> {
    let is_enough = |own: &Vec<usize>| own.len() >= among.iter().filter(|other| *other == own).count();
    if rooms.is_empty() || !among.iter().all(is_enough) {
        return Vec::new();
    }
    let domains = FailureDomains::of(rooms.iter().map(|room| &room.domain));
    let is_alike = among.windows(2).all(|pair| pair[0] == pair[1]);
    // An early choice limits later ones. So every order is tried if the sets differ.
    let orders = if is_alike || domains.count() == (1, 1) {
        vec![(0..among.len()).collect()]
    } else {
        orders(among.len())
    };
    let mut rooms = rooms.to_vec();
    (0..count).map(|_| spread_one(among, &orders, &domains, &mut rooms)).collect()
}

/// All orders of this many replicas, which are few.
fn orders(replicas: usize) -> Vec<Vec<usize>> {
    let Some(last) = replicas.checked_sub(1) else { return vec![Vec::new()] };
    let with_last = |order: Vec<usize>| {
        (0..replicas).rev().map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(with_last).collect()
}

/// The drives for one extent by replica, in the first order with the fewest shared failure domains.
fn spread_one(
    among: &[Vec<usize>],
    orders: &[Vec<usize>],
    domains: &FailureDomains,
    rooms: &mut [Room],
) -> Vec<DriveId> {
    let mut best: Option<((usize, usize), Vec<usize>)> = None;
    for order in orders {
        let (shared, chosen) = choose_in_order(among, order, domains, rooms);
        if best.as_ref().is_none_or(|(least, _)| shared < *least) {
            best = Some((shared, chosen));
        }
        if shared == (0, 0) {
            break;
        }
    }
    let (_, chosen) = best.expect("there is at least one order");
    let take = |drive: usize| {
        rooms[drive].provisioned_bytes += EXTENT_BYTES;
        rooms[drive].drive
    };
    chosen.into_iter().map(take).collect()
}

/// The choice of each replica in this order: the number of shared zones, of shared racks, and the drives by
/// replica.
fn choose_in_order(
    among: &[Vec<usize>],
    order: &[usize],
    domains: &FailureDomains,
    rooms: &[Room],
) -> ((usize, usize), Vec<usize>) {
    let mut chosen: Vec<usize> = Vec::with_capacity(order.len());
    let mut by_replica = vec![0; order.len()];
    let mut all_shared = (0, 0);
    for replica in order {
        let others = among[*replica].iter().copied().filter(|drive| !chosen.contains(drive));
        let next = others.min_by(|one, other| {
            let shared = |drive: &usize| domains.shared(&chosen, *drive);
            shared(one).cmp(&shared(other)).then_with(|| by_fullness(&rooms[*one], &rooms[*other]))
        });
        let next = next.expect("there are at least as many drives as replicas");
        let (zones, racks) = domains.shared(&chosen, next);
        all_shared = (all_shared.0 + zones, all_shared.1 + racks);
        chosen.push(next);
        by_replica[*replica] = next;
    }
    (all_shared, by_replica)
}

/// Chooses a drive for one more replica beside others: in another zone if possible, then in another rack,
/// then with the lowest provisioned fraction.
///
/// `None` if there is no drive.
pub fn choose(rooms: &[Room], beside: &[FailureDomain]) -> Option<DriveId> {
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

/// Compares the provisioned fraction of two drives after one more extent.
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

    /// Drives by zone and rack, where 0 is none, and by size and provisioned space in extents.
    fn rooms(drives: &[(u32, u32, u64, u64)]) -> Vec<Room> {
        let label = |number: u32| (number > 0).then(|| number.to_string());
        let room = |(number, &(zone, rack, size, used)): (usize, &(u32, u32, u64, u64))| Room {
            drive: drive(number),
            domain: FailureDomain { zone: label(zone), rack: label(rack) },
            size_bytes: size * EXTENT_BYTES,
            provisioned_bytes: used * EXTENT_BYTES,
        };
        drives.iter().enumerate().map(room).collect()
    }

    /// Provisioned fraction of a drive with this many more extents.
    fn full(room: &Room, more: u64) -> f64 {
        (room.provisioned_bytes / EXTENT_BYTES + more) as f64 / (room.size_bytes / EXTENT_BYTES) as f64
    }

    /// Number of different zones and racks of drives, counted naively.
    fn different(rooms: &[&Room]) -> (usize, usize) {
        let zones: BTreeSet<_> = rooms.iter().map(|room| room.domain.zone.clone()).collect();
        let rack = |room: &&Room| (room.domain.zone.clone(), room.domain.rack.clone());
        let racks: BTreeSet<_> = rooms.iter().map(rack).collect();
        (zones.len(), racks.len())
    }

    /// All ways to choose this many of the drives.
    fn choices(rooms: &[Room], replicas: usize) -> Vec<Vec<&Room>> {
        let all = (0_u32..1 << rooms.len()).filter(|bits| bits.count_ones() as usize == replicas);
        let of = |bits: u32| {
            rooms.iter().enumerate().filter(move |(at, _)| bits & (1 << at) != 0).map(|(_, room)| room)
        };
        all.map(|bits| of(bits).collect()).collect()
    }

    proptest! {
        #[test]
        fn replicas_are_maximally_apart_then_on_emptiest_drives(
            drives in prop::collection::vec((0u32..3, 0u32..3, 1u64..50, 0u64..50), 1..7),
            replicas in 1usize..4,
            count in 1u64..6,
        ) {
            let mut rooms = rooms(&drives);
            let chosen = spread(count, replicas, &rooms);
            if rooms.len() < replicas {
                prop_assert!(chosen.is_empty());
                return Ok(());
            }
            let domains = count_failure_domains(rooms.iter().map(|room| &room.domain));
            prop_assert_eq!(domains, different(&rooms.iter().collect::<Vec<_>>()));
            prop_assert_eq!(chosen.len() as u64, count);
            for homes in chosen {
                let homes: BTreeSet<DriveId> = homes.into_iter().collect();
                prop_assert_eq!(homes.len(), replicas, "replicas are on different drives");
                let (taken, others): (Vec<&Room>, Vec<&Room>) =
                    rooms.iter().partition(|room| homes.contains(&room.drive));
                let best = choices(&rooms, replicas).iter().map(|choice| different(choice)).max();
                prop_assert_eq!(Some(different(&taken)), best);
                // No replica could be on an emptier drive without sharing more failure domains.
                for (at, other) in (0..replicas).flat_map(|at| others.iter().map(move |other| (at, *other))) {
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
        fn drives_fill_evenly(
            count in 0u64..300,
            sizes in prop::collection::vec((1u64..5000, 0u64..500), 1..6),
        ) {
            let drives: Vec<_> = sizes.iter().map(|&(size, used)| (0, 0, size, used)).collect();
            let rooms = rooms(&drives);
            let chosen = spread(count, 1, &rooms);
            prop_assert_eq!(chosen.len() as u64, count);
            let mut given: BTreeMap<DriveId, u64> = BTreeMap::new();
            chosen.iter().flatten().for_each(|drive| *given.entry(*drive).or_default() += 1);
            // For each extent, no other drive would have a lower provisioned fraction with it.
            for room in &rooms {
                let own = given.get(&room.drive).copied().unwrap_or(0);
                for other in rooms.iter().filter(|_| own > 0) {
                    let others = given.get(&other.drive).copied().unwrap_or(0);
                    prop_assert!(full(room, own) <= full(other, others + 1) + 1e-9);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn replicas_of_different_classes_share_no_zone_unless_forced(
            drives in prop::collection::vec((0usize..3, 0u32..4), 1..9),
            classes in prop::collection::vec(0usize..3, 1..4),
        ) {
            let places: Vec<_> = drives.iter().map(|(_, zone)| (zone + 1, 0, 9, 0)).collect();
            let rooms = rooms(&places);
            let of = |class: &usize| (0..drives.len()).filter(|at| drives[*at].0 == *class).collect::<Vec<_>>();
            let among: Vec<Vec<usize>> = classes.iter().map(of).collect();
            // Oracle: all ways to give each replica one of its drives.
            let mut ways: Vec<Vec<usize>> = vec![Vec::new()];
            for own in &among {
                let more = |way: &Vec<usize>| {
                    let free = own.iter().filter(|drive| !way.contains(*drive));
                    free.map(|drive| [way.clone(), vec![*drive]].concat()).collect::<Vec<_>>()
                };
                ways = ways.iter().flat_map(more).collect();
            }
            let chosen = spread_among(1, &among, &rooms);
            prop_assert_eq!(chosen.is_empty(), ways.is_empty());
            let Some(homes) = chosen.first() else { return Ok(()) };
            let at = |home: &DriveId| rooms.iter().position(|room| room.drive == *home).unwrap();
            let homes: Vec<usize> = homes.iter().map(at).collect();
            prop_assert!(ways.contains(&homes), "each replica is on a drive of its class, and each on another");
            let zones = |way: &[usize]| way.iter().map(|at| drives[*at].1).collect::<BTreeSet<_>>().len();
            if ways.iter().any(|way| zones(way) == way.len()) {
                prop_assert_eq!(zones(&homes), homes.len());
            }
        }
    }

    #[test]
    fn racks_are_distinct_between_zones() {
        let rooms = rooms(&[(1, 1, 9, 0), (1, 1, 9, 0), (2, 1, 9, 5), (2, 2, 9, 7), (2, 0, 9, 7)]);
        assert_eq!(count_failure_domains(rooms.iter().map(|room| &room.domain)), (2, 4));
        assert_eq!(spread(1, 3, &rooms), [[drive(0), drive(2), drive(3)]]);
    }
}
