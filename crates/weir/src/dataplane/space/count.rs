//! How much space was granted on the filesystem of the state folder, and how much may be. It knows neither files nor
//! actions.
//!
//! What was granted and is under way takes its space at some time that nobody knows. So a look at the filesystem allows
//! what is free there above the reserve, counted from what was done *before* it looked: whatever was granted since, or is
//! still under way, may need its space out of that. Grants may be less than what is free while much is under way, but
//! never more.
//!
//! Reactors take portions from the count that they share, so that a write costs them no memory that others write too.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// What a reactor takes from the common count at a time, in bytes. At most as much is granted to it and not used, and as
/// much done and not told.
const PORTION_BYTES: u64 = 1 << 20;

/// The count that all reactors share.
#[derive(Debug, Default)]
pub struct SpaceCount {
    /// What is not for volumes of what is free, in bytes.
    reserve_bytes: AtomicU64,
    /// What was granted since the start, in bytes.
    granted_bytes: AtomicU64,
    /// What was granted and needs no space that is not taken yet, in bytes.
    done_bytes: AtomicU64,
    /// What may have been granted at most, in bytes.
    granted_bytes_max: AtomicU64,
}

/// A look at the filesystem that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// What was done by then, in bytes.
    done_bytes: u64,
}

/// A reactor's part in the count.
#[derive(Debug)]
pub struct SpaceAtHand {
    count: Arc<SpaceCount>,
    /// What was granted to it and nobody has taken, in bytes.
    unused_bytes: Cell<u64>,
    /// What is done and the others do not know of, in bytes.
    done_bytes: Cell<u64>,
}

/// Space that was taken for something that is under way; it is done when this is dropped.
#[derive(Debug)]
pub struct TakenSpace {
    from: Rc<SpaceAtHand>,
    bytes: u64,
}

impl SpaceCount {
    /// Says what volumes leave free, in bytes.
    pub fn set_reserve(&self, reserve_bytes: u64) {
        self.reserve_bytes.store(reserve_bytes, Relaxed);
    }

    /// The filesystem is about to be looked at.
    pub fn begin_look(&self) -> Look {
        Look { done_bytes: self.done_bytes.load(SeqCst) }
    }

    /// So much was free there.
    pub fn end_look(&self, look: Look, free_bytes: u64) {
        let left_bytes = free_bytes.saturating_sub(self.reserve_bytes.load(Relaxed));
        self.granted_bytes_max.store(look.done_bytes.saturating_add(left_bytes), SeqCst);
    }

    /// Grants some; false if there is not as much.
    fn grant(&self, bytes: u64) -> bool {
        let granted_bytes_max = self.granted_bytes_max.load(SeqCst);
        let add = |granted: u64| granted.checked_add(bytes).filter(|granted| *granted <= granted_bytes_max);
        self.granted_bytes.fetch_update(SeqCst, Relaxed, add).is_ok()
    }
}

impl SpaceAtHand {
    /// That of one more reactor.
    pub fn new(count: &Arc<SpaceCount>) -> Rc<SpaceAtHand> {
        let count = Arc::clone(count);
        Rc::new(SpaceAtHand { count, unused_bytes: Cell::new(0), done_bytes: Cell::new(0) })
    }

    /// The count that it is a part of.
    pub fn count(&self) -> &Arc<SpaceCount> {
        &self.count
    }

    /// Takes some; `None` if there is not as much, for all that is known.
    pub fn take(self: &Rc<Self>, bytes: u64) -> Option<TakenSpace> {
        let has_enough = self.unused_bytes.get() >= bytes || self.is_granted(bytes);
        if !has_enough {
            self.hand_back();
            return None;
        }
        self.unused_bytes.set(self.unused_bytes.get() - bytes);
        Some(TakenSpace { from: Rc::clone(self), bytes })
    }

    /// Takes some that is there and may be given back for a while, so that nobody else gets it meanwhile.
    pub fn keep(self: &Rc<Self>, bytes: u64) -> TakenSpace {
        self.count.granted_bytes.fetch_add(bytes, SeqCst);
        TakenSpace { from: Rc::clone(self), bytes }
    }

    fn is_granted(&self, bytes: u64) -> bool {
        let granted = [bytes.max(PORTION_BYTES), bytes].into_iter().find(|bytes| self.count.grant(*bytes));
        self.unused_bytes.update(|unused| unused + granted.unwrap_or(0));
        granted.is_some()
    }

