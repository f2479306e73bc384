//! Reclaim: which step is next, and what follows from the outcome of a step. Pure.

use std::ops::Range;

use weir_types::ExtentIndex;

use crate::helper::{ReclaimDone, ReclaimOutcome, ReclaimStep};

/// Consequence of a step's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The reclaim has more steps.
    Going,
    /// The reclaim is finished.
    Finished,
    /// A step failed; the reclaim begins anew with the remains.
    Failed(String),
}

#[derive(Debug)]
enum Stage {
    Survey,
    /// Extents in `untouched` have had no step yet. Extents in `unfinished` have had a step but are not
    /// gone.
    Giving {
        untouched: Range<u32>,
        unfinished: Vec<ExtentIndex>,
    },
    Conclude,
}

/// A reclaim and its progress. Extents go from the last to the first, so the highest extent that a crash
/// leaves tells what remains.
#[derive(Debug)]
pub struct Reclaim {
    stage: Stage,
    under_way: usize,
    /// Reason of the first failed step since the last survey.
    fault: Option<String>,
}

impl Reclaim {
    pub fn new() -> Reclaim {
        Reclaim { stage: Stage::Survey, under_way: 0, fault: None }
    }

    /// The next step, if one can be taken now.
    pub fn peek(&self) -> Option<ReclaimStep> {
        match &self.stage {
            Stage::Giving { untouched, unfinished } => {
                let next = unfinished.last().copied().or(untouched.clone().next_back().map(ExtentIndex));
                next.map(ReclaimStep::GiveBack)
            }
            Stage::Survey => (self.under_way == 0).then_some(ReclaimStep::Survey),
            Stage::Conclude => (self.under_way == 0).then_some(ReclaimStep::Conclude),
        }
    }

    /// Takes the next step.
    pub fn take(&mut self) -> Option<ReclaimStep> {
        let step = self.peek()?;
        if let Stage::Giving { untouched, unfinished } = &mut self.stage
            && unfinished.pop().is_none()
        {
            untouched.next_back();
        }
        self.under_way += 1;
        Some(step)
    }

    /// Returns a step that was taken but is not carried out.
    pub fn put_back(&mut self, step: ReclaimStep) {
        self.under_way -= 1;
        if let (Stage::Giving { unfinished, .. }, ReclaimStep::GiveBack(extent)) = (&mut self.stage, step) {
            unfinished.push(extent);
        }
    }

    /// Takes the outcome of a step.
    pub fn ended(&mut self, step: ReclaimStep, outcome: ReclaimOutcome) -> Verdict {
        self.under_way -= 1;
        match (outcome, &mut self.stage) {
            (Ok(ReclaimDone::Surveyed(survey)), stage) => {
                *stage = Stage::Giving { untouched: survey.first.0..survey.end, unfinished: Vec::new() };
            }
            (Ok(ReclaimDone::Concluded), _) => return Verdict::Finished,
            (Ok(ReclaimDone::Given(given)), Stage::Giving { unfinished, .. }) if !given.is_gone => {
                // An extent is in one step at a time, so this is the extent that was taken.
                unfinished.extend(extent_of(step));
            }
            (Ok(ReclaimDone::Given(_)), _) => {}
            (Err(fault), _) => _ = self.fault.get_or_insert(fault),
        }
        self.next_stage()
    }

    /// Enters the next stage if the current one is complete.
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

fn extent_of(step: ReclaimStep) -> Option<ExtentIndex> {
    match step {
        ReclaimStep::GiveBack(extent) => Some(extent),
        ReclaimStep::Survey | ReclaimStep::Conclude => None,
    }
}

#[cfg(test)]
mod tests {
    use weir_store::{Given, Survey};

    use super::*;

    fn surveyed(extents: u32) -> ReclaimOutcome {
        Ok(ReclaimDone::Surveyed(Survey {
            first: ExtentIndex(0),
            end: extents,
            operations: u64::from(extents),
            bytes: 0,
        }))
    }

    fn give_back(extent: u32) -> ReclaimStep {
        ReclaimStep::GiveBack(ExtentIndex(extent))
    }

    fn given(is_gone: bool) -> ReclaimOutcome {
        Ok(ReclaimDone::Given(Given { bytes: 1, is_gone }))
    }

    /// A reclaim whose survey found this number of extents.
    fn reclaim(extents: u32) -> Reclaim {
        let mut reclaim = Reclaim::new();
        assert_eq!((reclaim.take(), reclaim.take()), (Some(ReclaimStep::Survey), None));
        assert_eq!(reclaim.ended(ReclaimStep::Survey, surveyed(extents)), Verdict::Going);
        reclaim
    }

    #[test]
    fn extents_are_reclaimed_last_to_first() {
        let mut reclaim = reclaim(3);
        let taken = [reclaim.take(), reclaim.take()];
        assert_eq!(taken, [Some(give_back(2)), Some(give_back(1))]);
        assert_eq!(reclaim.ended(give_back(2), given(false)), Verdict::Going);
        assert_eq!(reclaim.take(), Some(give_back(2)), "what was begun is finished first");
        assert_eq!(reclaim.take(), Some(give_back(0)));
        for extent in [0, 1, 2] {
            assert_eq!(reclaim.take(), None, "the rest waits for all of them");
            assert_eq!(reclaim.ended(give_back(extent), given(true)), Verdict::Going);
        }
        assert_eq!((reclaim.take(), reclaim.take()), (Some(ReclaimStep::Conclude), None));
        assert_eq!(reclaim.ended(ReclaimStep::Conclude, Ok(ReclaimDone::Concluded)), Verdict::Finished);
    }

    #[test]
    fn folder_without_extents_is_removed_at_once() {
        assert_eq!(reclaim(0).take(), Some(ReclaimStep::Conclude));
    }

    #[test]
    fn failed_step_delays_no_other_and_restarts_the_reclaim() {
        let mut reclaim = reclaim(2);
        (0..2).for_each(|_| _ = reclaim.take());
        assert_eq!(reclaim.ended(give_back(1), Err("first".to_owned())), Verdict::Going);
        let verdict = reclaim.ended(give_back(0), Err("second".to_owned()));
        assert_eq!(verdict, Verdict::Failed("first".to_owned()));
        assert_eq!(reclaim.take(), Some(ReclaimStep::Survey));
        let verdict = reclaim.ended(ReclaimStep::Survey, Err("no drive".to_owned()));
        assert_eq!(verdict, Verdict::Failed("no drive".to_owned()));
        assert_eq!(reclaim.take(), Some(ReclaimStep::Survey));
    }

    #[test]
    fn step_put_back_is_taken_again() {
        let mut reclaim = reclaim(2);
        (0..2).for_each(|_| _ = reclaim.take());
        reclaim.put_back(give_back(1));
        assert_eq!(reclaim.ended(give_back(0), given(true)), Verdict::Going);
        assert_eq!((reclaim.take(), reclaim.take()), (Some(give_back(1)), None));
    }
}
