//! Flushes, and the extents that they wait for.
//!
//! A flush covers every write that was acknowledged before it came. An extent is dirty from the end of a
//! write until a later sync *begins*. A flush may come while a sync runs and find the extent dirty again.
//! Then it needs the next sync; all flushes in this situation share it.

/// The syncs of one extent.
#[derive(Debug, Default)]
pub(crate) struct ExtentSync {
    pub is_dirty: bool,
    is_running: bool,
    waiting_for_running: Vec<u32>,
    waiting_for_next: Vec<u32>,
}

/// Effect of a flush on one extent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// Nothing to wait for.
    Clean,
    /// Wait: a sync that covers the flush runs or will run.
    Wait,
    /// Wait, and begin a sync now.
    Begin,
}

impl ExtentSync {
    /// True if a flush would have to wait for this extent.
    pub fn concerns_flush(&self) -> bool {
        self.is_dirty || self.is_running
    }

    pub fn is_running(&self) -> bool {
        self.is_running
    }

    pub fn join(&mut self, flush: u32) -> Join {
        if self.is_running {
            let waiting =
                if self.is_dirty { &mut self.waiting_for_next } else { &mut self.waiting_for_running };
            waiting.push(flush);
            return Join::Wait;
        }
        if !self.is_dirty {
            return Join::Clean;
        }
        self.waiting_for_running.push(flush);
        self.begin();
        Join::Begin
    }

    fn begin(&mut self) {
        self.is_dirty = false;
        self.is_running = true;
    }

    /// Handles the end of a sync. Returns the flushes that it served, and whether another sync must begin.
    pub fn ended(&mut self) -> (Vec<u32>, bool) {
        self.is_running = false;
        let served = std::mem::take(&mut self.waiting_for_running);
        let is_next_wanted = !self.waiting_for_next.is_empty();
        if is_next_wanted {
            self.waiting_for_running = std::mem::take(&mut self.waiting_for_next);
            self.begin();
        }
        (served, is_next_wanted)
    }

    /// Takes out all flushes, because the extent has failed.
    pub fn abandon(&mut self) -> Vec<u32> {
        self.is_dirty = false;
        self.is_running = false;
        let mut all = std::mem::take(&mut self.waiting_for_running);
        all.append(&mut self.waiting_for_next);
        all
    }
}

/// Flushes of a volume in progress.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    pending: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    flush: u32,
    extents_left: u32,
    has_failed: bool,
}

impl Flushes {
    pub fn begin(&mut self, flush: u32, extents_left: u32) {
        self.pending.push(Pending { flush, extents_left, has_failed: false });
    }

    /// Handles the end of one extent of a flush. Returns `Some(success)` for the last extent.
    pub fn extent_done(&mut self, flush: u32, succeeded: bool) -> Option<bool> {
        let index = self.pending.iter().position(|p| p.flush == flush)?;
        let pending = &mut self.pending[index];
        pending.extents_left -= 1;
        pending.has_failed |= !succeeded;
        let is_last = pending.extents_left == 0;
        is_last.then(|| !self.pending.swap_remove(index).has_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_during_a_sync_needs_the_next_sync() {
        let mut sync = ExtentSync { is_dirty: true, ..ExtentSync::default() };
        assert_eq!(sync.join(1), Join::Begin);
        assert_eq!(sync.join(2), Join::Wait);
        sync.is_dirty = true;
        assert_eq!(sync.join(3), Join::Wait);
        assert_eq!(sync.join(4), Join::Wait);
        assert_eq!(sync.ended(), (vec![1, 2], true));
        assert!(!sync.is_dirty);
        assert_eq!(sync.ended(), (vec![3, 4], false));
        assert_eq!(sync.join(5), Join::Clean);
    }
}
