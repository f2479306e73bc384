//! Space count: how much space is granted on the filesystem of the state folder, and how much may be. It
//! knows neither files nor actions.
//!
//! A granted operation under way takes its space at an unknown time. So a look at the filesystem permits the
//! free space above the reserve, counted from the operations done *before* the look. Operations granted
//! since, or still under way, may need their space out of that. While much is under way, the count may grant
//! less than the free space, but never more.
//!
//! Reactors take portions from the shared count, so that a write touches no memory that other reactors write.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use weir_engine_interface::SpaceLook;

/// Bytes that a reactor takes from the shared count at a time. At most as many are granted to it and unused,
/// and at most as many are done and not reported.
const PORTION_BYTES: u64 = 1 << 20;

/// The count that all reactors share.
#[derive(Debug, Default)]
pub struct SpaceCount {
    /// Part of the free space that volumes do not get, in bytes.
    reserve_bytes: AtomicU64,
    /// Space granted since the start, in bytes.
    granted_bytes: AtomicU64,
    /// Granted space of completed operations, which need no more, in bytes.
    done_bytes: AtomicU64,
    /// Upper bound of `granted_bytes`, in bytes.
    granted_bytes_max: AtomicU64,
}

/// Portion of the count that one reactor has.
#[derive(Debug)]
pub struct SpaceAtHand {
    count: Arc<SpaceCount>,
    /// Space granted to this reactor and not taken, in bytes.
    unused_bytes: Cell<u64>,
    /// Done space that the shared count does not have yet, in bytes.
    done_bytes: Cell<u64>,
}

/// Space that an operation under way has taken. Dropping it marks the space as done.
#[derive(Debug)]
pub struct TakenSpace {
    from: Rc<SpaceAtHand>,
    bytes: u64,
}

impl SpaceCount {
    /// Sets the space that volumes leave free, in bytes.
    pub fn set_reserve(&self, reserve_bytes: u64) {
        self.reserve_bytes.store(reserve_bytes, Relaxed);
    }

    /// Begins a look at the filesystem.
    pub fn begin_look(&self) -> SpaceLook {
        SpaceLook { done_bytes: self.done_bytes.load(SeqCst) }
    }

    /// Ends a look that found so many bytes free.
    pub fn end_look(&self, look: SpaceLook, free_bytes: u64) {
        let left_bytes = free_bytes.saturating_sub(self.reserve_bytes.load(Relaxed));
        self.granted_bytes_max.store(look.done_bytes.saturating_add(left_bytes), SeqCst);
    }

    /// Grants some space. False if too little is left.
    fn grant(&self, bytes: u64) -> bool {
        let granted_bytes_max = self.granted_bytes_max.load(SeqCst);
        let add = |granted: u64| granted.checked_add(bytes).filter(|granted| *granted <= granted_bytes_max);
        self.granted_bytes.fetch_update(SeqCst, Relaxed, add).is_ok()
    }
}

impl SpaceAtHand {
    /// An empty portion for one more reactor.
    pub fn new(count: &Arc<SpaceCount>) -> Rc<SpaceAtHand> {
        let count = Arc::clone(count);
        Rc::new(SpaceAtHand { count, unused_bytes: Cell::new(0), done_bytes: Cell::new(0) })
    }

    /// The shared count.
    pub fn count(&self) -> &Arc<SpaceCount> {
        &self.count
    }

    /// Takes some space. `None` if less is known to be free.
    pub fn take(self: &Rc<Self>, bytes: u64) -> Option<TakenSpace> {
        let has_enough = self.unused_bytes.get() >= bytes || self.is_granted(bytes);
        if !has_enough {
            self.hand_back();
            return None;
        }
        self.unused_bytes.set(self.unused_bytes.get() - bytes);
        Some(TakenSpace { from: Rc::clone(self), bytes })
    }

    /// Takes existing space that an operation may free for a while, so that no other operation gets it.
    pub fn keep(self: &Rc<Self>, bytes: u64) -> TakenSpace {
        self.count.granted_bytes.fetch_add(bytes, SeqCst);
        TakenSpace { from: Rc::clone(self), bytes }
    }

    fn is_granted(&self, bytes: u64) -> bool {
        let granted = [bytes.max(PORTION_BYTES), bytes].into_iter().find(|bytes| self.count.grant(*bytes));
        self.unused_bytes.update(|unused| unused + granted.unwrap_or(0));
        granted.is_some()
    }

    /// Returns the whole portion to the shared count: before a look, and before a reactor sleeps.
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

    /// An event on the filesystem or on the reactors that share the count.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Take {
            reactor: usize,
            bytes: u64,
        },
        /// An operation under way takes its space, or finds that it needs none.
        Land {
            which: usize,
            is_needed: bool,
        },
        /// An operation that has its space, or needs none, is done.
        Finish {
            which: usize,
        },
        /// A reactor sleeps.
        Sleep {
            reactor: usize,
        },
        BeginLook,
        /// The free space seen at the beginning of the look is reported late.
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
        fn reserve_stays_free_during_operations(events in prop::collection::vec(event(), 1..400)) {
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
    fn free_and_returned_space_can_be_taken_completely() {
        let count = Arc::new(SpaceCount::default());
        count.set_reserve(RESERVE_BYTES);
        let reactor = SpaceAtHand::new(&count);
        assert!(reactor.take(1).is_none(), "nobody has looked");
        count.end_look(count.begin_look(), RESERVE_BYTES + 5 * PORTION_BYTES / 2);
        let taken: Vec<_> = std::iter::from_fn(|| reactor.take(PORTION_BYTES / 2)).collect();
        assert_eq!(taken.len(), 5);
        // While the operations are under way, the free space may be theirs.
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
