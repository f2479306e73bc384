//! The queues of waiting requests of all leaves: first come, first served at each.
//!
//! The requests lie in one list of slots, and the slot that was freed last is used first. Waiting requests
//! therefore lie near recent ones, however many leaves there are, and no request needs an allocation.

use crate::cost::Cost;
use crate::heap::NOWHERE;

/// A waiting request, named by a ticket of the caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<T> {
    pub ticket: T,
    pub cost: Cost,
    pub arrived_ns: u64,
}

/// The slots of the requests of one leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
}

impl Queue {
    pub const EMPTY: Queue = Queue { first: NOWHERE, last: NOWHERE };

    pub fn is_empty(self) -> bool {
        self.first == NOWHERE
    }
}

#[derive(Debug)]
struct Slot<T> {
    waiting: Waiting<T>,
    /// Next slot of the same leaf, or next free slot.
    next: u32,
}

/// All slots.
#[derive(Debug)]
pub(super) struct Requests<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    count: usize,
}

impl<T: Copy> Requests<T> {
    pub fn new() -> Requests<T> {
        Requests { slots: Vec::new(), free: NOWHERE, count: 0 }
    }

    /// Number of waiting requests.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the request of a leaf that has waited longest.
    pub fn first(&self, queue: Queue) -> Option<&Waiting<T>> {
        self.slots.get(queue.first as usize).map(|slot| &slot.waiting)
    }

    pub fn push(&mut self, queue: &mut Queue, waiting: Waiting<T>) {
        let slot = Slot { waiting, next: NOWHERE };
        let index = self.free;
        let index = match self.slots.get_mut(index as usize) {
            Some(free) => {
                self.free = std::mem::replace(free, slot).next;
                index
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        match self.slots.get_mut(queue.last as usize) {
            Some(last) => last.next = index,
            None => queue.first = index,
        }
        queue.last = index;
        self.count += 1;
    }

    /// Takes out the request of a leaf that has waited longest.
    pub fn pop(&mut self, queue: &mut Queue) -> Option<Waiting<T>> {
        let index = queue.first;
        let slot = self.slots.get_mut(index as usize)?;
        let waiting = slot.waiting;
        queue.first = std::mem::replace(&mut slot.next, self.free);
        if queue.first == NOWHERE {
            queue.last = NOWHERE;
        }
        self.free = index;
        self.count -= 1;
        Some(waiting)
    }

    /// Takes out all wanted requests of a leaf; the others stay in their order.
    pub fn take_out(
        &mut self,
        queue: &mut Queue,
        is_wanted: impl Fn(&Waiting<T>) -> bool,
    ) -> Vec<Waiting<T>> {
        let (mut taken, mut staying) = (Vec::new(), Queue::EMPTY);
        while let Some(waiting) = self.pop(queue) {
            match is_wanted(&waiting) {
                true => taken.push(waiting),
                false => self.push(&mut staying, waiting),
            }
        }
        *queue = staying;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Kind;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn waiting(ticket: u32) -> Waiting<u32> {
        Waiting { ticket, cost: Cost::of(Kind::Read, 4096), arrived_ns: 0 }
    }

    proptest! {
        #[test]
        fn requests_agree_with_one_queue_per_leaf(steps in prop::collection::vec((0usize..4, 0u8..8), 1..300)) {
            let (mut requests, mut queues) = (Requests::new(), [Queue::EMPTY; 4]);
            let mut models: [VecDeque<u32>; 4] = Default::default();
            for (number, (leaf, step)) in steps.into_iter().enumerate() {
                let (queue, model, ticket) = (&mut queues[leaf], &mut models[leaf], number as u32);
                match step {
                    0..4 => {
                        requests.push(queue, waiting(ticket));
                        model.push_back(ticket);
                    }
                    4..7 => {
                        let popped = requests.pop(queue).map(|waiting| waiting.ticket);
                        prop_assert_eq!(popped, model.pop_front());
                    }
                    _ => {
                        let taken = requests.take_out(queue, |waiting| waiting.ticket % 3 == 0);
                        let wanted = model.iter().copied().filter(|ticket| ticket % 3 == 0);
                        prop_assert!(taken.iter().map(|waiting| waiting.ticket).eq(wanted));
                        model.retain(|ticket| ticket % 3 != 0);
                    }
                }
                let first = requests.first(*queue).map(|waiting| waiting.ticket);
                prop_assert_eq!(first, model.front().copied());
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                prop_assert_eq!(requests.count(), models.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
