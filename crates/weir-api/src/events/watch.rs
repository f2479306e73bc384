//! Alarms that come and go, as events: differences between two looks. It knows no clock: each look is given.

use std::collections::BTreeMap;

use uuid::Uuid;
use weir_api_types::{Alarm, EventCode, EventSeverity, Severity};

use super::log::NewEvent;

/// The alarms of the last look.
#[derive(Debug, Default)]
pub struct Watch {
    alarms: BTreeMap<Uuid, Alarm>,
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
    use weir_api_types::{AlarmCode, ObjectReference};

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
