//! The queue depth: how many operations to keep in flight at a drive, as few as give nearly all of its
//! throughput.
//!
//! More operations would only wait inside the device, where Weir cannot choose their order. The depth is
//! found by trial. Now and then the next smaller or the next larger depth is used for a moment. The delivery
//! of the drive is compared with the moments before and after. This needs no model of the device, and follows
//! a change of its behaviour. A moment counts only if operations were waiting throughout.

/// Depths to choose from: each about 1.4 times the one before.
const STEPS: [u32; 20] = [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024];
/// Step to begin with: few drives gain from more, and most lose with less.
const FIRST_STEP: usize = 9;
/// Length of a moment, in nanoseconds, and of its beginning, which does not count. At the beginning the
/// operations in flight are still those of the moment before.
const MOMENT_NS: u64 = 25_000_000;
const SETTLING_NS: u64 = 5_000_000;
/// Number of operations that a moment needs to be comparable; slow drives have longer moments.
const OPERATIONS_PER_MOMENT_MIN: u64 = 64;
/// Number of trials before a decision: while the depth is sought, and after it was found.
const TRIALS_SEEKING: u32 = 3;
const TRIALS_SETTLED: u32 = 8;
/// Number of moments between two trials once the depth was found, because a trial costs throughput.
const MOMENTS_BETWEEN_TRIALS: u32 = 40;
/// Least gain of a larger depth to be chosen, and greatest loss of a smaller depth to be chosen, as ratios of
/// throughput.
const GAIN_MIN: f64 = 1.03;
const LOSS_MAX: f64 = 0.99;

/// The role of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Usual,
    Fewer,
    More,
}

/// The origin of the number of operations in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthOrigin {
    /// An operator chose the depth.
    Chosen,
    /// The depth was found elsewhere and is kept.
    Held,
    /// Trials on both sides of the depth gave nothing better.
    Found,
    /// The search has come to this depth so far.
    Sought,
}

/// The results of the trials in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Trials {
    count: u32,
    ratios: f64,
}

impl Trials {
    fn mean(self, count_min: u32) -> Option<f64> {
        (self.count >= count_min).then(|| self.ratios / f64::from(self.count))
    }
}

/// The depth, and the measurements of its neighbours.
#[derive(Clone, Debug)]
pub struct Depth {
    fixed: Option<u32>,
    /// Depth that was found elsewhere and is not sought here.
    held: Option<u32>,
    step: usize,
    role: Role,
    started_ns: u64,
    /// Drive time of the operations that completed in this moment after it settled, and their number.
    delivered_ns: u64,
    operations: u64,
    is_saturated: bool,
    /// Delivery rates of the usual moment before, and of the trial after it.
    usual_rate: Option<f64>,
    trial_rate: Option<(Role, f64)>,
    fewer: Trials,
    more: Trials,
    is_settled: bool,
    moments_until_trial: u32,
    is_more_next: bool,
}

impl Depth {
    /// Begins to search for the depth, or keeps to a fixed one.
    pub fn new(fixed: Option<u32>, now_ns: u64) -> Depth {
        Depth {
            fixed,
            held: None,
            step: FIRST_STEP,
            role: Role::Usual,
            started_ns: now_ns,
            delivered_ns: 0,
            operations: 0,
            is_saturated: false,
            usual_rate: None,
            trial_rate: None,
            fewer: Trials::default(),
            more: Trials::default(),
            is_settled: false,
            moments_until_trial: 1,
            is_more_next: false,
        }
    }

    /// Returns the number of operations to keep in flight now, in units of the smallest operation.
    pub fn operations(&self) -> u32 {
        let step = match self.role {
            Role::Usual => self.step,
            Role::Fewer => self.step.saturating_sub(1),
            Role::More => (self.step + 1).min(STEPS.len() - 1),
        };
        self.fixed.or(self.held).unwrap_or(STEPS[step])
    }

    /// Returns the depth between trials.
    pub fn usual(&self) -> u32 {
        self.fixed.or(self.held).unwrap_or(STEPS[self.step])
    }

    /// Returns the origin of the depth.
    pub fn origin(&self) -> DepthOrigin {
        match (self.fixed, self.held, self.is_settled) {
            (Some(_), ..) => DepthOrigin::Chosen,
            (None, Some(_), _) => DepthOrigin::Held,
            (None, None, true) => DepthOrigin::Found,
            (None, None, false) => DepthOrigin::Sought,
        }
    }

    /// Keeps to a depth that an operator chose, or resumes the search where it was.
    pub fn fix(&mut self, fixed: Option<u32>, now_ns: u64) {
        if self.fixed != fixed {
            // The measurements of this moment were made at another depth.
            *self = Depth { held: self.held, step: self.step, ..Depth::new(fixed, now_ns) };
        }
    }

    /// Takes a depth that was found elsewhere, and searches for no other.
    pub fn hold(&mut self, operations: u32) {
        self.held = Some(operations);
    }

