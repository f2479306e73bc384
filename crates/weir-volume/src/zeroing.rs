//! Giving space back and zeroing ranges on filesystems that can do different things.

use crate::action::Fault;

/// One thing that is asked of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Give the space of the range back.
    Release,
    /// Zero the range and keep its space.
    Zero,
    /// Give the space back, to reserve it anew after that.
    ReleaseFirst,
    /// Reserve the space that was given back.
    ReserveAgain,
}

/// What follows the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another step.
    Ask(Step),
    /// Nothing: this came of the whole.
    End(Result<u32, Fault>),
}

/// What is known of the filesystem of a drive.
#[derive(Clone, Debug, Default)]
pub struct Filesystem {
    lacks_zero_range: bool,
}

impl Filesystem {
    /// What is asked first to zero a range, or else to give its space back.
    pub fn first(&self, is_zero: bool) -> Step {
        match (is_zero, self.lacks_zero_range) {
            (false, _) => Step::Release,
            (true, false) => Step::Zero,
            (true, true) => Step::ReleaseFirst,
        }
    }

    /// What follows the end of a step. A filesystem that cannot zero in one step is not asked for it again.
    pub fn next(&mut self, step: Step, result: Result<u32, Fault>) -> Next {
        match (step, result) {
            (Step::Zero, Err(Fault::Unsupported)) => {
                self.lacks_zero_range = true;
                Next::Ask(Step::ReleaseFirst)
            }
            (Step::ReleaseFirst, Ok(_)) => Next::Ask(Step::ReserveAgain),
            (_, result) => Next::End(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroing_takes_two_steps_where_there_is_no_single_one() {
        let mut filesystem = Filesystem::default();
        assert_eq!(filesystem.first(true), Step::Zero);
        assert_eq!(filesystem.next(Step::Zero, Ok(0)), Next::End(Ok(0)));
        let unsupported = Err(Fault::Unsupported);
        assert_eq!(filesystem.next(Step::Zero, unsupported), Next::Ask(Step::ReleaseFirst));
        assert_eq!(filesystem.first(true), Step::ReleaseFirst, "it is not asked in vain again");
        assert_eq!(filesystem.next(Step::ReleaseFirst, Ok(0)), Next::Ask(Step::ReserveAgain));
        assert_eq!(filesystem.next(Step::ReserveAgain, Ok(0)), Next::End(Ok(0)));
        assert_eq!(filesystem.next(Step::ReleaseFirst, unsupported), Next::End(unsupported));
        assert_eq!(filesystem.first(false), Step::Release);
        assert_eq!(filesystem.next(Step::Release, unsupported), Next::End(unsupported));
    }
}
