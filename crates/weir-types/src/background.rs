//! Background work: its kinds, and the policies that it runs under.

use serde::{Deserialize, Serialize};

use crate::accepted::TermsError;
use crate::bounds::{BACKGROUND_DEADLINE_SECONDS_MAX, BACKGROUND_WEIGHT_DEFAULT, WEIGHT_MAX};
use crate::policy::{Limits, Terms, Throughput, Weight};
use crate::units::UnitError;

/// A kind of background work. Each kind has one policy, which applies to every drive separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundKind {
    /// Gives back the space of deleted volumes, and of extents that a shrink removed.
    Reclaim,
    /// Brings stale replicas of volumes up to date.
    Resync,
    /// Finds corruption in data at rest, and repairs it.
    Scrub,
}

impl BackgroundKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [BackgroundKind; 3] =
        [BackgroundKind::Reclaim, BackgroundKind::Resync, BackgroundKind::Scrub];

    /// Name of the kind in the command line, the API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            BackgroundKind::Reclaim => "reclaim",
            BackgroundKind::Resync => "resync",
            BackgroundKind::Scrub => "scrub",
        }
    }
}

impl std::fmt::Display for BackgroundKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for BackgroundKind {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<BackgroundKind, UnitError> {
        let found = BackgroundKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(text));
        let known = || BackgroundKind::ALL.map(BackgroundKind::name).join(", ");
        found
            .ok_or_else(|| UnitError::new(text, format!("a kind of background work; there are: {}", known())))
    }
}

/// Policy of one kind of background work on each drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundPolicy {
    /// Weight on the drive, beside the tenants.
    pub weight: Weight,
    /// Ceiling, which holds even if a deadline is missed for it.
    #[serde(default)]
    pub ceiling: Throughput,
    /// Time in which each job must be done, in seconds from its beginning. With a deadline the job has a
    /// floor, which grows as time runs out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
}

impl Default for BackgroundPolicy {
    fn default() -> BackgroundPolicy {
        BackgroundPolicy {
            weight: Weight(BACKGROUND_WEIGHT_DEFAULT),
            ceiling: Throughput::default(),
            deadline_seconds: None,
        }
    }
}

impl BackgroundPolicy {
    /// Refuses a policy that makes no sense.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), TermsError> {
        if !(1..=WEIGHT_MAX).contains(&self.weight.0) {
            return Err(TermsError::Weight(self.weight.0));
        }
        match self.deadline_seconds {
            Some(seconds) if !(1..=BACKGROUND_DEADLINE_SECONDS_MAX).contains(&seconds) => {
                Err(TermsError::Deadline(seconds))
            }
            _ => Ok(()),
        }
    }

    /// Terms of the work in the queue of a drive, with a floor of `floor_iops` operations per second. The
    /// floor never exceeds the ceiling.
    pub fn terms(&self, floor_iops: Option<u64>) -> Terms {
        let highest = self.ceiling.iops.unwrap_or(u64::MAX);
        let iops = floor_iops.map(|floor| floor.min(highest));
        Terms {
            limits: Limits { total: self.ceiling, ..Limits::default() },
            floor: Throughput { iops, bytes_per_second: None },
            weight: self.weight,
            ..Terms::default()
        }
    }
}

/// Units of time spans, with their seconds.
const SPAN_UNITS: [(&str, u32); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

/// Parses a deadline, like `90s`, `30m`, `1h` or `2d`, in seconds. `none` means no deadline.
///
/// # Errors
/// If the text has no unit, is not a whole number, or is out of range.
pub fn parse_deadline(text: &str) -> Result<Option<u32>, UnitError> {
    let days = BACKGROUND_DEADLINE_SECONDS_MAX / 86_400;
    let error = || {
        UnitError::new(text, format!("a deadline from 1s to {days}d, such as 90s, 30m, 1h or 2d, or 'none'"))
    };
    let lower = text.trim().to_ascii_lowercase();
    if lower == "none" {
        return Ok(None);
    }
    let split = lower.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
    let (number, unit) = lower.split_at(split);
    let (_, unit_seconds) = SPAN_UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(error)?;
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(*unit_seconds));
    let is_accepted = |seconds: &u32| (1..=BACKGROUND_DEADLINE_SECONDS_MAX).contains(seconds);
    seconds.filter(is_accepted).map(Some).ok_or_else(error)
}

/// Formats a deadline with the largest unit that keeps it whole.
pub fn write_deadline(seconds: u32) -> String {
    let units = SPAN_UNITS.iter().rev();
    let whole = units.into_iter().find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit));
    whole.map_or(format!("{seconds}s"), |(name, unit)| format!("{}{name}", seconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn deadlines_read_as_documented() {
        for (text, seconds) in [
            ("90s", Some(90)),
            ("30m", Some(1800)),
            ("1h", Some(3600)),
            ("2 d", Some(172_800)),
            ("NONE", None),
        ] {
            assert_eq!(parse_deadline(text), Ok(seconds), "{text}");
        }
        for bad in ["", "0s", "5", "-1h", "1.5h", "h", "31d", "99999999999s", "1w", "1hour"] {
            let error = parse_deadline(bad).expect_err(bad).to_string();
            assert!(error.contains("is not a deadline from 1s to 30d"), "{error}");
        }
    }

    #[test]
    fn kinds_are_found_by_name() {
        assert_eq!("Reclaim".parse(), Ok(BackgroundKind::Reclaim));
        let error = "scrubbing".parse::<BackgroundKind>().unwrap_err().to_string();
        assert_eq!(error, "'scrubbing' is not a kind of background work; there are: reclaim, resync, scrub");
    }

    #[test]
    fn policy_error_names_accepted_values() {
        let sound = BackgroundPolicy::default();
        assert_eq!(sound.check(), Ok(()));
        for (policy, words) in [
            (BackgroundPolicy { weight: Weight(0), ..sound }, "weight 0 is not accepted; 1 to 10000 is"),
            (BackgroundPolicy { weight: Weight(10_001), ..sound }, "weight 10001 is not accepted"),
            (
                BackgroundPolicy { deadline_seconds: Some(0), ..sound },
                "a deadline of 0 seconds is not accepted",
            ),
            (BackgroundPolicy { deadline_seconds: Some(u32::MAX), ..sound }, "1 to 2592000 seconds"),
        ] {
            let error = policy.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn ceiling_bounds_floor_of_deadline() {
        let ceiling = Throughput { iops: Some(100), bytes_per_second: None };
        let policy = BackgroundPolicy { ceiling, ..BackgroundPolicy::default() };
        let floor = |floor_iops| policy.terms(floor_iops).floor.iops;
        assert_eq!([None, Some(7), Some(1000)].map(floor), [None, Some(7), Some(100)]);
        assert_eq!(policy.terms(Some(1000)).check(), Ok(()));
    }

    proptest! {
        #[test]
        fn formatted_deadlines_parse_back(seconds in 1..=BACKGROUND_DEADLINE_SECONDS_MAX) {
            prop_assert_eq!(parse_deadline(&write_deadline(seconds)), Ok(Some(seconds)));
        }
    }
}
