//! Scrub verdicts: which replicas of a block are good, by the checksums of their data and the expected
//! checksums.
//!
//! This module is a pure decision table. It knows no files, and does not know what is done to a block.

use crate::mirror::slots::Slots;

/// Checksums of one replica of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    /// Slot of the replica.
    pub slot: usize,
    /// Checksum of the replica's data.
    pub found: u32,
    /// Checksum stored beside the replica, if it is valid.
    pub stored: Option<u32>,
}

/// Earlier finding about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// The block was not listed as damaged.
    Sound,
    /// No replica had this expected checksum.
    Expected(u32),
    /// Replicas differed and the correct one was unknown.
    Undecided,
}

/// Decision about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All replicas are good and have this checksum.
    Good(u32),
    /// Some replicas are good, and the others are rewritten from one of them.
    Repair { checksum: u32, good: Slots },
    /// No replica has this checksum, which is the expected one.
    Damaged(u32),
    /// Replicas differ and the correct one is unknown.
    Undecided,
}

/// Decides about a block that at least one replica was read of.
pub(super) fn verdict(sightings: &[Sighting], past: Past) -> Verdict {
    let first = sightings.first().expect("a block is decided about that was seen").found;
    let are_equal = sightings.iter().all(|sighting| sighting.found == first);
    let past_stored = if let Past::Expected(expected) = past { Some(expected) } else { None };
    let stored = || sightings.iter().filter_map(|sighting| sighting.stored).chain(past_stored);
    let Some(expected) = stored().next() else { return without_checksums(sightings, past, are_equal) };
    if stored().all(|other| other == expected) {
        return match matching(sightings, expected) {
            good if good.is_empty() => Verdict::Damaged(expected),
            good => repair(sightings, expected, good),
        };
    }
    // Contradictory checksums count only as far as the data of replicas confirms them.
    match (are_equal, stored().any(|other| other == first)) {
        (true, true) => Verdict::Good(first),
        (true, false) => Verdict::Damaged(expected),
        (false, _) => without_checksums(sightings, past, are_equal),
    }
}

/// Decides by the replicas alone: they must all be equal, or a majority must agree. A majority does not count
/// for a block that was undecided before, because a replica may have been resynced from a wrong one since.
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

    /// Decides for replicas given as pairs of found and stored checksum.
    fn decide<const N: usize>(replicas: [(u32, Option<u32>); N], past: Past) -> Verdict {
        let sighting = |(slot, (found, stored))| Sighting { slot, found, stored };
        verdict(&replicas.into_iter().enumerate().map(sighting).collect::<Vec<_>>(), past)
    }

    fn repair_from<const N: usize>(checksum: u32, good: [usize; N]) -> Verdict {
        Verdict::Repair { checksum, good: good.into_iter().collect() }
    }

    #[test]
    fn replicas_with_the_expected_checksum_are_good() {
        use Past::{Expected, Sound, Undecided};
        assert_eq!(decide([(5, None)], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, Some(5))], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, None), (5, None)], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, Some(5)), (5, None), (5, Some(5))], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, None)], Expected(5)), Verdict::Good(5), "it was read wrongly before");
        assert_eq!(decide([(5, None), (5, None)], Undecided), Verdict::Good(5));
    }

    #[test]
    fn replica_matching_a_checksum_repairs_the_others() {
        use Past::{Expected, Sound};
        assert_eq!(decide([(5, Some(5)), (6, Some(5))], Sound), repair_from(5, [0]));
        assert_eq!(decide([(6, Some(5)), (5, None)], Sound), repair_from(5, [1]));
        assert_eq!(decide([(6, Some(5)), (6, Some(5)), (5, None)], Sound), repair_from(5, [2]));
        assert_eq!(decide([(6, None), (5, None)], Expected(5)), repair_from(5, [1]));
    }

    #[test]
    fn block_is_damaged_if_no_replica_matches_the_checksum() {
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
    fn without_checksums_the_majority_decides() {
        use Past::{Sound, Undecided};
        assert_eq!(decide([(5, None), (6, None)], Sound), Verdict::Undecided);
        assert_eq!(decide([(5, None), (6, None), (5, None)], Sound), repair_from(5, [0, 2]));
        assert_eq!(decide([(5, None), (6, None), (7, None)], Sound), Verdict::Undecided);
        assert_eq!(decide([(5, None), (6, None), (5, None), (6, None)], Sound), Verdict::Undecided);
        assert_eq!(decide([(5, None), (6, None), (6, None), (6, None)], Sound), repair_from(6, [1, 2, 3]));
        let resynced_since = decide([(5, None), (6, None), (5, None)], Undecided);
        assert_eq!(resynced_since, Verdict::Undecided, "the one of two replicas is not confirmed by a third");
    }

    #[test]
    fn contradictory_checksums_need_confirmation_by_data() {
        use Past::Sound;
        assert_eq!(decide([(5, Some(5)), (5, Some(6))], Sound), Verdict::Good(5));
        assert_eq!(decide([(5, Some(5)), (6, Some(6))], Sound), Verdict::Undecided);
        assert_eq!(decide([(5, Some(5)), (6, Some(6)), (6, Some(6))], Sound), repair_from(6, [1, 2]));
        assert_eq!(decide([(7, Some(5)), (7, Some(6))], Sound), Verdict::Damaged(5));
    }
}
