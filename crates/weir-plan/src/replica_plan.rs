//! The next step that brings the replicas of an extent to where they are wished.
//!
//! Each step is decided from the replicas as they are, so it does not matter where an earlier attempt ended. A replica goes
//! only once the replicas that stay are in sync: at no time are there fewer replicas in sync than before, or than are
//! wished for.

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_types::{Class, DriveId};
use weir_volume::mirror::{ReplicaState, Slots};

use crate::failure_domain::{Room, choose};

/// A replica of an extent in its current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaNow {
    /// Its slot.
    pub slot: usize,
    /// Its drive; `None` if replica metadata names the replica and no record does: a change was interrupted.
    pub drive: Option<DriveId>,
    /// The class of its drive.
    pub class: Option<Class>,
    /// The drive of its journal.
    pub journal: Option<DriveId>,
    /// Its state by the replica metadata. One that is [`ReplicaState::Absent`] is named by the record alone: a removal was
    /// interrupted.
    pub replica_state: ReplicaState,
    /// False if its drive or its journal's drive is missing, or if it failed. It does not count as in sync then, but it is no
    /// more useless than one that does: it may be back.
    pub is_reachable: bool,
    /// True if its drive or its journal's drive drains, if its files are damaged, or if it has a journal or none against the
    /// volume's I/O profile. In the last case its drive can take another one.
    pub must_leave: bool,
}

impl ReplicaNow {
    /// True if it can be read.
    fn is_good(&self) -> bool {
        self.is_reachable && self.replica_state == ReplicaState::InSync
    }
}

/// A drive that could take a replica.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The drive and its space.
    pub room: Room,
    /// Class of the drive.
    pub class: Option<Class>,
}

/// The desired class of a replica, or any.
pub type Wish = Option<Class>;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All replicas are as desired.
    Done,
    /// A replica must be resynced first.
    Wait,
    /// Add a replica.
    Add {
        /// Slot of the replica.
        slot: usize,
        /// Drive of the replica.
        drive: DriveId,
    },
    /// Remove the replica in this slot.
    Remove(usize),
    /// No drive can take a replica of this class.
    Blocked(Wish),
}

/// Replicas that stay, by wish, and surplus replicas.
struct Matched<'a> {
    kept: Vec<Option<&'a ReplicaNow>>,
    surplus: Vec<&'a ReplicaNow>,
}

/// Matches each wish with a replica that meets it. Replicas in sync come first.
fn match_up<'a>(replicas: &'a [ReplicaNow], wishes: &[Wish]) -> Matched<'a> {
    let mut free: Vec<&ReplicaNow> = replicas.iter().collect();
    free.sort_by_key(|replica| (!replica.is_good(), replica.replica_state != ReplicaState::InSync));
    let mut kept = vec![None; wishes.len()];
    // Wishes for a class come first, and wishes for any class take the rest.
    for is_named in [true, false] {
        for (wish, kept) in wishes.iter().zip(&mut kept).filter(|(wish, _)| wish.is_some() == is_named) {
            let meets =
                |replica: &&ReplicaNow| !replica.must_leave && (wish.is_none() || replica.class == *wish);
            *kept = free.iter().position(meets).map(|at| free.remove(at));
        }
    }
    Matched { kept, surplus: free }
}

/// A class that is desired more often than it has drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// The class.
    pub wish: Wish,
    /// Number of replicas that need it.
    pub wished: usize,
    /// Number of drives that have it.
    pub there: usize,
}

/// The first wish that these drives cannot meet, because replicas of an extent are on distinct drives.
pub fn unreachable(wishes: &[Wish], candidates: &[Candidate]) -> Option<Unreachable> {
    wishes.iter().find_map(|wish| {
        let suits = |candidate: &&Candidate| wish.is_none() || candidate.class == *wish;
        let there = candidates.iter().filter(suits).count();
        let wished = wishes.iter().filter(|other| *other == wish).count();
        (there < wished).then_some(Unreachable { wish: *wish, wished, there })
    })
}

/// The next step for an extent with these replicas.
pub fn next_step(replicas: &[ReplicaNow], wishes: &[Wish], candidates: &[Candidate]) -> Step {
    let is_interrupted =
        |replica: &&ReplicaNow| replica.drive.is_none() || replica.replica_state == ReplicaState::Absent;
    // A record without replica metadata first: what the metadata does not name is gone.
    let interrupted = replicas.iter().filter(is_interrupted);
    if let Some(lost) = interrupted.min_by_key(|replica| replica.replica_state != ReplicaState::Absent) {
        return Step::Remove(lost.slot);
    }
    let Matched { kept, surplus } = match_up(replicas, wishes);
    let unmet = wishes.iter().zip(&kept).find(|(_, kept)| kept.is_none());
    if let Some((wish, _)) = unmet {
        return make_room_and_add(replicas, &surplus, *wish, candidates, wishes.len());
    }
    let all_good = kept.iter().flatten().all(|replica| replica.is_good());
    match surplus.iter().find(|replica| all_good || replica.replica_state != ReplicaState::InSync) {
        Some(replica) => Step::Remove(replica.slot),
        None if all_good => Step::Done,
        None => Step::Wait,
    }
}

