//! Alarms that come and go, and I/O profiles that Weir chooses, as events: differences between two looks. It knows no
//! clock: each look is given.

use std::collections::BTreeMap;

use uuid::Uuid;
use weir_api_types::{Alarm, EventCode, EventSeverity, ObjectReference, Severity, VolumeIoProfile};

use super::log::NewEvent;

/// What was there at the last look.
#[derive(Debug, Default)]
pub struct Watch {
    alarms: BTreeMap<Uuid, Alarm>,
    profiles: BTreeMap<Uuid, VolumeIoProfile>,
}

impl Watch {
    /// The events since the last look.
    pub fn look(&mut self, alarms: Vec<Alarm>) -> Vec<NewEvent> {
        let alarms: BTreeMap<Uuid, Alarm> = alarms.into_iter().map(|alarm| (alarm.id, alarm)).collect();
        let raised = alarms.values().filter(|alarm| !self.alarms.contains_key(&alarm.id));
        let cleared = self.alarms.values().filter(|alarm| !alarms.contains_key(&alarm.id));
        let events = raised.map(raised_event).chain(cleared.map(cleared_event)).collect();
        self.alarms = alarms;
        events
    }

    /// The events since the last look at volumes that leave the I/O profile to Weir, and at the profile that each has.
    pub fn look_at_profiles(
        &mut self,
        volumes: Vec<(Uuid, ObjectReference, VolumeIoProfile)>,
    ) -> Vec<NewEvent> {
        let is_other = |id: &Uuid, profile| self.profiles.get(id).is_some_and(|before| *before != profile);
        let changed = volumes.iter().filter(|(id, _, profile)| is_other(id, *profile));
        let events = changed.map(|(_, object, profile)| derived_event(object, *profile)).collect();
        self.profiles = volumes.into_iter().map(|(id, _, profile)| (id, profile)).collect();
        events
    }
}

fn derived_event(object: &ObjectReference, profile: VolumeIoProfile) -> NewEvent {
    let meaning = match profile {
        VolumeIoProfile::DbRemote => "'db_remote' now: flushes are answered while two replicas hold the data",
        _ => "'none' now: flushes are carried out before they are answered",
    };
    NewEvent {
        code: EventCode::IoProfileDerived,
        severity: EventSeverity::Information,
        object: object.clone(),
        message: format!("the I/O profile 'auto' amounts to {meaning}"),
        cause: "zones and racks of the drives, or replicas".to_owned(),
    }
}

fn raised_event(alarm: &Alarm) -> NewEvent {
    NewEvent {
        code: EventCode::AlarmRaised,
        severity: match alarm.severity {
            Severity::Critical => EventSeverity::Critical,
            Severity::Warning => EventSeverity::Warning,
        },
        object: alarm.object.clone(),
        message: alarm.message.clone(),
        cause: format!("alarm {}", alarm.id),
    }
}

fn cleared_event(alarm: &Alarm) -> NewEvent {
    NewEvent {
        code: EventCode::AlarmCleared,
        severity: EventSeverity::Information,
        object: alarm.object.clone(),
        message: format!("no longer: {}", alarm.message),
        cause: format!("alarm {}", alarm.id),
    }
}

#[cfg(test)]
mod tests {
    use weir_api_types::AlarmCode;

    use super::*;

    fn alarm(number: u128) -> Alarm {
        Alarm {
            id: Uuid::from_u128(number),
            code: AlarmCode::Space,
            severity: Severity::Warning,
            since: jiff::Timestamp::UNIX_EPOCH,
            object: ObjectReference::daemon(),
            extent: None,
            message: format!("fault {number}"),
            at_risk: String::new(),
            remedy: String::new(),
        }
    }

    #[test]
    fn profile_that_changes_is_an_event() {
        let mut watch = Watch::default();
        let mut look = |volumes: &[(u128, VolumeIoProfile)]| {
            let object = ObjectReference::daemon();
            let seen = volumes.iter().map(|(id, profile)| (Uuid::from_u128(*id), object.clone(), *profile));
            watch.look_at_profiles(seen.collect()).len()
        };
        use VolumeIoProfile::{DbRemote, None};
        assert_eq!(look(&[(1, None), (2, DbRemote)]), 0, "they are new");
        assert_eq!(look(&[(1, DbRemote), (2, DbRemote)]), 1);
        assert_eq!(look(&[(1, None)]), 1);
        assert_eq!(look(&[(1, None), (2, None)]), 0, "the second one was away");
    }

    #[test]
    fn differences_between_two_looks_are_events() {
        let mut watch = Watch::default();
        let codes = |events: Vec<NewEvent>| events.iter().map(|event| event.code).collect::<Vec<_>>();
        use EventCode::{AlarmCleared, AlarmRaised};
        assert_eq!(codes(watch.look(vec![alarm(1), alarm(2)])), [AlarmRaised, AlarmRaised]);
        assert_eq!(codes(watch.look(vec![alarm(1), alarm(2)])), []);
        assert_eq!(codes(watch.look(vec![alarm(1)])), [AlarmCleared]);
        assert_eq!(codes(watch.look(vec![alarm(1), alarm(2)])), [AlarmRaised]);
    }
}
