//! Dirty region log of an extent: which regions enter it together, and which may leave it.
//!
//! Each new dirty region costs a durable write that a change waits for. So regions stay in the log while
//! they change all the time. The log itself is the set of dirty regions in the replica metadata. This module
//! does not know when that is written.

use crate::mirror::regions::RegionSet;

/// Changes of dirty regions that decide which regions stay in the log.
#[derive(Debug, Default)]
pub(super) struct DirtyLog {
    /// Regions that were chosen to leave the log and have not changed since, while this choice is in progress.
    leaving: Option<RegionSet>,
    /// Dirty regions that changed since the last search for regions that can leave the log.
    recent: RegionSet,
}

impl DirtyLog {
    /// Marks a region dirty that is about to change, and the whole group if another of its regions is dirty.
    ///
    /// A client that writes in two regions of a group soon writes in more of them. The price is a resync of
    /// the whole group after a crash. The group stays dirty while anything in it changes, except for regions
    /// that were about to leave the log.
    pub fn make_dirty(&mut self, region: u32, dirty: &mut RegionSet) {
        self.leaving.iter_mut().for_each(|leaving| leaving.remove(region));
        let is_new = dirty.insert(region);
        if dirty.count_in_group(region) == 1 {
            self.recent.insert(region);
            return;
        }
        self.recent.insert_group(region);
        if is_new {
            dirty.insert_group(region);
        }
    }

    /// True while a choice of regions that leave the log is in progress.
    pub fn is_being_tidied(&self) -> bool {
        self.leaving.is_some()
    }

    /// Chooses the regions that leave the log, from those in which replicas in sync are equal: the ones that
    /// have not changed since the last choice. False if there are none.
    pub fn begin_tidying(&mut self, mut settled: RegionSet) -> bool {
        settled.subtract(&std::mem::take(&mut self.recent));
        self.leaving = Some(settled).filter(|settled| !settled.is_empty());
        self.leaving.is_some()
    }

    /// Ends the choice, and returns the chosen regions that have not changed in between.
    pub fn end_tidying(&mut self) -> RegionSet {
        self.leaving.take().expect("a choice ends once")
    }

    /// Lets the next choice have regions that changed lately too.
    pub fn forget_recent(&mut self) {
        self.recent = RegionSet::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_dirty_region_makes_the_whole_group_dirty() {
        let (mut log, mut dirty) = (DirtyLog::default(), RegionSet::default());
        log.make_dirty(3, &mut dirty);
        log.make_dirty(20, &mut dirty);
        assert!(dirty.iter().eq([3, 20]));
        log.make_dirty(5, &mut dirty);
        assert!(dirty.iter().eq((0..16).chain([20])));
    }

    #[test]
    fn whole_group_stays_while_any_region_of_it_changes() {
        let (mut log, mut dirty) = (DirtyLog::default(), RegionSet::default());
        [3, 5].into_iter().for_each(|region| log.make_dirty(region, &mut dirty));
        log.forget_recent();
        log.make_dirty(9, &mut dirty);
        assert!(log.recent.iter().eq(0..16));
        assert!(!log.begin_tidying(dirty.clone()));
        assert!(log.begin_tidying(dirty.clone()), "nothing changed since");
        log.make_dirty(7, &mut dirty);
        assert!(log.end_tidying().iter().eq((0..7).chain(8..16)));
    }
}