/// What an extent waits for whose next step is [`Step::Wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// A replica that cannot be reached: all replicas are where they are wished, so nothing moves.
    NothingToDo,
    /// The resync of a replica that is where it is wished.
    Resync,
    /// The resync of a new replica, after which another replica goes.
    Move,
    /// A new replica that cannot be reached; its drive.
    Blocked(Option<DriveId>),
}

/// What an extent waits for whose replicas are not all in sync.
pub fn waits(replicas: &[ReplicaNow], wishes: &[Wish]) -> Waits {
    let surplus = surplus_drives(replicas, wishes);
    let is_surplus = |replica: &&ReplicaNow| replica.drive.is_some_and(|drive| surplus.contains(&drive));
    let lagging = replicas.iter().filter(|replica| !replica.is_good());
    let lagging: Vec<&ReplicaNow> = lagging.filter(|replica| !is_surplus(replica)).collect();
    match (lagging.iter().any(|replica| replica.is_reachable), surplus.is_empty()) {
        (true, true) => Waits::Resync,
        (true, false) => Waits::Move,
        (false, true) => Waits::NothingToDo,
        (false, false) => {
            let unreachable = lagging.iter().find(|replica| !replica.is_reachable);
            Waits::Blocked(unreachable.and_then(|replica| replica.drive))
        }
    }
}

/// True if a replica may be removed, as far as the record goes: it is not the only one that the record names.
pub fn may_be_removed(recorded: Slots, slot: usize) -> bool {
    !recorded.contains(slot) || recorded.iter().any(|other| other != slot)
}

/// The drives of replicas that nobody wishes for.
pub fn surplus_drives(replicas: &[ReplicaNow], wishes: &[Wish]) -> Vec<DriveId> {
    match_up(replicas, wishes).surplus.iter().filter_map(|replica| replica.drive).collect()
}