    /// Keeps nothing from the others: before a look, and before a reactor sleeps.
    pub fn hand_back(&self) {
        let (unused_bytes, done_bytes) = (self.unused_bytes.take(), self.done_bytes.take());
        if unused_bytes > 0 {
            self.count.granted_bytes.fetch_sub(unused_bytes, SeqCst);
        }
        if done_bytes > 0 {
            self.count.done_bytes.fetch_add(done_bytes, SeqCst);
        }
    }

    fn is_done(&self, bytes: u64) {
        let bytes = self.done_bytes.get() + bytes;
        let is_told = bytes >= PORTION_BYTES;
        self.done_bytes.set(if is_told { 0 } else { bytes });
        if is_told {
            self.count.done_bytes.fetch_add(bytes, SeqCst);
        }
    }
}

impl Drop for TakenSpace {
    fn drop(&mut self) {
        self.from.is_done(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RESERVE_BYTES: u64 = 8 << 20;
    const FREE_BYTES: u64 = 64 << 20;

    /// What happens to the filesystem and to the reactors that share the count.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Take {
            reactor: usize,
            bytes: u64,
        },
        /// Something that is under way takes its space, or finds that it needs none.
        Land {
            which: usize,
            is_needed: bool,
        },
        /// Something that has its space or needs none is done.
        Finish {
            which: usize,
        },
        /// A reactor sleeps.
        Sleep {
            reactor: usize,
        },
        BeginLook,
        /// What was free when it was looked is told late.
        EndLook,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..2_usize, 1..4_u64 << 20).prop_map(|(reactor, bytes)| Event::Take { reactor, bytes }),
            3 => (0..64_usize, any::<bool>()).prop_map(|(which, is_needed)| Event::Land { which, is_needed }),
            3 => (0..64_usize).prop_map(|which| Event::Finish { which }),
            1 => (0..2_usize).prop_map(|reactor| Event::Sleep { reactor }),
            1 => Just(Event::BeginLook),
            1 => Just(Event::EndLook),
        ]
    }

    proptest! {
        #[test]
        fn reserve_stays_free_whatever_is_under_way(events in prop::collection::vec(event(), 1..400)) {
            let count = Arc::new(SpaceCount::default());
            count.set_reserve(RESERVE_BYTES);
            let reactors = [SpaceAtHand::new(&count), SpaceAtHand::new(&count)];
            let (mut free_bytes, mut look) = (FREE_BYTES, None);
            let (mut under_way, mut landed) = (Vec::new(), Vec::new());
            for event in events {
                match event {
                    Event::Take { reactor, bytes } => under_way.extend(reactors[reactor].take(bytes)),
                    Event::Land { which, is_needed } if which < under_way.len() => {
                        let taken = under_way.remove(which);
                        free_bytes -= if is_needed { taken.bytes } else { 0 };
                        landed.push(taken);
                    }
                    Event::Finish { which } if which < landed.len() => drop(landed.remove(which)),
                    Event::Land { .. } | Event::Finish { .. } => {}
                    Event::Sleep { reactor } => reactors[reactor].hand_back(),
                    Event::BeginLook => look = Some((count.begin_look(), free_bytes)),
                    Event::EndLook => {
                        look.take().into_iter().for_each(|(look, free)| count.end_look(look, free));
                    }
                }
                let needed_bytes = under_way.iter().map(|taken| taken.bytes).sum::<u64>();
                prop_assert!(free_bytes >= RESERVE_BYTES + needed_bytes, "{free_bytes} free, {needed_bytes} needed");
            }
        }
    }

    #[test]
    fn what_is_free_can_be_taken_to_the_end_and_what_was_given_back_again() {
        let count = Arc::new(SpaceCount::default());
        count.set_reserve(RESERVE_BYTES);
        let reactor = SpaceAtHand::new(&count);
        assert!(reactor.take(1).is_none(), "nobody has looked");
        count.end_look(count.begin_look(), RESERVE_BYTES + 5 * PORTION_BYTES / 2);
        let taken: Vec<_> = std::iter::from_fn(|| reactor.take(PORTION_BYTES / 2)).collect();
        assert_eq!(taken.len(), 5);
        // As long as they are under way nobody knows whether what is free is theirs.
        count.end_look(count.begin_look(), RESERVE_BYTES + 5 * PORTION_BYTES / 2);
        assert!(reactor.take(1).is_none());
        drop(taken);
        assert!(reactor.take(1).is_none(), "nobody has looked since");
        count.end_look(count.begin_look(), RESERVE_BYTES + PORTION_BYTES / 2);
        let taken = reactor.take(PORTION_BYTES / 4);
        let other = SpaceAtHand::new(&count).take(PORTION_BYTES / 4);
        assert!(taken.is_some() && other.is_some() && reactor.take(1).is_none());
    }
}
