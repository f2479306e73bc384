//! Flush coalescing: flushes that are answered while several replicas hold the data, and are carried out as one a
//! little later.
//!
//! A flush is owed from its answer until a flush that began later has ended. It may be owed only while every extent
//! with changes that may not be stable has [`HOLDERS_MIN`] replicas that hold them, durably in sync: then the failure of
//! one replica alone loses nothing. When a replica fails, misses a change or goes, what is owed is paid at once.
//!
//! This module does not know how long a flush may be owed: the executor ends that window
//! ([`Coalescing::end_window`](super::Coalescing::end_window)).

use std::collections::BTreeMap;

use weir_types::ExtentIndex;

use super::extents::Extents;

/// Fewest replicas that must hold changes for which a flush is owed.
const HOLDERS_MIN: usize = 2;

/// Progress of a flush that makes something stable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cover {
    /// No flush has begun since.
    #[default]
    None,
    /// The flush with this number has begun.
    Flush(u32),
}

/// Flushes that are owed, and the changes that they are for.
#[derive(Debug, Default)]
pub(super) struct FlushCoalescing {
    is_on: bool,
    /// The flush that must end before any is owed: it makes stable what changed before changes were noted.
    start: Option<Cover>,
    /// Extents with changes that may not be stable.
    unstable: BTreeMap<ExtentIndex, Cover>,
    /// Flushes that were answered since the last flush began.
    owed: u32,
    /// Flushes under way, and how many coalesced flushes each pays.
    being_paid: Vec<(u32, u32)>,
    /// A window ended while what was owed before was still being paid. None is owed until that has ended.
    is_late: bool,
}

impl FlushCoalescing {
    /// True if changes must be noted.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Owes flushes from the end of the next flush on, or owes none any more. What is owed already stays owed.
    pub fn set_on(&mut self, is_on: bool) {
        if is_on && !self.is_on {
            self.start = Some(Cover::None);
        }
        if !is_on {
            self.unstable.clear();
        }
        self.is_on = is_on;
    }

    /// Notes a change of an extent.
    #[inline(never)]
    pub fn changed(&mut self, extent: ExtentIndex) {
        self.unstable.insert(extent, Cover::None);
    }

    /// True if a flush may be answered now and owed.
    pub fn may_owe(&self, extents: &Extents) -> bool {
        let is_held = |extent: &ExtentIndex| extents[*extent].holders().len() >= HOLDERS_MIN;
        self.is_on && !self.is_late && self.start.is_none() && self.unstable.keys().all(is_held)
    }

    /// Notes a flush that is answered and owed.
    pub fn owe(&mut self) {
        self.owed += 1;
    }

    /// True if flushes are owed that no flush under way pays.
    pub fn has_unpaid(&self) -> bool {
        self.owed > 0
    }

    /// A window has ended. True if what is owed is to be paid now; else it is paid once the payment under way has ended.
    pub fn window_ended(&mut self) -> bool {
        self.is_late = self.is_paying() && self.has_unpaid();
        self.has_unpaid() && !self.is_late
    }

    /// True if what is owed must be paid now, as its window ended during the payment before.
    pub fn take_late(&mut self) -> bool {
        let is_over = self.is_late && !self.is_paying();
        if is_over {
            self.is_late = false;
        }
        is_over && self.has_unpaid()
    }

    /// True if flushes under way pay what is owed.
    pub fn is_paying(&self) -> bool {
        !self.being_paid.is_empty()
    }

    /// A flush of all replicas begins that pays what is owed.
    pub fn began(&mut self, flush: u32) {
        let covers = self.unstable.values_mut().chain(&mut self.start);
        covers.filter(|cover| **cover == Cover::None).for_each(|cover| *cover = Cover::Flush(flush));
        if self.owed > 0 {
            self.being_paid.push((flush, std::mem::take(&mut self.owed)));
        }
    }

    /// A flush has ended. Returns the number of coalesced flushes that were paid, or must be paid by a later one.
    pub fn ended(&mut self, flush: u32, is_stable: bool) -> u32 {
        let is_covered = |cover: &Cover| *cover == Cover::Flush(flush);
        let paid = self.being_paid.iter().position(|(number, _)| *number == flush);
        let paid = paid.map_or(0, |at| self.being_paid.swap_remove(at).1);
        if is_stable {
            self.start.take_if(|cover| is_covered(cover));
            self.unstable.retain(|_, cover| !is_covered(cover));
            return paid;
        }
        let covers = self.unstable.values_mut().chain(&mut self.start);
        covers.filter(|cover| is_covered(cover)).for_each(|cover| *cover = Cover::None);
        self.owed += paid;
        paid
    }

    /// Forgets extents from `count` on.
    pub fn truncate_extents(&mut self, count: u32) {
        self.unstable.retain(|extent, _| extent.is_within(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coalescing that is on, and whose first flush has ended.
    fn started() -> FlushCoalescing {
        let mut coalescing = FlushCoalescing::default();
        coalescing.set_on(true);
        coalescing.began(0);
        coalescing.ended(0, true);
        coalescing
    }

    #[test]
    fn slow_payment_holds_up_the_next_flushes() {
        let (mut coalescing, none) = (started(), Extents::new(Vec::new()));
        coalescing.owe();
        assert!(coalescing.window_ended(), "nothing is being paid yet");
        coalescing.began(1);
        coalescing.owe();
        assert!(coalescing.may_owe(&none), "within the window");
        assert!(!coalescing.window_ended(), "the payment before has not ended");
        assert!(!coalescing.may_owe(&none) && !coalescing.take_late());
        assert_eq!(coalescing.ended(1, true), 1);
        assert!(coalescing.take_late(), "its window is over");
        coalescing.began(2);
        assert!(coalescing.may_owe(&none) && !coalescing.has_unpaid());
        assert_eq!(coalescing.ended(2, true), 1);
        assert!(!coalescing.take_late());
    }

    #[test]
    fn failed_payment_is_owed_again() {
        let (mut coalescing, none) = (started(), Extents::new(Vec::new()));
        coalescing.owe();
        coalescing.owe();
        coalescing.began(1);
        assert_eq!(coalescing.ended(1, false), 2);
        assert!(coalescing.has_unpaid() && coalescing.may_owe(&none));
        coalescing.began(2);
        assert_eq!(coalescing.ended(2, true), 2);
        assert!(!coalescing.has_unpaid());
    }

    #[test]
    fn none_is_owed_before_the_first_flush_has_ended() {
        let (mut coalescing, none) = (FlushCoalescing::default(), Extents::new(Vec::new()));
        assert!(!coalescing.may_owe(&none));
        coalescing.began(0);
        coalescing.set_on(true);
        coalescing.ended(0, true);
        assert!(!coalescing.may_owe(&none), "this flush began before");
        coalescing.began(1);
        coalescing.ended(1, false);
        assert!(!coalescing.may_owe(&none), "this flush failed");
        coalescing.began(2);
        coalescing.ended(2, true);
        assert!(coalescing.may_owe(&none));
    }
}