/// Adds a replica for a wish. If all slots are taken, a surplus replica goes first.
fn make_room_and_add(
    replicas: &[ReplicaNow],
    surplus: &[&ReplicaNow],
    wish: Wish,
    candidates: &[Candidate],
    wished: usize,
) -> Step {
    let good = replicas.iter().filter(|replica| replica.is_good()).count();
    let free = (0..REPLICA_SLOTS_MAX).find(|slot| replicas.iter().all(|replica| replica.slot != *slot));
    let Some(slot) = free else {
        let may_go = |replica: &&&ReplicaNow| replica.replica_state != ReplicaState::InSync || good > wished;
        return surplus.iter().find(may_go).map_or(Step::Wait, |replica| Step::Remove(replica.slot));
    };
    let is_free =
        |candidate: &&Candidate| replicas.iter().all(|replica| replica.drive != Some(candidate.room.drive));
    let suits = |candidate: &&Candidate| wish.is_none() || candidate.class == wish;
    let rooms: Vec<Room> =
        candidates.iter().filter(is_free).filter(suits).map(|candidate| candidate.room.clone()).collect();
    let stay: Vec<DriveId> = replicas
        .iter()
        .filter(|replica| surplus.iter().all(|other| other.slot != replica.slot))
        .filter_map(|replica| replica.drive)
        .collect();
    let beside = candidates.iter().filter(|candidate| stay.contains(&candidate.room.drive));
    let beside: Vec<_> = beside.map(|candidate| candidate.room.domain.clone()).collect();
    // A drive with the journal of a replica is used only if there is no other drive.
    let has_journal = |room: &&Room| replicas.iter().any(|replica| replica.journal == Some(room.drive));
    let best: Vec<Room> = rooms.iter().filter(|room| !has_journal(room)).cloned().collect();
    if let Some(drive) = choose(&best, &beside).or_else(|| choose(&rooms, &beside)) {
        return Step::Add { slot, drive };
    }
    // If a replica goes, its drive can take another one. One in sync goes only if enough others are in sync, and only for
    // a drive that meets the wish.
    let meets = |drive: Option<DriveId>| {
        candidates.iter().filter(suits).any(|candidate| Some(candidate.room.drive) == drive)
    };
    let may_go = |replica: &&&ReplicaNow| {
        replica.replica_state != ReplicaState::InSync || good > wished && meets(replica.drive)
    };
    // Once a replica that stays is in sync, another one may go.
    let is_coming =
        |replica: &ReplicaNow| !replica.is_good() && surplus.iter().all(|other| other.slot != replica.slot);
    let has_to_wait = !surplus.is_empty() && replicas.iter().any(is_coming);
    let otherwise = if has_to_wait { Step::Wait } else { Step::Blocked(wish) };
    surplus.iter().find(may_go).map_or(otherwise, |replica| Step::Remove(replica.slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure_domain::FailureDomain;
    use proptest::prelude::*;
    use weir_types::bounds::EXTENT_BYTES;

    fn drive(number: usize) -> DriveId {
        DriveId(uuid::Uuid::from_u128(number as u128))
    }

    fn candidate(number: usize) -> Candidate {
        Candidate {
            room: Room {
                drive: drive(number),
                domain: FailureDomain::default(),
                size_bytes: 10 * EXTENT_BYTES,
                provisioned_bytes: 0,
            },
            class: Some(class_of(number)),
        }
    }

    /// Drives 0 to 3 are low, 4 to 7 high.
    fn class_of(number: usize) -> Class {
        if number < 4 { Class::Low } else { Class::High }
    }

    fn replica(slot: usize, number: usize, replica_state: ReplicaState) -> ReplicaNow {
        let class = Some(class_of(number));
        ReplicaNow {
            slot,
            drive: Some(drive(number)),
            class,
            journal: None,
            replica_state,
            is_reachable: true,
            must_leave: false,
        }
    }

    #[test]
    fn new_replica_is_in_sync_before_old_one_is_removed() {
        use ReplicaState::{InSync, Stale};
        let all: Vec<Candidate> = (0..8).map(candidate).collect();
        let low = replica(0, 0, InSync);
        let wish = [Some(Class::High)];
        assert_eq!(next_step(&[low], &wish, &all), Step::Add { slot: 1, drive: drive(4) });
        assert_eq!(next_step(&[low, replica(1, 4, Stale)], &wish, &all), Step::Wait);
        assert_eq!(next_step(&[low, replica(1, 4, InSync)], &wish, &all), Step::Remove(0));
        assert_eq!(next_step(&[replica(1, 4, InSync)], &wish, &all), Step::Done);
        let none = next_step(&[low], &wish, &all[..4]);
        assert_eq!(none, Step::Blocked(Some(Class::High)));
        let interrupted = ReplicaNow { drive: None, ..replica(2, 0, Stale) };
        assert_eq!(next_step(&[low, interrupted], &wish, &all), Step::Remove(2));
        let drain = ReplicaNow { must_leave: true, ..low };
        assert_eq!(next_step(&[drain], &[None], &all[1..2]), Step::Add { slot: 1, drive: drive(1) });
    }

    /// Fails if a good replica goes while another one that counts cannot be read.
    #[test]
    fn replica_that_cannot_be_reached_does_not_count_as_in_sync() {
        use ReplicaState::InSync;
        let all: Vec<Candidate> = (0..3).map(candidate).collect();
        let wishes = [Some(Class::Low); 2];
        let away = |slot, number| ReplicaNow { is_reachable: false, ..replica(slot, number, InSync) };
        let old = ReplicaNow { must_leave: true, ..replica(0, 0, InSync) };
        let next = |replicas: &[ReplicaNow]| next_step(replicas, &wishes, &all);
        assert_eq!(next(&[old, away(1, 1), replica(2, 2, InSync)]), Step::Wait);
        assert_eq!(next(&[replica(0, 0, InSync), away(1, 1)]), Step::Wait);
        // One that is to go stays until the others are good: it may be back first.
        let gone = ReplicaNow { must_leave: true, ..away(1, 1) };
        let coming = replica(2, 2, ReplicaState::Stale);
        assert_eq!(next(&[replica(0, 0, InSync), gone, coming]), Step::Wait);
        assert_eq!(next(&[replica(0, 0, InSync), gone, replica(2, 2, InSync)]), Step::Remove(1));
    }

    /// One more drive than replicas is enough, and there are never fewer replicas in sync than wished for.
    #[test]
    fn replicas_are_made_anew_with_one_free_drive() {
        use ReplicaState::{InSync, Stale};
        let all: Vec<Candidate> = (0..3).map(candidate).collect();
        let wishes = [Some(Class::Low); 2];
        let old = |slot, number| ReplicaNow { must_leave: true, ..replica(slot, number, InSync) };
        let next = |replicas: &[ReplicaNow]| next_step(replicas, &wishes, &all);
        assert_eq!(next(&[old(0, 0), old(1, 1)]), Step::Add { slot: 2, drive: drive(2) });
        assert_eq!(next(&[old(0, 0), old(1, 1), replica(2, 2, Stale)]), Step::Wait);
        assert_eq!(next(&[old(0, 0), old(1, 1), replica(2, 2, InSync)]), Step::Remove(0));
        assert_eq!(next(&[old(1, 1), replica(2, 2, InSync)]), Step::Add { slot: 0, drive: drive(0) });
        assert_eq!(next(&[replica(0, 0, InSync), old(1, 1), replica(2, 2, InSync)]), Step::Remove(1));
    }

    #[test]
    fn journal_drive_is_chosen_last() {
        use ReplicaState::InSync;
        let all: Vec<Candidate> = (4..6).map(candidate).collect();
        let low = ReplicaNow { journal: Some(drive(4)), ..replica(0, 0, InSync) };
        let wish = [Some(Class::High)];
        assert_eq!(next_step(&[low], &wish, &all), Step::Add { slot: 1, drive: drive(5) });
        assert_eq!(next_step(&[low], &wish, &all[..1]), Step::Add { slot: 1, drive: drive(4) });
        assert_eq!(surplus_drives(&[low, replica(1, 5, InSync)], &wish), [drive(0)]);
    }

    fn wishes() -> impl Strategy<Value = Vec<Wish>> {
        let wish = prop_oneof![Just(None), Just(Some(Class::Low)), Just(Some(Class::High))];
        prop::collection::vec(wish, 1..=3)
    }

    proptest! {
        #[test]
        fn plan_reaches_wishes_without_losing_good_replicas(
            homes in Just((0..8).collect::<Vec<usize>>()).prop_shuffle(),
            replica_states in prop::collection::vec(any::<bool>(), 1..=4),
            drain in prop::collection::vec(any::<bool>(), 4),
            against in prop::collection::vec(any::<bool>(), 4),
            wishes in wishes(),
            hurries in prop::collection::vec(any::<bool>(), 100),
        ) {
            let all: Vec<Candidate> = (0..8).filter(|at| !(drain[0] && *at == 7)).map(candidate).collect();
            let mut replicas: Vec<ReplicaNow> = replica_states
                .iter()
                .enumerate()
                .map(|(slot, is_good)| {
                    let replica_state = if *is_good || slot == 0 { ReplicaState::InSync } else { ReplicaState::Stale };
                    ReplicaNow { must_leave: drain[slot] || against[slot], ..replica(slot, homes[slot], replica_state) }
                })
                .collect();
            let drained: Vec<DriveId> = (0..replicas.len()).filter(|slot| drain[*slot]).map(|slot| drive(homes[slot])).collect();
            let good = |replicas: &[ReplicaNow]| {
                replicas.iter().filter(|replica| replica.replica_state == ReplicaState::InSync).count()
            };
            let least = good(&replicas).min(wishes.len());
            let mut hurries = hurries.into_iter();
            // Draining drives stay draining once they are empty.
            let free: Vec<Candidate> =
                all.iter().filter(|one| !drained.contains(&one.room.drive)).cloned().collect();
            // A replica that is made anew where all drives have one needs one drive more.
            let mut needed = wishes.clone();
            if against.contains(&true) {
                needed.extend([None, Some(Class::Low), Some(Class::High)]);
            }
            if unreachable(&needed, &free).is_some() {
                return Ok(());
            }
            loop {
                let catch_up = |replicas: &mut [ReplicaNow]| {
                    let stale = replicas.iter_mut().find(|replica| replica.replica_state == ReplicaState::Stale);
                    stale.map(|replica| replica.replica_state = ReplicaState::InSync)
                };
                match next_step(&replicas, &wishes, &free) {
                    Step::Done => break,
                    Step::Wait => prop_assert!(catch_up(&mut replicas).is_some(), "waits for nothing"),
                    Step::Add { slot, drive } => {
                        prop_assert!(replicas.iter().all(|c| c.slot != slot && c.drive != Some(drive)));
                        let number = (0..8).find(|number| self::drive(*number) == drive).unwrap();
                        replicas.push(replica(slot, number, ReplicaState::Stale));
                    }
                    Step::Remove(slot) => replicas.retain(|replica| replica.slot != slot),
                    Step::Blocked(wish) => {
                        prop_assert!(false, "there are enough drives: {wish:?} {replicas:?}");
                    }
                }
                prop_assert!(good(&replicas) >= least, "{replicas:?}");
                let Some(is_hurried) = hurries.next() else { prop_assert!(false, "it does not end"); break };
                if is_hurried {
                    catch_up(&mut replicas);
                }
            }
            prop_assert_eq!(replicas.len(), wishes.len());
            prop_assert!(replicas.iter().all(|c| !c.must_leave && c.replica_state == ReplicaState::InSync));
            for class in [Class::Low, Class::High] {
                let wished = wishes.iter().filter(|wish| **wish == Some(class)).count();
                prop_assert!(replicas.iter().filter(|replica| replica.class == Some(class)).count() >= wished);
            }
        }
    }
}
