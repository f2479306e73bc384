//! The client's view of a disk, and the check whether a disk that keeps its promises could have shown it.
//!
//! Each sector is a register. A value that is read must come from a write that began before the read ended.
//! No other write may lie wholly between that write and the read. After a crash the same rule holds, with one
//! difference. Only writes that are stable, by a flush or by their own durability, count as overwriting.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Stamp;

/// One write of a sector, with instants in the world's time.
#[derive(Clone, Copy, Debug)]
struct Write {
    stamp: Stamp,
    began: u64,
    /// Instant of the acknowledgement. `None` while the write is in flight, or if it was never acknowledged.
    ended: Option<u64>,
    is_stable: bool,
    /// Whether a flush that is owed covers it: it survives the daemon, and perhaps no power cut.
    is_held: bool,
}

/// All writes of all sectors.
#[derive(Clone, Debug, Default)]
pub struct History {
    sectors: BTreeMap<u64, Vec<Write>>,
}

impl History {
    /// Records the begin of a write of a sector.
    pub fn write_began(&mut self, sector: u64, stamp: Stamp, now: u64) {
        self.sectors.entry(sector).or_default().push(Write {
            stamp,
            began: now,
            ended: None,
            is_stable: false,
            is_held: false,
        });
    }

    /// Records the acknowledgement of a write of a sector.
    pub fn write_ended(&mut self, sector: u64, stamp: Stamp, began: u64, now: u64, is_durable: bool) {
        let writes = self.sectors.entry(sector).or_default();
        let write = writes.iter_mut().find(|w| w.stamp == stamp && w.began == began);
        let write = write.expect("a write that ends has begun");
        (write.ended, write.is_stable) = (Some(now), is_durable);
    }

    /// Records the acknowledgement of a flush that began at `began`. All writes that ended before `began` are
    /// stable.
    pub fn flushed(&mut self, began: u64) {
        for write in self.sectors.values_mut().flatten() {
            write.is_stable |= write.ended.is_some_and(|ended| ended < began);
        }
    }

    /// Records the answer to a flush that began at `began` and is owed. No kill loses what ended before.
    pub fn held(&mut self, began: u64) {
        for write in self.sectors.values_mut().flatten() {
            write.is_held |= write.ended.is_some_and(|ended| ended < began);
        }
    }

    /// Forgets for these sectors that flushes are owed: power, or a drive, may have lost what they cover.
    pub fn forget_held(&mut self, sectors: Range<u64>) {
        self.sectors
            .range_mut(sectors)
            .flat_map(|(_, writes)| writes)
            .for_each(|write| write.is_held = false);
    }

    /// True if a sector may have this stamp by a write that a coalesced flush covers, and that is not known to be stable.
    pub fn is_owed(&self, sector: u64, stamp: Stamp) -> bool {
        let writes = self.sectors.get(&sector).into_iter().flatten();
        let mut of_stamp = writes.filter(|write| write.stamp == stamp);
        of_stamp.any(|write| write.is_held && !write.is_stable)
    }

    /// Checks a value that was read between two instants.
    ///
    /// # Errors
    /// Names the rule that the value breaks.
    pub fn check_read(&self, sector: u64, stamp: Stamp, began: u64, ended: u64) -> Result<(), String> {
        let overwrites = |write: &Write| write.ended.is_some_and(|end| end < began);
        self.check(sector, stamp, ended, overwrites)
    }

    /// Checks a value found after a crash, and makes it the sector's whole history.
    ///
    /// # Errors
    /// Names the rule that the value breaks.
    pub fn check_after_crash(&mut self, sector: u64, stamp: Stamp, now: u64) -> Result<(), String> {
        self.check(sector, stamp, now, |write| write.is_stable || write.is_held)?;
        let survivor = Write { stamp, began: now, ended: Some(now), is_stable: true, is_held: true };
        self.sectors.insert(sector, vec![survivor]);
        Ok(())
    }

    /// Checks a value found after a kill. A kill may lose writes that no flush covers, but makes nothing
    /// stable. So the value now counts as written, but the next power cut may still bring back an earlier
    /// one.
    ///
    /// # Errors
    /// Names the rule that the value breaks.
    pub fn check_after_kill(&mut self, sector: u64, stamp: Stamp, now: u64) -> Result<(), String> {
        self.check(sector, stamp, now, |write| write.is_stable || write.is_held)?;
        let writes = self.sectors.entry(sector).or_default();
        // Writes that were in flight do not continue after the kill.
        writes.iter_mut().for_each(|write| write.ended = write.ended.or(Some(now - 1)));
        writes.push(Write { stamp, began: now, ended: Some(now), is_stable: false, is_held: false });
        Ok(())
    }

    /// Forgets all sectors from this one on. New sectors will take their place.
    pub fn cut(&mut self, first: u64) {
        self.sectors.split_off(&first);
    }

    /// Sectors that were ever written.
    pub fn sectors(&self) -> Vec<u64> {
        self.sectors.keys().copied().collect()
    }

    fn check(
        &self,
        sector: u64,
        stamp: Stamp,
        ended: u64,
        overwrites: impl Fn(&Write) -> bool,
    ) -> Result<(), String> {
        let none = Vec::new();
        let writes = self.sectors.get(&sector).unwrap_or(&none);
        let initial = Write { stamp: 0, began: 0, ended: Some(0), is_stable: true, is_held: true };
        let is_possible = |source: &Write| {
            let is_overwritten =
                |other: &Write| source.ended.is_some_and(|end| other.began > end) && overwrites(other);
            source.stamp == stamp && source.began <= ended && !writes.iter().any(is_overwritten)
        };
        if std::iter::once(&initial).chain(writes).any(is_possible) {
            return Ok(());
        }
        Err(format!("sector {sector} has stamp {stamp}, which none of its writes allows: {writes:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_flushed_write_is_detected() {
        let mut history = History::default();
        history.write_began(1, 7, 10);
        history.write_ended(1, 7, 10, 20, false);
        assert!(history.clone().check_after_crash(1, 0, 50).is_ok());
        history.flushed(30);
        assert!(history.clone().check_after_crash(1, 0, 50).is_err());
        assert!(history.check_after_crash(1, 7, 50).is_ok());
    }

    #[test]
    fn value_after_kill_is_read_and_may_still_be_lost() {
        let mut history = History::default();
        history.write_began(1, 7, 10);
        history.write_ended(1, 7, 10, 20, true);
        history.write_began(1, 8, 30);
        history.write_began(1, 9, 30);
        assert!(history.clone().check_after_kill(1, 0, 50).is_err(), "what was stable is lost");
        history.check_after_kill(1, 8, 50).unwrap();
        assert!(history.check_read(1, 8, 60, 61).is_ok());
        assert!(history.check_read(1, 9, 60, 61).is_err() && history.check_read(1, 7, 60, 61).is_err());
        for stamp in [7, 8, 9] {
            assert!(history.clone().check_after_crash(1, stamp, 70).is_ok(), "{stamp} may be what is stable");
        }
        history.flushed(65);
        assert!(history.clone().check_after_crash(1, 7, 70).is_err());
        assert!(history.check_after_crash(1, 8, 70).is_ok());
    }

    #[test]
    fn stale_or_foreign_read_is_detected() {
        let mut history = History::default();
        history.write_began(1, 7, 10);
        history.write_ended(1, 7, 10, 20, false);
        assert!(history.check_read(1, 0, 15, 25).is_ok());
        assert!(history.check_read(1, 0, 21, 25).is_err());
        assert!(history.check_read(1, 9, 21, 25).is_err());
    }
}
