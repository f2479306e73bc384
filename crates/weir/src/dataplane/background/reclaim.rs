//! One reclaim: which step of it is next, and what follows from how a step ended. Pure.

use std::ops::Range;

use weir_store::{Given, Survey};

/// A step of a reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look at what there is to give back.
    Survey,
    /// Give back a part of an extent.
    GiveBack(u32),
    /// Remove what is left.
    Conclude,
}

/// What a step has found or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Surveyed(Survey),
    Given(Given),
    Concluded,
}

/// How a step ended, or why it failed, in words.
pub type Outcome = Result<Done, String>;

/// What follows from the end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is more to do.
    Going,
    /// Nothing is left.
    Finished,
    /// Something could not be done; it begins anew with what is left.
    Failed(String),
}

#[derive(Debug)]
enum Stage {
    Survey,
    /// Extents within a range are not touched yet; some above it are not gone yet.
    Giving {
        untouched: Range<u32>,
        unfinished: Vec<u32>,
    },
    Conclude,
}

/// A reclaim and how far it is. Extents go from the last to the first, so that what is left of them after a crash
/// is known from the highest.
#[derive(Debug)]
pub struct Reclaim {
    stage: Stage,
    under_way: usize,
    /// Why the first step failed that did since the last survey.
    fault: Option<String>,
}

impl Step {
    /// True if it takes something of the drive that others want too.
    pub fn is_for_drive(self) -> bool {
        matches!(self, Step::GiveBack(_))
    }
}

impl Reclaim {
    pub fn new() -> Reclaim {
        Reclaim { stage: Stage::Survey, under_way: 0, fault: None }
    }

    /// The next step, if one can be taken now.
    pub fn peek(&self) -> Option<Step> {
        match &self.stage {
            Stage::Giving { untouched, unfinished } => {
                let next = unfinished.last().copied().or(untouched.clone().next_back());
                next.map(Step::GiveBack)
            }
            Stage::Survey => (self.under_way == 0).then_some(Step::Survey),
            Stage::Conclude => (self.under_way == 0).then_some(Step::Conclude),
        }
    }

    /// Takes the next step.
    pub fn take(&mut self) -> Option<Step> {
        let step = self.peek()?;
        if let Stage::Giving { untouched, unfinished } = &mut self.stage
            && unfinished.pop().is_none()
        {
            untouched.next_back();
        }
        self.under_way += 1;
        Some(step)
    }

    /// A step that was taken is not carried out.
    pub fn put_back(&mut self, step: Step) {
        self.under_way -= 1;
        if let (Stage::Giving { unfinished, .. }, Step::GiveBack(extent)) = (&mut self.stage, step) {
            unfinished.push(extent);
        }
    }

    /// A step has ended.
    pub fn ended(&mut self, step: Step, outcome: Outcome) -> Verdict {
        self.under_way -= 1;
        match (outcome, &mut self.stage) {
            (Ok(Done::Surveyed(survey)), stage) => {
                *stage = Stage::Giving { untouched: survey.first..survey.end, unfinished: Vec::new() };
            }
            (Ok(Done::Concluded), _) => return Verdict::Finished,
            (Ok(Done::Given(given)), Stage::Giving { unfinished, .. }) if !given.is_gone => {
                // An extent is only ever in one step, so this is the one that was taken.
                unfinished.extend(extent_of(step));
            }
            (Ok(Done::Given(_)), _) => {}
            (Err(fault), _) => _ = self.fault.get_or_insert(fault),
        }
        self.next_stage()
    }

    /// Goes over to the next stage if this one has nothing left.
    fn next_stage(&mut self) -> Verdict {
        let is_given = match &self.stage {
            Stage::Giving { untouched, unfinished } => untouched.is_empty() && unfinished.is_empty(),
            Stage::Survey | Stage::Conclude => self.fault.is_some(),
        };
        if self.under_way > 0 || !is_given {
            return Verdict::Going;
        }
        match self.fault.take() {
            Some(fault) => {
                self.stage = Stage::Survey;
                Verdict::Failed(fault)
            }
            None => {
                self.stage = Stage::Conclude;
                Verdict::Going
            }
        }
    }
}

fn extent_of(step: Step) -> Option<u32> {
    match step {
        Step::GiveBack(extent) => Some(extent),
        Step::Survey | Step::Conclude => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surveyed(extents: u32) -> Outcome {
        Ok(Done::Surveyed(Survey { first: 0, end: extents, operations: u64::from(extents), bytes: 0 }))
    }

    fn given(is_gone: bool) -> Outcome {
        Ok(Done::Given(Given { bytes: 1, is_gone }))
    }

    /// A reclaim that has looked and found extents.
    fn reclaim(extents: u32) -> Reclaim {
        let mut reclaim = Reclaim::new();
        assert_eq!((reclaim.take(), reclaim.take()), (Some(Step::Survey), None));
        assert_eq!(reclaim.ended(Step::Survey, surveyed(extents)), Verdict::Going);
        reclaim
    }

    #[test]
    fn extents_go_from_the_last_to_the_first_and_then_the_rest() {
        let mut reclaim = reclaim(3);
        let taken = [reclaim.take(), reclaim.take()];
        assert_eq!(taken, [Some(Step::GiveBack(2)), Some(Step::GiveBack(1))]);
        assert_eq!(reclaim.ended(Step::GiveBack(2), given(false)), Verdict::Going);
        assert_eq!(reclaim.take(), Some(Step::GiveBack(2)), "what was begun is finished first");
        assert_eq!(reclaim.take(), Some(Step::GiveBack(0)));
        for extent in [0, 1, 2] {
            assert_eq!(reclaim.take(), None, "the rest waits for all of them");
            assert_eq!(reclaim.ended(Step::GiveBack(extent), given(true)), Verdict::Going);
        }
        assert_eq!((reclaim.take(), reclaim.take()), (Some(Step::Conclude), None));
        assert_eq!(reclaim.ended(Step::Conclude, Ok(Done::Concluded)), Verdict::Finished);
    }

    #[test]
    fn what_holds_no_extents_is_removed_at_once() {
        assert_eq!(reclaim(0).take(), Some(Step::Conclude));
    }

    #[test]
    fn a_fault_holds_up_nothing_else_and_begins_anew() {
        let mut reclaim = reclaim(2);
        (0..2).for_each(|_| _ = reclaim.take());
        assert_eq!(reclaim.ended(Step::GiveBack(1), Err("first".to_owned())), Verdict::Going);
        let verdict = reclaim.ended(Step::GiveBack(0), Err("second".to_owned()));
        assert_eq!(verdict, Verdict::Failed("first".to_owned()));
        assert_eq!(reclaim.take(), Some(Step::Survey));
        let verdict = reclaim.ended(Step::Survey, Err("no drive".to_owned()));
        assert_eq!(verdict, Verdict::Failed("no drive".to_owned()));
        assert_eq!(reclaim.take(), Some(Step::Survey));
    }

    #[test]
    fn a_step_that_is_not_carried_out_is_taken_again() {
        let mut reclaim = reclaim(2);
        (0..2).for_each(|_| _ = reclaim.take());
        reclaim.put_back(Step::GiveBack(1));
        assert_eq!(reclaim.ended(Step::GiveBack(0), given(true)), Verdict::Going);
        assert_eq!((reclaim.take(), reclaim.take()), (Some(Step::GiveBack(1)), None));
    }
}
