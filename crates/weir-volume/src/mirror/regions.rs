//! Region sets: sets of regions of an extent, the units in which replica metadata tracks changes.

use weir_types::bounds::{EXTENT_BYTES, REGION_BYTES};

/// Number of regions of one extent.
pub const REGIONS: u32 = (EXTENT_BYTES / REGION_BYTES) as u32;

/// Number of adjacent regions in a group, 4 MiB of an extent; groups do not overlap.
const GROUP: u32 = 16;

/// Number of words of a set, with 64 regions each.
const WORDS: usize = REGIONS.div_ceil(64) as usize;

/// A set of regions of one extent. It takes memory only while it is not empty.
///
/// Sets are compared at every request, and most are empty. An empty set is `None` and not an empty list,
/// because vector instructions that compare empty lists load from unmapped addresses. These loads are masked
/// out, yet cost hundreds of cycles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegionSet {
    words: Option<Box<[u64; WORDS]>>,
}

/// Regions that a range of bytes touches.
pub fn regions_of(offset: u32, length: u32) -> std::ops::Range<u32> {
    let region = REGION_BYTES as u32;
    offset / region..(offset + length).div_ceil(region)
}

/// Bits of the group that a region lies in, within the word of that group.
fn group_of(region: u32) -> u64 {
    ((1 << GROUP) - 1) << (region % 64 / GROUP * GROUP)
}

impl RegionSet {
    /// The set of all regions.
    pub fn all() -> RegionSet {
        RegionSet { words: Some(Box::new([u64::MAX; WORDS])) }
    }

    /// True if the set contains the region.
    pub fn contains(&self, region: u32) -> bool {
        let word = self.words.as_ref().and_then(|words| words.get(region as usize / 64));
        word.is_some_and(|word| word & (1 << (region % 64)) != 0)
    }

    /// Adds a region; true if it is new.
    pub fn insert(&mut self, region: u32) -> bool {
        assert!(region < REGIONS, "a region lies within an extent");
        let words = self.words.get_or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = (&mut words[region as usize / 64], 1 << (region % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Adds all regions of the group that a region lies in.
    pub fn insert_group(&mut self, region: u32) {
        self.insert(region);
        let words = self.words.as_mut().expect("it is not empty");
        words[region as usize / 64] |= group_of(region);
    }

    /// Number of regions in the set that belong to the same group as a region.
    pub fn count_in_group(&self, region: u32) -> u32 {
        self.words.as_ref().map_or(0, |words| (words[region as usize / 64] & group_of(region)).count_ones())
    }

    /// Removes a region.
    pub fn remove(&mut self, region: u32) {
        self.remove_all(std::iter::once(region));
    }

    /// Removes several regions.
    pub fn remove_all(&mut self, regions: impl Iterator<Item = u32>) {
        let Some(words) = &mut self.words else { return };
        for region in regions {
            if let Some(word) = words.get_mut(region as usize / 64) {
                *word &= !(1 << (region % 64));
            }
        }
        if words.iter().all(|word| *word == 0) {
            self.words = None;
        }
    }

    /// Adds all regions of another set.
    pub fn add(&mut self, other: &RegionSet) {
        other.iter().for_each(|region| _ = self.insert(region));
    }

    /// Removes all regions of another set.
    pub fn subtract(&mut self, other: &RegionSet) {
        self.remove_all(other.iter());
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_none()
    }

    /// Number of regions in the set.
    pub fn len(&self) -> u32 {
        self.words().map(|word| word.count_ones()).sum()
    }

    /// The regions of the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let left = |word: u64| (word != 0).then_some(word);
        let bits = move |word| std::iter::successors(left(word), move |word| left(word & (word - 1)));
        let regions =
            move |(index, word): (u32, u64)| bits(word).map(move |word| index * 64 + word.trailing_zeros());
        (0..).zip(self.words()).flat_map(regions)
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        self.words.iter().flat_map(|words| words.iter().copied())
    }
}

impl FromIterator<u32> for RegionSet {
    fn from_iter<I: IntoIterator<Item = u32>>(regions: I) -> RegionSet {
        let mut set = RegionSet::default();
        regions.into_iter().for_each(|region| _ = set.insert(region));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn range_covers_all_regions_it_touches() {
        let region = REGION_BYTES as u32;
        assert_eq!(regions_of(0, 1), 0..1);
        assert_eq!(regions_of(region - 1, 2), 0..2);
        assert_eq!(regions_of(region, region), 1..2);
        assert_eq!(regions_of(0, EXTENT_BYTES as u32).end, REGIONS);
        assert_eq!(RegionSet::all().len(), REGIONS);
    }

    #[test]
    fn group_is_sixteen_adjacent_regions() {
        for (region, group) in
            [(0, 0..16), (15, 0..16), (16, 16..32), (63, 48..64), (REGIONS - 1, 4080..4096)]
        {
            let mut set = RegionSet::default();
            assert_eq!(set.count_in_group(region), 0);
            set.insert(region);
            set.insert((region + GROUP) % REGIONS);
            assert_eq!(set.count_in_group(region), 1, "another group is not counted");
            set.remove((region + GROUP) % REGIONS);
            set.insert_group(region);
            assert_eq!(set.count_in_group(region), GROUP);
            assert!(set.iter().eq(group));
        }
    }

    proptest! {
        #[test]
        fn region_set_behaves_as_a_set(steps in prop::collection::vec((0..REGIONS, any::<bool>()), 0..200)) {
            let (mut set, mut oracle) = (RegionSet::default(), BTreeSet::new());
            for (region, is_added) in steps {
                if is_added {
                    prop_assert_eq!(set.insert(region), oracle.insert(region));
                } else {
                    set.remove(region);
                    oracle.remove(&region);
                }
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), oracle.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!((set.len() as usize, set.is_empty()), (oracle.len(), oracle.is_empty()));
            }
            prop_assert_eq!(set.iter().collect::<RegionSet>(), set);
        }
    }
}
