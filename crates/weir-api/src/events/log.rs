//! The log of events: the newest ones, bounded in number and age. It knows no clock and no client.

use std::collections::VecDeque;

use jiff::Timestamp;
use weir_api_types::{Event, EventCode, EventSeverity, ObjectReference};
use weir_types::control_bounds::{EVENT_SECONDS, EVENTS_MAX};

/// An event before it has a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub code: EventCode,
    pub severity: EventSeverity,
    pub object: ObjectReference,
    pub message: String,
    pub cause: String,
}

/// The newest events.
#[derive(Debug)]
pub struct EventLog {
    events: VecDeque<Event>,
    /// Number of the newest event, or the number before the first one.
    newest: u64,
}

/// Events after a sequence number.
#[derive(Debug, PartialEq, Eq)]
pub struct Newer {
    pub events: Vec<Event>,
    /// True if events in between are no longer kept.
    pub has_gap: bool,
}

impl EventLog {
    /// An empty log of a daemon that started at a time. Its numbers are larger than those of an earlier start,
    /// because a daemon has fewer events than microseconds.
    pub fn begun_at(now: Timestamp) -> EventLog {
        EventLog { events: VecDeque::new(), newest: u64::try_from(now.as_microsecond()).unwrap_or(0) }
    }

    /// Number of the newest event.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Records an event.
    pub fn record(&mut self, now: Timestamp, new: NewEvent) {
        self.newest += 1;
        let NewEvent { code, severity, object, message, cause } = new;
        let sequence = self.newest;
        self.events.push_back(Event { sequence, occurred_at: now, code, severity, object, message, cause });
        let is_old =
            |event: &Event| now.as_second().saturating_sub(event.occurred_at.as_second()) >= EVENT_SECONDS;
        while self.events.len() > EVENTS_MAX || self.events.front().is_some_and(is_old) {
            self.events.pop_front();
        }
    }

    /// At most `count` events after a sequence number that are at least so severe.
    pub fn after(&self, sequence: u64, severity: EventSeverity, count: usize) -> Newer {
        let begin = self.events.partition_point(|event| event.sequence <= sequence);
        let wanted = self.events.range(begin..).filter(|event| event.severity <= severity);
        let oldest = self.events.front().map_or(self.newest + 1, |event| event.sequence);
        Newer { events: wanted.take(count).cloned().collect(), has_gap: sequence + 1 < oldest }
    }

    /// All events, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(severity: EventSeverity) -> NewEvent {
        NewEvent {
            code: EventCode::Changed,
            severity,
            object: ObjectReference::daemon(),
            message: String::new(),
            cause: String::new(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn numbers_grow_through_restarts() {
        let mut log = EventLog::begun_at(at(100));
        (0..1000).for_each(|_| log.record(at(100), event(EventSeverity::Information)));
        assert!(EventLog::begun_at(at(101)).newest() > log.newest());
    }

    #[test]
    fn events_after_a_number_are_found_and_gaps_are_told() {
        let mut log = EventLog::begun_at(at(0));
        for number in 0..10 {
            let is_warning = number % 2 == 1;
            let severity = if is_warning { EventSeverity::Warning } else { EventSeverity::Information };
            log.record(at(number), event(severity));
        }
        let numbers = |newer: Newer| newer.events.iter().map(|event| event.sequence).collect::<Vec<_>>();
        assert_eq!(numbers(log.after(7, EventSeverity::Information, 9)), [8, 9, 10]);
        assert_eq!(numbers(log.after(0, EventSeverity::Information, 2)), [1, 2]);
        assert_eq!(numbers(log.after(0, EventSeverity::Warning, 2)), [2, 4]);
        assert_eq!(numbers(log.after(10, EventSeverity::Information, 9)), [0; 0]);
        assert!(!log.after(0, EventSeverity::Information, 1).has_gap);
        log.record(at(EVENT_SECONDS + 4), event(EventSeverity::Information));
        assert!(log.after(4, EventSeverity::Information, 1).has_gap, "events 1 to 5 are too old");
        assert!(!log.after(5, EventSeverity::Information, 1).has_gap);
    }

    #[test]
    fn number_of_events_is_bounded() {
        let mut log = EventLog::begun_at(at(0));
        (0..EVENTS_MAX + 5).for_each(|_| log.record(at(0), event(EventSeverity::Warning)));
        assert_eq!((log.all().count(), log.all().next().unwrap().sequence), (EVENTS_MAX, 6));
    }
}
