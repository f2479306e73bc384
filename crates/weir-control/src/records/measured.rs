//! Class of a drive: the result of its measurements and of an operator's choice.
//!
//! The module only decides, from the drive's record. The first measurement sets the class. A later
//! measurement with another class keeps the class and raises an alarm, because volumes were placed by the old
//! class. The same holds for a class that an operator chose, unless the measured class was known at the
//! choice.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_types::{Class, ClassThresholds, Measurement};

use crate::records::DriveRecord;

/// Measurements and choice of class of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// Latest measurement that was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<DatedMeasurement>,
    /// Failure of a later measurement, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<MeasurementFailure>,
    /// The operator's choice of class, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<ClassChoice>,
}

/// A measurement and the time at which it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatedMeasurement {
    /// Time at which the measurement ended.
    pub at: Timestamp,
    /// Result of the measurement.
    #[serde(flatten)]
    pub found: Measurement,
}

/// A measurement that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurementFailure {
    /// Time at which the measurement ended.
    pub at: Timestamp,
    /// Reason of the failure, in words.
    pub reason: String,
}

/// A class that an operator chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassChoice {
    /// Measured class of the drive at the time of the choice, or the first one measured afterwards. This
    /// class raises no alarm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Class>,
}

impl Measured {
    /// True if nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Measured::default()
    }
}

impl DriveRecord {
    /// Latest measurement of the drive.
    pub fn measurement(&self) -> Option<&Measurement> {
        self.measured.latest.as_ref().map(|latest| &latest.found)
    }

    /// Class by the latest measurement, with the reason.
    fn measured_class(&self, thresholds: &ClassThresholds) -> Option<(Class, String)> {
        self.measurement().map(|found| thresholds.classify(found))
    }

    /// Returns the record after a measurement.
    pub(crate) fn with_measurement(
        mut self,
        found: Result<Measurement, String>,
        at: Timestamp,
        thresholds: &ClassThresholds,
    ) -> DriveRecord {
        let found = match found {
            Ok(found) => found,
            Err(reason) => {
                self.measured.failure = Some(MeasurementFailure { at, reason });
                return self;
            }
        };
        let (class, _) = thresholds.classify(&found);
        self.class.get_or_insert(class);
        if let Some(choice) = &mut self.measured.choice {
            choice.accepted.get_or_insert(class);
        }
        (self.measured.latest, self.measured.failure) = (Some(DatedMeasurement { at, found }), None);
        self
    }

    /// Returns the record with a class that an operator chose.
    pub(crate) fn with_chosen_class(mut self, class: Class, thresholds: &ClassThresholds) -> DriveRecord {
        let accepted = self.measured_class(thresholds).map(|(class, _)| class);
        (self.class, self.measured.choice) = (Some(class), Some(ClassChoice { accepted }));
        self
    }

    /// Returns the record with the class of its latest measurement; `None` if there is no measurement.
    pub(crate) fn with_measured_class(mut self, thresholds: &ClassThresholds) -> Option<DriveRecord> {
        let (class, _) = self.measured_class(thresholds)?;
        (self.class, self.measured.choice) = (Some(class), None);
        Some(self)
    }

    /// Reason of the drive's class, or of its absence, in words.
    pub fn class_reason(&self, thresholds: &ClassThresholds) -> String {
        let failure = self.measured.failure.as_ref();
        let failure =
            failure.map(|failure| format!("the measurement of {} failed: {}", failure.at, failure.reason));
        let remedy = || format!("'weir drive measure {}'", self.name);
        let measured = self.measured_class(thresholds);
        let why = match (self.class, measured, self.measured.choice) {
            (Some(_), Some((_, found)), Some(_)) => format!("chosen by hand; measured as {found}"),
            (Some(_), None, Some(_)) => "chosen by hand; not measured".to_owned(),
            (Some(class), Some((now, found)), None) if now == class => found,
            (Some(class), Some((_, found)), None) => {
                format!("{class} by an earlier measurement; now {found}")
            }
            (Some(_), None, None) => "not measured".to_owned(),
            (None, _, _) if failure.is_some() => {
                return format!("{}; {} tries again", failure.unwrap_or_default(), remedy());
            }
            (None, _, _) => return format!("not measured yet; {} does it", remedy()),
        };
        failure.map_or(why.clone(), |failure| format!("{why}; {failure}"))
    }

