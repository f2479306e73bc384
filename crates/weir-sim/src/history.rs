//! What a client saw, and whether a disk that keeps its promises could have shown it.
//!
//! Each sector is a register. A value that is read must come from a write that began before the read ended
//! and was not overwritten by a write that lay wholly between the two. After a crash the same holds, but
//! only writes that a flush (or their own durability) made stable count as overwriting.

use std::collections::BTreeMap;

use crate::Stamp;

/// One write of a sector, in the world's time.
#[derive(Clone, Copy, Debug)]
struct Write {
    stamp: Stamp,
    began: u64,
    /// `None` while it is under way, or if it was never acknowledged.
    ended: Option<u64>,
    is_stable: bool,
}

/// All writes of all sectors.
#[derive(Clone, Debug, Default)]
pub struct History {
    sectors: BTreeMap<u64, Vec<Write>>,
}

impl History {
    /// A write of a sector begins.
    pub fn write_began(&mut self, sector: u64, stamp: Stamp, now: u64) {
        self.sectors.entry(sector).or_default().push(Write {
            stamp,
            began: now,
            ended: None,
            is_stable: false,
        });
    }

    /// A write of a sector is acknowledged.
    pub fn write_ended(&mut self, sector: u64, stamp: Stamp, began: u64, now: u64, is_durable: bool) {
        let writes = self.sectors.entry(sector).or_default();
        let write = writes.iter_mut().find(|w| w.stamp == stamp && w.began == began);
        let write = write.expect("a write that ends has begun");
        (write.ended, write.is_stable) = (Some(now), is_durable);
    }

    /// A flush that began at `began` is acknowledged: what had ended before it is stable.
    pub fn flushed(&mut self, began: u64) {
        for write in self.sectors.values_mut().flatten() {
            write.is_stable |= write.ended.is_some_and(|ended| ended < began);
        }
    }

    /// Checks a value that was read between two instants.
    ///
    /// # Errors
    /// Says which rule the value breaks.
    pub fn check_read(&self, sector: u64, stamp: Stamp, began: u64, ended: u64) -> Result<(), String> {
        let overwrites = |write: &Write| write.ended.is_some_and(|end| end < began);
        self.check(sector, stamp, ended, overwrites)
    }

    /// Checks a value that is there after a crash, and makes it the sector's whole past.
    ///
    /// # Errors
    /// Says which rule the value breaks.
    pub fn check_after_crash(&mut self, sector: u64, stamp: Stamp, now: u64) -> Result<(), String> {
        self.check(sector, stamp, now, |write| write.is_stable)?;
        let survivor = Write { stamp, began: now, ended: Some(now), is_stable: true };
        self.sectors.insert(sector, vec![survivor]);
        Ok(())
    }

    /// Checks a value that is there after a crash which may have cost what was not stable, but made nothing stable: the
    /// value is not lost by itself any more, and the next power cut may still bring back what was there before.
    ///
    /// # Errors
    /// Says which rule the value breaks.
    pub fn check_after_kill(&mut self, sector: u64, stamp: Stamp, now: u64) -> Result<(), String> {
        self.check(sector, stamp, now, |write| write.is_stable)?;
        let writes = self.sectors.entry(sector).or_default();
        // Nothing that was under way goes on.
        writes.iter_mut().for_each(|write| write.ended = write.ended.or(Some(now - 1)));
        writes.push(Write { stamp, began: now, ended: Some(now), is_stable: false });
        Ok(())
    }

    /// Sectors from this one on go: in their place come new ones.
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
        let initial = Write { stamp: 0, began: 0, ended: Some(0), is_stable: true };
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
    fn a_lost_flushed_write_is_noticed() {
        let mut history = History::default();
        history.write_began(1, 7, 10);
        history.write_ended(1, 7, 10, 20, false);
        assert!(history.clone().check_after_crash(1, 0, 50).is_ok());
        history.flushed(30);
        assert!(history.clone().check_after_crash(1, 0, 50).is_err());
        assert!(history.check_after_crash(1, 7, 50).is_ok());
    }

    #[test]
    fn what_survives_a_kill_is_read_and_may_still_be_lost() {
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
    fn a_stale_or_foreign_read_is_noticed() {
        let mut history = History::default();
        history.write_began(1, 7, 10);
        history.write_ended(1, 7, 10, 20, false);
        assert!(history.check_read(1, 0, 15, 25).is_ok());
        assert!(history.check_read(1, 0, 21, 25).is_err());
        assert!(history.check_read(1, 9, 21, 25).is_err());
    }
}
