//! The age of records: which records are old enough to be destaged early. The caller reports time as
//! intervals. The module knows nothing of what follows from age.

/// The newest record that is old now, and the newest one that is old after the next interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    old_through: u64,
    next_through: u64,
}

impl Age {
    /// Treats all records up to `newest` as old.
    pub fn old_through_all(newest: u64) -> Age {
        Age { old_through: newest, next_through: newest }
    }

    /// Newest record that is old.
    pub fn old_through(self) -> u64 {
        self.old_through
    }

    /// Ends an interval. Records that existed when the interval began are old now. Records up to `newest` are
    /// old after the next interval.
    pub fn pass_interval(&mut self, newest: u64) {
        (self.old_through, self.next_through) = (self.next_through, newest);
    }
}