    /// Message of the alarm about the drive's class, if there is one.
    pub fn class_alarm(&self, thresholds: &ClassThresholds) -> Option<String> {
        let (recorded, (now, found)) = (self.class?, self.measured_class(thresholds)?);
        let accepted = self.measured.choice.and_then(|choice| choice.accepted);
        if now == recorded || Some(now) == accepted {
            return None;
        }
        let name = &self.name;
        Some(format!(
            "drive '{name}' is recorded as {recorded}, and its latest measurement says {found}; it stays {recorded} \
             until 'weir drive modify {name} --class {now}', and a measurement that fits again ends this alarm"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::records::PoolSettings;
    use super::*;
    use weir_types::{DriveId, DriveRole, MeasuredDirection, Name};

    const HIGH: u64 = 9000;
    const MEDIUM: u64 = 900;
    const LOW: u64 = 90;

    fn thresholds() -> ClassThresholds {
        ClassThresholds::default()
    }

    fn new() -> DriveRecord {
        DriveRecord {
            is_draining: false,
            id: DriveId::DEFAULT,
            name: Name::new("d1").unwrap(),
            path: "/srv/d1".into(),
            device: None,
            emulation: None,
            role: DriveRole::default(),
            class: None,
            measured: Measured::default(),
            pool: PoolSettings::default(),
            zone: None,
            rack: None,
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// Returns the record after a measurement of so many operations per second.
    fn measured(record: DriveRecord, iops: u64) -> DriveRecord {
        let direction = MeasuredDirection { iops, ..MeasuredDirection::default() };
        let found =
            Measurement { read: direction, write: direction, is_direct: true, ..Measurement::default() };
        record.with_measurement(Ok(found), Timestamp::UNIX_EPOCH, &thresholds())
    }

    fn seen(record: &DriveRecord) -> (Option<Class>, bool) {
        (record.class, record.class_alarm(&thresholds()).is_some())
    }

    #[test]
    fn first_measurement_sets_the_class_and_a_different_one_is_an_alarm() {
        let record = measured(new(), HIGH);
        assert_eq!(seen(&record), (Some(Class::High), false));
        assert!(record.class_reason(&thresholds()).starts_with("high: 9000 random reads"));
        let slower = measured(record, MEDIUM);
        assert_eq!(seen(&slower), (Some(Class::High), true));
        let alarm = slower.class_alarm(&thresholds()).unwrap();
        for words in
            ["drive 'd1' is recorded as high", "says medium and not high: 900 random reads", "--class medium"]
        {
            assert!(alarm.contains(words), "{alarm}");
        }
        let reason = slower.class_reason(&thresholds());
        assert!(
            reason.starts_with("high by an earlier measurement; now medium and not high: 900"),
            "{reason}"
        );
        assert_eq!(seen(&measured(slower.clone(), HIGH)), (Some(Class::High), false));
        let accepted = slower.clone().with_measured_class(&thresholds()).unwrap();
        assert_eq!(seen(&accepted), (Some(Class::Medium), false));
        assert_eq!(
            seen(&slower.with_chosen_class(Class::Medium, &thresholds())),
            (Some(Class::Medium), false)
        );
    }

    #[test]
    fn chosen_class_stays_and_the_class_known_then_is_no_alarm() {
        let chosen = new().with_chosen_class(Class::High, &thresholds());
        assert_eq!(chosen.class_reason(&thresholds()), "chosen by hand; not measured");
        let chosen = measured(chosen, MEDIUM);
        assert_eq!(seen(&chosen), (Some(Class::High), false), "the first measurement was to be expected");
        assert!(
            chosen
                .class_reason(&thresholds())
                .starts_with("chosen by hand; measured as medium and not high: 900")
        );
        let worse = measured(chosen.clone(), LOW);
        assert_eq!(seen(&worse), (Some(Class::High), true));
        assert_eq!(seen(&worse.with_chosen_class(Class::High, &thresholds())), (Some(Class::High), false));
        assert_eq!(seen(&measured(chosen.clone(), MEDIUM)), (Some(Class::High), false));
        let measured_again = chosen.with_measured_class(&thresholds()).unwrap();
        assert_eq!(
            (seen(&measured_again), measured_again.measured.choice),
            ((Some(Class::Medium), false), None)
        );
        assert!(new().with_measured_class(&thresholds()).is_none());
    }

    #[test]
    fn failed_measurement_keeps_the_class_and_shows_the_reason() {
        let fails = |record: DriveRecord| {
            record.with_measurement(Err("no room".to_owned()), Timestamp::UNIX_EPOCH, &thresholds())
        };
        assert_eq!(new().class_reason(&thresholds()), "not measured yet; 'weir drive measure d1' does it");
        let failed = fails(new());
        assert_eq!(seen(&failed), (None, false));
        let reason = failed.class_reason(&thresholds());
        assert!(reason.contains("failed: no room; 'weir drive measure d1' tries again"), "{reason}");
        assert_eq!(seen(&measured(failed, HIGH)), (Some(Class::High), false));
        let later = fails(measured(new(), HIGH));
        assert_eq!(seen(&later), (Some(Class::High), false));
        let reason = later.class_reason(&thresholds());
        assert!(reason.starts_with("high: ") && reason.ends_with("failed: no room"), "{reason}");
        assert!(measured(later, HIGH).measured.failure.is_none());
    }

    #[test]
    fn measurement_survives_serialisation() {
        let record = measured(new(), HIGH).with_chosen_class(Class::Low, &thresholds());
        let value = serde_json::to_value(&record).unwrap();
        assert_eq!(serde_json::from_value::<DriveRecord>(value).unwrap(), record);
        let value = serde_json::to_value(new()).unwrap();
        assert!(value.get("measured").is_none());
        assert_eq!(serde_json::from_value::<DriveRecord>(value).unwrap(), new());
    }
}
