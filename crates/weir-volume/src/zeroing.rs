//! Zeroing: releasing and zeroing ranges on filesystems with different abilities.

use crate::action::Fault;

/// One request to a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Release the space of the range.
    Release,
    /// Zero the range and keep its space.
    Zero,
    /// Release the space of the range, to reserve it again afterwards.
    ReleaseFirst,
    /// Reserve the released space again.
    ReserveAgain,
}

/// Continuation after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask for another step.
    Ask(Step),
    /// End with this result of the whole operation.
    End(Result<u32, Fault>),
}

/// Known abilities of the filesystem of a drive.
#[derive(Clone, Debug, Default)]
pub struct Filesystem {
    lacks_zero_range: bool,
}

impl Filesystem {
    /// First step to zero a range (`is_zero`) or to release its space.
    pub fn first(&self, is_zero: bool) -> Step {
        match (is_zero, self.lacks_zero_range) {
            (false, _) => Step::Release,
            (true, false) => Step::Zero,
            (true, true) => Step::ReleaseFirst,
        }
    }

    /// Continuation after a step. A filesystem that cannot zero in one step is not asked to again.
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
    fn zeroing_takes_two_steps_without_zero_range() {
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
