//! Sets of the replicas of an extent, by their slots.

use weir_types::bounds::REPLICA_SLOTS_MAX;

/// A set of replicas, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slots(u8);

impl Slots {
    /// All possible replicas.
    pub const ALL: Slots = Slots((1 << REPLICA_SLOTS_MAX) - 1);

    /// The set of the replicas whose bits are set.
    pub(super) fn from_bits(bits: u8) -> Slots {
        Slots(bits)
    }

    /// The set of one replica.
    pub fn one(slot: usize) -> Slots {
        Slots(1 << slot)
    }

    /// True if the replica is in the set.
    pub fn contains(self, slot: usize) -> bool {
        self.0 & (1 << slot) != 0
    }

    /// Adds a replica.
    pub fn insert(&mut self, slot: usize) {
        self.0 |= 1 << slot;
    }

    /// Removes a replica.
    pub fn remove(&mut self, slot: usize) {
        self.0 &= !(1 << slot);
    }

    /// True if the sets have a replica in common.
    pub fn intersects(self, others: Slots) -> bool {
        self.0 & others.0 != 0
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if the set has a replica other than this one.
    pub fn has_other(self, slot: usize) -> bool {
        self.0 & !(1 << slot) != 0
    }

    /// Number of replicas.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The first replica.
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// Intersection of both sets.
    pub fn both(self, others: Slots) -> Slots {
        Slots(self.0 & others.0)
    }

    /// Union of both sets.
    pub fn either(self, others: Slots) -> Slots {
        Slots(self.0 | others.0)
    }

    /// Replicas of this set that are not in the other.
    pub fn without(self, others: Slots) -> Slots {
        Slots(self.0 & !others.0)
    }

    /// Replicas that satisfy a condition.
    pub fn filter(self, mut is_wanted: impl FnMut(usize) -> bool) -> Slots {
        self.iter().filter(|slot| is_wanted(*slot)).collect()
    }

    /// The replicas, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let left = |bits: u8| (bits != 0).then_some(bits);
        let bits = std::iter::successors(left(self.0), move |bits| left(bits & (bits - 1)));
        bits.map(|bits| bits.trailing_zeros() as usize)
    }
}

impl FromIterator<usize> for Slots {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Slots {
        let mut set = Slots::default();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}
