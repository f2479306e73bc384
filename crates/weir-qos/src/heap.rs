//! A small heap of children by key, in which any child can be found, moved and removed.
//!
//! The heap does not know where its members keep their positions: it reports positions through a callback.

/// Position of a child that is in no heap.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A heap of children by ascending key. Equal keys are ordered by number, so equal histories give equal
/// orders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<(u64, u32)>,
}

impl Heap {
    /// Returns the child with the least key.
    pub fn first(&self) -> Option<(u64, u32)> {
        self.entries.first().copied()
    }

    /// Returns the least key; the largest number if the heap is empty.
    pub fn first_key(&self) -> u64 {
        self.entries.first().map_or(u64::MAX, |first| first.0)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a child, or changes its key if `position` says that it is in this heap.
    pub fn set(&mut self, position: u32, key: u64, child: u32, moved: impl FnMut(u32, u32)) {
        if position == NOWHERE {
            self.entries.push((key, child));
            self.sift_up(self.entries.len() - 1, moved);
            return;
        }
        let index = position as usize;
        let old = std::mem::replace(&mut self.entries[index], (key, child));
        debug_assert_eq!(old.1, child, "a child knows its position");
        match key.cmp(&old.0) {
            std::cmp::Ordering::Less => self.sift_up(index, moved),
            std::cmp::Ordering::Greater => self.sift_down(index, moved),
            std::cmp::Ordering::Equal => {}
        }
    }

    /// Removes the child at a position.
    pub fn remove(&mut self, position: u32, mut moved: impl FnMut(u32, u32)) {
        let index = position as usize;
        let (key, child) = self.entries.swap_remove(index);
        moved(child, NOWHERE);
        if index < self.entries.len() {
            if self.entries[index] < (key, child) {
                self.sift_up(index, moved);
            } else {
                self.sift_down(index, moved);
            }
        }
    }

    /// Lowers all keys by the same amount, which is at most the least key: the order stays.
    pub fn lower(&mut self, by: u64) {
        self.entries.iter_mut().for_each(|entry| entry.0 -= by);
    }

    fn sift_up(&mut self, mut index: usize, mut moved: impl FnMut(u32, u32)) {
        let entry = self.entries[index];
        while index > 0 {
            let parent = (index - 1) / 2;
            if self.entries[parent] <= entry {
                break;
            }
            self.entries[index] = self.entries[parent];
            moved(self.entries[index].1, index as u32);
            index = parent;
        }
        self.entries[index] = entry;
        moved(entry.1, index as u32);
    }

    fn sift_down(&mut self, mut index: usize, mut moved: impl FnMut(u32, u32)) {
        let entry = self.entries[index];
        loop {
            let left = 2 * index + 1;
            if left >= self.entries.len() {
                break;
            }
            let right = left + 1;
            let is_right_less = right < self.entries.len() && self.entries[right] < self.entries[left];
            let child = if is_right_less { right } else { left };
            if entry <= self.entries[child] {
                break;
            }
            self.entries[index] = self.entries[child];
            moved(self.entries[index].1, index as u32);
            index = child;
        }
        self.entries[index] = entry;
        moved(entry.1, index as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn heap_agrees_with_a_sorted_map(steps in prop::collection::vec((0u32..40, 0u64..50, prop::bool::ANY), 1..400)) {
            let (mut heap, mut positions) = (Heap::default(), vec![NOWHERE; 40]);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (child, key, is_removed) in steps {
                let position = positions[child as usize];
                let moved = |child: u32, position: u32| positions[child as usize] = position;
                if !is_removed {
                    heap.set(position, key, child, moved);
                    model.insert(child, key);
                } else if position != NOWHERE {
                    heap.remove(position, moved);
                    model.remove(&child);
                }
                let least = model.iter().map(|(&child, &key)| (key, child)).min();
                prop_assert_eq!(heap.first(), least);
                for (child, &position) in positions.iter().enumerate() {
                    prop_assert_eq!(position != NOWHERE, model.contains_key(&(child as u32)));
                }
            }
        }
    }
}
