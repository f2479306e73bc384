//! Background work of the fake engine: it is done at once, unless its kind has a ceiling. Then it stands still
//! until the ceiling goes, or a test lets steps through.

use std::collections::{BTreeMap, BTreeSet};

use weir_engine_interface::ReclaimSpec;
use weir_reactor::Clock;
use weir_types::{BackgroundKind, BackgroundPolicy, ExtentIndex};

/// The kinds of background work that stand still, and how many of their steps may be taken all the same.
#[derive(Default)]
pub struct Pace {
    held: BTreeSet<BackgroundKind>,
    steps: BTreeMap<BackgroundKind, usize>,
}

impl Pace {
    /// Puts a policy of a kind in effect.
    pub fn take_policy(&mut self, kind: BackgroundKind, policy: BackgroundPolicy) {
        self.steps.remove(&kind);
        match policy.ceiling.is_unlimited() {
            true => _ = self.held.remove(&kind),
            false => _ = self.held.insert(kind),
        }
    }

    /// Lets this number of further steps of a kind through.
    pub fn let_through(&mut self, kind: BackgroundKind, steps: usize) {
        *self.steps.entry(kind).or_default() += steps;
    }

    /// Takes a step of a kind, if one may be taken.
    pub fn take_step(&mut self, kind: BackgroundKind) -> bool {
        if !self.held.contains(&kind) {
            return true;
        }
        let Some(left) = self.steps.get_mut(&kind).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }
}

/// A reclaim that is not finished.
pub struct FakeReclaim {
    spec: ReclaimSpec,
    /// Extents that are left, once they were counted. They go from the last to the first.
    left: Option<Vec<ExtentIndex>>,
    fault: Option<String>,
}

impl FakeReclaim {
    pub fn new(spec: ReclaimSpec) -> FakeReclaim {
        FakeReclaim { spec, left: None, fault: None }
    }

    /// Takes all steps that may be taken. True once the reclaim is finished. If a step failed, the reclaim
    /// begins anew with what is left.
    pub fn go_on(&mut self, pace: &mut Pace) -> bool {
        let ended = self.count().and_then(|()| Ok(self.give_back(pace) && self.conclude()?));
        ended.unwrap_or_else(|fault| {
            self.left = None;
            self.spec.progress.failed(fault);
            false
        })
    }

    /// Counts what is left, unless it was counted.
    fn count(&mut self) -> Result<(), String> {
        if self.left.is_none() {
            let survey = self.spec.pending_deletion.survey().map_err(|error| error.to_string())?;
            self.spec.progress.surveyed(&survey);
            self.left = Some(survey.first.onward(survey.end).collect());
        }
        Ok(())
    }

    /// Gives extents back, as long as steps may be taken. True if none is left. A step that fails leaves out
    /// its extent.
    fn give_back(&mut self, pace: &mut Pace) -> bool {
        let left = self.left.get_or_insert_default();
        while let Some(extent) = left.last().copied() {
            if !pace.take_step(BackgroundKind::Reclaim) {
                return false;
            }
            self.spec.progress.started(Clock.now_ns());
            let given = self.spec.pending_deletion.give_back(extent);
            let is_over = given.as_ref().map_or(true, |given| given.is_gone);
            left.truncate(left.len() - usize::from(is_over));
            match given {
                Ok(given) => self.spec.progress.given(&given),
                Err(error) => _ = self.fault.get_or_insert(error.to_string()),
            }
        }
        true
    }

    fn conclude(&mut self) -> Result<bool, String> {
        self.fault.take().map_or(Ok(()), Err)?;
        self.spec.pending_deletion.conclude().map_err(|error| error.to_string())?;
        self.spec.progress.finished();
        Ok(true)
    }
}