    /// Returns true if an operator chose the depth.
    pub fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// Counts a completed operation. `is_waited_for` tells whether other operations are waiting.
    pub fn completed(&mut self, now_ns: u64, drive_ns: u32, is_waited_for: bool) {
        self.is_saturated &= is_waited_for;
        if now_ns < self.started_ns + SETTLING_NS {
            return;
        }
        self.delivered_ns += u64::from(drive_ns);
        self.operations += 1;
        let is_long_enough = now_ns >= self.started_ns + MOMENT_NS;
        if self.fixed.or(self.held).is_none()
            && is_long_enough
            && self.operations >= OPERATIONS_PER_MOMENT_MIN
        {
            self.end_moment(now_ns);
        }
    }

    fn end_moment(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns - self.started_ns - SETTLING_NS;
        let rate = self.is_saturated.then(|| self.delivered_ns as f64 / elapsed_ns.max(1) as f64);
        self.judge(rate);
        self.role = self.next_role();
        (self.started_ns, self.delivered_ns, self.operations) = (now_ns, 0, 0);
        self.is_saturated = true;
    }

    /// Evaluates a moment: a trial is compared with the usual moments on both sides of it.
    fn judge(&mut self, rate: Option<f64>) {
        let Some(rate) = rate else {
            (self.usual_rate, self.trial_rate) = (None, None);
            return;
        };
        if self.role != Role::Usual {
            self.trial_rate = Some((self.role, rate));
            return;
        }
        if let (Some(before), Some((role, trial))) = (self.usual_rate, self.trial_rate.take()) {
            let trials = if role == Role::More { &mut self.more } else { &mut self.fewer };
            trials.count += 1;
            trials.ratios += trial * 2.0 / (before + rate);
            self.decide();
        }
        self.usual_rate = Some(rate);
    }

    fn decide(&mut self) {
        let needed = if self.is_settled { TRIALS_SETTLED } else { TRIALS_SEEKING };
        let (more, fewer) = (self.more.mean(needed), self.fewer.mean(needed));
        if more.is_some_and(|ratio| ratio > GAIN_MIN) && self.step + 1 < STEPS.len() {
            self.take_step(self.step + 1);
        } else if fewer.is_some_and(|ratio| ratio > LOSS_MAX) && self.step > 0 {
            self.take_step(self.step - 1);
        } else if more.is_some() && fewer.is_some() {
            self.is_settled = true;
            (self.more, self.fewer) = (Trials::default(), Trials::default());
        }
    }

    fn take_step(&mut self, step: usize) {
        self.step = step;
        self.is_settled = false;
        (self.more, self.fewer) = (Trials::default(), Trials::default());
        (self.usual_rate, self.trial_rate) = (None, None);
    }

    fn next_role(&mut self) -> Role {
        if self.role != Role::Usual || self.usual_rate.is_none() {
            return Role::Usual;
        }
        self.moments_until_trial = self.moments_until_trial.saturating_sub(1);
        if self.moments_until_trial > 0 {
            return Role::Usual;
        }
        self.moments_until_trial = if self.is_settled { MOMENTS_BETWEEN_TRIALS } else { 1 };
        self.is_more_next = !self.is_more_next;
        if self.is_more_next { Role::More } else { Role::Fewer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a saturated drive for some seconds from `now_ns` on; returns the instant at the end. With
    /// `useful` operations in flight or more, the drive delivers one in 10 us; with fewer, it delivers less.
    fn saturate(depth: &mut Depth, useful: u32, now_ns: u64, seconds: u64) -> u64 {
        let mut at_ns = now_ns;
        while at_ns < now_ns + seconds * 1_000_000_000 {
            let in_flight = depth.operations().min(useful);
            at_ns += 10_000 * u64::from(useful) / u64::from(in_flight);
            depth.completed(at_ns, 10_000, true);
        }
        at_ns
    }

    #[test]
    fn fixed_depth_is_kept_until_the_search_resumes() {
        let mut depth = Depth::new(None, 0);
        let now_ns = saturate(&mut depth, 8, 0, 20);
        let found = depth.usual();
        assert!((6..=11).contains(&found) && depth.origin() == DepthOrigin::Found, "{found}");
        depth.fix(Some(100), now_ns);
        assert_eq!((depth.operations(), depth.origin(), depth.is_fixed()), (100, DepthOrigin::Chosen, true));
        let now_ns = saturate(&mut depth, 64, now_ns, 20);
        assert_eq!((depth.operations(), depth.usual()), (100, 100));
        depth.fix(None, now_ns);
        assert_eq!((depth.usual(), depth.origin()), (found, DepthOrigin::Sought), "from where it was");
        saturate(&mut depth, 64, now_ns, 20);
        assert!(depth.usual() >= 45 && depth.origin() == DepthOrigin::Found, "{}", depth.usual());
    }

    #[test]
    fn repeated_choice_disturbs_no_trial() {
        let (mut asked, mut other) = (Depth::new(None, 0), Depth::new(None, 0));
        let mut now_ns = (0, 0);
        for _ in 0..5 {
            now_ns = (saturate(&mut asked, 8, now_ns.0, 1), saturate(&mut other, 8, now_ns.1, 1));
            asked.fix(None, now_ns.0);
            assert_eq!((asked.operations(), asked.origin()), (other.operations(), other.origin()));
        }
    }
}
