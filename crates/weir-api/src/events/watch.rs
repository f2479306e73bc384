//! What the daemon does by itself, as events: differences between two looks at alarms and background work.
//! It knows no clock: each look is given.

use std::collections::BTreeMap;

use uuid::Uuid;
use weir_api_types::{Alarm, EventCode, EventSeverity, ObjectKind, ObjectReference, Severity};

use super::log::NewEvent;

/// A piece of work, by which two looks recognise it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work {
    /// Identity of the object of the work.
    pub id: Uuid,
    /// Kind of the work, such as `resync`.
    pub kind: String,
    /// Drive of the work.
    pub drive: String,
}

/// What the last look saw.
#[derive(Debug, Default)]
pub struct Watch {
    alarms: BTreeMap<Uuid, Alarm>,
    /// Work in progress, with what it is in words.
    work: BTreeMap<Work, String>,
}

impl Watch {
    /// The events since the last look.
    pub fn look(&mut self, alarms: Vec<Alarm>, work: BTreeMap<Work, String>) -> Vec<NewEvent> {
        let alarms: BTreeMap<Uuid, Alarm> = alarms.into_iter().map(|alarm| (alarm.id, alarm)).collect();
        let raised = alarms.values().filter(|alarm| !self.alarms.contains_key(&alarm.id));
        let cleared = self.alarms.values().filter(|alarm| !alarms.contains_key(&alarm.id));
        let begun = work.iter().filter(|(work, _)| !self.work.contains_key(*work));
        let ended = self.work.iter().filter(|(one, _)| !work.contains_key(*one));
        let events = raised
            .map(raised_event)
            .chain(cleared.map(cleared_event))
            .chain(begun.map(|(work, what)| work_event(EventCode::OperationBegun, work, what)))
            .chain(ended.map(|(work, what)| work_event(EventCode::OperationEnded, work, what)))
            .collect();
        (self.alarms, self.work) = (alarms, work);
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

fn work_event(code: EventCode, work: &Work, what: &str) -> NewEvent {
    NewEvent {
        code,
        severity: EventSeverity::Information,
        object: ObjectReference {
            kind: ObjectKind::Drive,
            id: None,
            tenant: None,
            name: Some(work.drive.clone()),
        },
        message: format!("{} of {what}", work.kind),
        cause: format!("{} {}", work.kind, work.id),
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
    fn differences_between_two_looks_are_events() {
        let mut watch = Watch::default();
        let work = Work { id: Uuid::nil(), kind: "resync".to_owned(), drive: "d1".to_owned() };
        let with_work = BTreeMap::from([(work, "volume v".to_owned())]);
        let codes = |events: Vec<NewEvent>| events.iter().map(|event| event.code).collect::<Vec<_>>();
        use EventCode::{AlarmCleared, AlarmRaised, OperationBegun, OperationEnded};
        let events = watch.look(vec![alarm(1), alarm(2)], with_work.clone());
        assert_eq!(codes(events), [AlarmRaised, AlarmRaised, OperationBegun]);
        assert_eq!(codes(watch.look(vec![alarm(1), alarm(2)], with_work)), []);
        assert_eq!(codes(watch.look(vec![alarm(1)], BTreeMap::new())), [AlarmCleared, OperationEnded]);
        assert_eq!(codes(watch.look(vec![alarm(1), alarm(2)], BTreeMap::new())), [AlarmRaised]);
    }
}
