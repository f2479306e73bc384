//! Which records are old. Time is told from outside, by intervals; it knows nothing of what follows from age.

/// Where what is old ends, and what will be old next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    old_through: u64,
    next_through: u64,
}

impl Age {
    /// All records up to one are old.
    pub fn old_through_all(newest: u64) -> Age {
        Age { old_through: newest, next_through: newest }
    }

    /// The newest record that is old.
    pub fn old_through(self) -> u64 {
        self.old_through
    }

    /// An interval has passed: what was there when it began is old, and up to this record it will be after the next one.
    pub fn pass_interval(&mut self, newest: u64) {
        (self.old_through, self.next_through) = (self.next_through, newest);
    }
}
