//! Alarms as an operator sees them: one for each object and cause, with severity, start time, risk and
//! remedy.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use weir_types::{DriveId, VolumeId};

use crate::alarm_list::AlarmList;
use crate::alarms::{ActiveAlarm, AlarmSource};

/// Severity of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Data is lost or cannot be reached.
    Critical,
    /// All data is served, but slower or less safely than it should be.
    Warning,
}

/// An alarm with its severity, start time, risk and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownAlarm {
    /// The first of the alarms that have the same object and cause.
    pub alarm: ActiveAlarm,
    /// Severity of the alarm.
    pub severity: Severity,
    /// Time at which the alarm was first seen.
    pub since: Timestamp,
    /// Data or service at risk while the alarm is active.
    pub at_risk: &'static str,
    /// Action that removes the cause.
    pub remedy: &'static str,
}

/// Object and cause that alarms have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cause {
    source: AlarmSource,
    volume: Option<VolumeId>,
    drive: Option<DriveId>,
    /// Text that distinguishes the cause from others with the same source and object.
    words: String,
}

/// Start times of the active alarms.
#[derive(Default)]
pub(crate) struct Since(Mutex<BTreeMap<Cause, Timestamp>>);

impl Cause {
    fn of(alarm: &ActiveAlarm) -> Cause {
        // One extent alarm stands for thousands of extents. Other messages are compared without digits, which
        // change while an alarm is active.
        let words = match alarm.extent {
            Some(_) => String::new(),
            None => alarm.message.chars().filter(|letter| !letter.is_ascii_digit()).collect(),
        };
        Cause { source: alarm.source, volume: alarm.volume, drive: alarm.drive, words }
    }
}

/// Severity, risk and remedy of alarms from a source.
fn advice(source: AlarmSource) -> (Severity, &'static str, &'static str) {
    use Severity::{Critical, Warning};
    match source {
        AlarmSource::Control => (
            Critical,
            "what the message names is not served, or not kept up to date",
            "remove the cause that the message names",
        ),
        AlarmSource::Catalogue => (
            Critical,
            "nothing that is served; but no change is accepted, and what fails meanwhile may not be noted",
            "do what the message says",
        ),
        AlarmSource::Drive => (
            Critical,
            "volumes with their only replica there answer EIO; others have fewer replicas",
            "bring the drive back: it is used again without a restart",
        ),
        AlarmSource::LostWrites => (
            Critical,
            "writes that were acknowledged; volumes with their only replica there answer EIO",
            "examine the drive, then decide as the message says",
        ),
        AlarmSource::ExtentCheck | AlarmSource::DataPlane => (
            Critical,
            "the data in these extents, unless the volume has another replica",
            "examine the drive; put the files back, or restore a snapshot or a backup",
        ),
        AlarmSource::Scrub => {
            (Critical, "the blocks that the message names", "restore them from a snapshot or a backup")
        }
        AlarmSource::Replicas => (
            Warning,
            "the volume's data, if another drive fails",
            "bring missing drives back, or add others: replicas are brought up to date by themselves",
        ),
        AlarmSource::CoalescedFlushes => (
            Warning,
            "the speed of flushes, which wait for the drives as with the I/O profile 'none'",
            "bring missing drives back; give the drives of the replicas different zones or racks, or allow a shared \
             one; with write journals, choose another template or profile",
        ),
        AlarmSource::Ledger => {
            (Warning, "floors, which cannot all be kept", "lower floors, or add a drive to the pool")
        }
        AlarmSource::Class => {
            (Warning, "the volume's speed", "add a drive of the class, or ask for another class")
        }
        AlarmSource::Space => (
            Warning,
            "writes that need new space fail once there is none",
            "delete or discard data, or add a drive to the pool",
        ),
        AlarmSource::Journal => (
            Warning,
            "the speed of volumes with a write journal",
            "if a journal is full, move its volume to faster drives, or make larger journals; if a journal drive is slow, \
             add a faster one, then remove the slow one",
        ),
        AlarmSource::Measurement => {
            (Warning, "the speed of volumes on the drive", "measure the drive again, or set its class")
        }
    }
}

/// One alarm for each object and cause, in the order of the first of each.
fn folded(alarms: Vec<ActiveAlarm>) -> Vec<(Cause, ActiveAlarm)> {
    let mut groups: Vec<(Cause, ActiveAlarm, u64)> = Vec::new();
    let mut places: BTreeMap<Cause, usize> = BTreeMap::new();
    for alarm in alarms {
        let cause = Cause::of(&alarm);
        match places.get(&cause) {
            Some(&place) => groups[place].2 += 1,
            None => {
                places.insert(cause.clone(), groups.len());
                groups.push((cause, alarm, 0));
            }
        }
    }
    let group = |(cause, mut alarm, further): (Cause, ActiveAlarm, u64)| {
        if further > 0 {
            let more = if further == 1 { "extent" } else { "extents" };
            alarm.message.push_str(&format!("; {further} further {more} too"));
        }
        (cause, alarm)
    };
    groups.into_iter().map(group).collect()
}

impl AlarmList {
    /// All active faults, one for each object and cause.
    pub fn shown_alarms(&self) -> Vec<ShownAlarm> {
        let (now, alarms) = (Timestamp::now(), folded(self.alarms()));
        let mut since = self.since.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.retain(|cause, _| alarms.iter().any(|(other, _)| other == cause));
        let shown = |(cause, alarm): (Cause, ActiveAlarm)| {
            let (severity, at_risk, remedy) = advice(alarm.source);
            ShownAlarm { severity, since: *since.entry(cause).or_insert(now), at_risk, remedy, alarm }
        };
        let mut shown: Vec<ShownAlarm> = alarms.into_iter().map(shown).collect();
        shown.sort_by_key(|alarm| alarm.severity);
        shown
    }
}

#[cfg(test)]
mod tests {
    use weir_types::ExtentIndex;

    use super::*;

    fn alarm(source: AlarmSource, extent: Option<ExtentIndex>, message: &str) -> ActiveAlarm {
        let volume = Some(VolumeId(uuid::Uuid::nil()));
        ActiveAlarm { source, volume, drive: None, extent, message: message.to_owned() }
    }

    #[test]
    fn one_alarm_for_each_object_and_cause() {
        let of_extents = ExtentIndex::first(2447)
            .map(|extent| alarm(AlarmSource::DataPlane, Some(extent), &format!("{extent} failed")));
        let of_volume = ["3 of 6 replicas are missing", "2 of 6 replicas are missing", "no drive is free"];
        let of_volume = of_volume.iter().map(|message| alarm(AlarmSource::Replicas, None, message));
        let folded = folded(of_extents.chain(of_volume).collect());
        let messages: Vec<&str> = folded.iter().map(|(_, alarm)| alarm.message.as_str()).collect();
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert_eq!(messages[0], "0 failed; 2446 further extents too");
        assert!(
            messages[1].starts_with("3 of 6 replicas") && messages[2] == "no drive is free",
            "{messages:?}"
        );
    }
}
