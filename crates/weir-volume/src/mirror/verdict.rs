//! Which replicas of a block are good, from the checksums of what they have and of what they should have. A table and
//! nothing else: it knows no files, and not what becomes of a block.

use super::Slots;

/// What is known of one replica of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    /// Which replica.
    pub slot: usize,
    /// The checksum of what it has.
    pub found: u32,
    /// The checksum that is kept beside it, if that counts.
    pub kept: Option<u32>,
}

/// What was known of a block that had been found damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// It had not.
    Sound,
    /// No replica had this checksum.
    Expected(u32),
    /// Replicas differed and nobody could tell which was right.
    Undecided,
}

/// What becomes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All replicas have it as it should be: with this checksum.
    Good(u32),
    /// Some have it as it should be, and the others get it from one of these.
    Repair { checksum: u32, good: Slots },
    /// No replica has this checksum, which it should have.
    Damaged(u32),
    /// Replicas differ, and nobody can tell which is right.
    Undecided,
}

/// Decides about a block of which at least one replica was seen.
pub(super) fn verdict(sightings: &[Sighting], past: Past) -> Verdict {
    let first = sightings.first().expect("a block is decided about that was seen").found;
    let are_equal = sightings.iter().all(|sighting| sighting.found == first);
    let past_kept = if let Past::Expected(expected) = past { Some(expected) } else { None };
    let kept = || sightings.iter().filter_map(|sighting| sighting.kept).chain(past_kept);
    let Some(expected) = kept().next() else { return without_checksums(sightings, past, are_equal) };
    if kept().all(|other| other == expected) {
        return match matching(sightings, expected) {
            good if good.is_empty() => Verdict::Damaged(expected),
            good => repair(sightings, expected, good),
        };
    }
    // Checksums that contradict each other count only as far as replicas bear them out.
    match (are_equal, kept().any(|other| other == first)) {
        (true, true) => Verdict::Good(first),
        (true, false) => Verdict::Damaged(expected),
        (false, _) => without_checksums(sightings, past, are_equal),
    }
}

/// Replicas vouch for each other: all of them, or more than half. Of those that once could not, none is believed for
/// having been copied since.
fn without_checksums(sightings: &[Sighting], past: Past, are_equal: bool) -> Verdict {
    if are_equal {
        return Verdict::Good(sightings[0].found);
    }
    let is_majority = |checksum: u32| 2 * matching(sightings, checksum).iter().count() > sightings.len();
    let found = sightings.iter().map(|sighting| sighting.found).find(|found| is_majority(*found));
    match found {
        Some(checksum) if past != Past::Undecided => {
            repair(sightings, checksum, matching(sightings, checksum))
        }
        _ => Verdict::Undecided,
    }
}

fn matching(sightings: &[Sighting], checksum: u32) -> Slots {
    sightings.iter().filter(|sighting| sighting.found == checksum).map(|sighting| sighting.slot).collect()
}

fn repair(sightings: &[Sighting], checksum: u32, good: Slots) -> Verdict {
    match good.iter().count() == sightings.len() {
        true => Verdict::Good(checksum),
        false => Verdict::Repair { checksum, good },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replicas by what they have and what is kept beside them.
    fn decide<const N: usize>(replicas: [(u32, Option<u32>); N], past: Past) -> Verdict {
        let sighting = |(slot, (found, kept))| Sighting { slot, found, kept };
        verdict(&replicas.into_iter().enumerate().map(sighting).collect::<Vec<_>>(), past)
    }

    fn repair_from<const N: usize>(checksum: u32, good: [usize; N]) -> Verdict {
        Verdict::Repair { checksum, good: good.into_iter().collect() }
    }

    #[test]
    fn replicas_that_are_as_they_should_be_are_good() {
        use Past::{Expected, Sound, Undecided};
        assert_eq!(decide([(5, None)], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, Some(5))], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, None), (5, None)], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, Some(5)), (5, None), (5, Some(5))], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, None)], Expected(5)), Verdict::Good(5), "it was read wrongly before");
        assert_eq!(decide([(5, None), (5, None)], Undecided), Verdict::Good(5));
    }

    #[test]
    fn a_replica_that_matches_a_checksum_repairs_the_others() {
        use Past::{Expected, Sound};
        assert_eq!(decide([(5, Some(5)), (6, Some(5))], Sound), repair_from(5, [0]));
        assert_eq!(decide([(6, Some(5)), (5, None)], Sound), repair_from(5, [1]));
        assert_eq!(decide([(6, Some(5)), (6, Some(5)), (5, None)], Sound), repair_from(5, [2]));
        assert_eq!(decide([(6, None), (5, None)], Expected(5)), repair_from(5, [1]));
    }

    #[test]
    fn what_no_replica_has_is_damaged_whether_they_are_equal_or_not() {
        use Past::{Expected, Sound};
        assert_eq!(decide([(6, Some(5))], Sound), Verdict::Damaged(5));
        assert_eq!(decide([(6, Some(5)), (6, Some(5))], Sound), Verdict::Damaged(5));
        assert_eq!(decide([(6, Some(5)), (7, Some(5)), (7, None)], Sound), Verdict::Damaged(5));
        assert_eq!(
            decide([(6, None)], Expected(5)),
            Verdict::Damaged(5),
            "though its checksum was never valid again"
        );
    }

    #[test]
    fn without_checksums_more_than_half_decide() {
        use Past::{Sound, Undecided};
        assert_eq!(decide([(5, None), (6, None)], Sound), Verdict::Undecided);
        assert_eq!(decide([(5, None), (6, None), (5, None)], Sound), repair_from(5, [0, 2]));
        assert_eq!(decide([(5, None), (6, None), (7, None)], Sound), Verdict::Undecided);
        assert_eq!(decide([(5, None), (6, None), (5, None), (6, None)], Sound), Verdict::Undecided);
        assert_eq!(decide([(5, None), (6, None), (6, None), (6, None)], Sound), repair_from(6, [1, 2, 3]));
        let resynced_since = decide([(5, None), (6, None), (5, None)], Undecided);
        assert_eq!(resynced_since, Verdict::Undecided, "a replica of one of two is no epoch record");
    }

    #[test]
    fn checksums_that_contradict_each_other_count_only_as_far_as_replicas_bear_them_out() {
        use Past::Sound;
        assert_eq!(decide([(5, Some(5)), (5, Some(6))], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, Some(5)), (6, Some(6))], Sound), Verdict::Undecided);
        assert_eq!(decide([(5, Some(5)), (6, Some(6)), (6, Some(6))], Sound), repair_from(6, [1, 2]));
        assert_eq!(decide([(7, Some(5)), (7, Some(6))], Sound), Verdict::Damaged(5));
    }
}
