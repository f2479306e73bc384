//! The operations that the API shows: those in progress, and those that ended lately.
//!
//! It is told what happens and when. It knows no clock, no control and no request.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;
use weir_api_types::{Operation, OperationState};
use weir_types::control_bounds::{OPERATION_SECONDS, OPERATIONS_ENDED_MAX};

/// What a look at the daemon's work found new.
#[derive(Debug, PartialEq)]
pub enum Change {
    /// An operation began.
    Begun(Operation),
    /// An operation ended.
    Ended(Operation),
}

/// Operations in progress, and ended ones, which are bounded in number and age.
#[derive(Debug)]
pub struct Registry<K> {
    /// Requests in progress.
    requests: BTreeMap<Uuid, Operation>,
    /// The daemon's own work in progress, with the key of each.
    work: BTreeMap<Uuid, (K, Operation)>,
    /// Ended operations, the oldest end first. At most one has each identity.
    ended: VecDeque<Operation>,
}

impl<K> Default for Registry<K> {
    fn default() -> Registry<K> {
        Registry { requests: BTreeMap::new(), work: BTreeMap::new(), ended: VecDeque::new() }
    }
}

impl<K: Copy> Registry<K> {
    /// A request is in progress.
    pub fn begin_request(&mut self, operation: Operation) {
        self.requests.insert(operation.id, operation);
    }

    /// A request needs no operation: its client got the answer.
    pub fn forget_request(&mut self, id: Uuid) {
        self.requests.remove(&id);
    }

    /// A request has ended, in the way that `end` records.
    pub fn end_request(&mut self, id: Uuid, now: Timestamp, end: impl FnOnce(&mut Operation)) {
        let Some(mut operation) = self.requests.remove(&id) else { return };
        end(&mut operation);
        self.keep(operation, now);
    }

    /// Takes over what the daemon is doing now. Work that is no longer there has ended, as `end_of` says.
    ///
    /// Uncertain work, of which nobody knows yet whether there is anything to do, begins nothing and ends
    /// nothing.
    pub fn look(
        &mut self,
        seen: Vec<(K, Operation, bool)>,
        now: Timestamp,
        end_of: impl Fn(K) -> OperationState,
    ) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.work);
        let mut changes = Vec::new();
        for (key, mut operation, is_certain) in seen {
            match before.remove(&operation.id) {
                Some((_, known)) => operation.begun_at = known.begun_at,
                None if !is_certain => continue,
                None => changes.push(Change::Begun(operation.clone())),
            }
            self.work.insert(operation.id, (key, operation));
        }
        for (key, mut operation) in before.into_values() {
            operation.state = end_of(key);
            changes.push(Change::Ended(self.keep(operation, now)));
        }
        changes
    }

    /// Records work that was done at once.
    pub fn was_done(&mut self, operation: Operation, now: Timestamp) -> Operation {
        self.work.remove(&operation.id);
        self.keep(Operation { state: OperationState::Succeeded, ..operation }, now)
    }

    fn keep(&mut self, operation: Operation, now: Timestamp) -> Operation {
        let operation = Operation {
            ended_at: Some(now),
            can_be_cancelled: false,
            reason: operation.reason.filter(|_| operation.state == OperationState::Failed),
            ..operation
        };
        self.ended.retain(|other| other.id != operation.id);
        self.ended.push_back(operation.clone());
        self.drop_old(now);
        operation
    }

    fn drop_old(&mut self, now: Timestamp) {
        let oldest = now - SignedDuration::from_secs(OPERATION_SECONDS);
        let is_old = |operation: &Operation| operation.ended_at.is_some_and(|ended| ended < oldest);
        while self.ended.len() > OPERATIONS_ENDED_MAX || self.ended.front().is_some_and(is_old) {
            self.ended.pop_front();
        }
    }

    /// The operation with an identity: the one in progress, or else the last one that ended.
    pub fn get(&self, id: Uuid) -> Option<&Operation> {
        self.requests
            .get(&id)
            .or_else(|| self.work.get(&id).map(|(_, operation)| operation))
            .or_else(|| self.ended.iter().find(|operation| operation.id == id))
    }

    /// The key of work in progress.
    pub fn key(&self, id: Uuid) -> Option<K> {
        self.work.get(&id).map(|(key, _)| *key)
    }

    /// All operations.
    pub fn all(&self) -> impl Iterator<Item = &Operation> {
        self.ended
            .iter()
            .filter(|ended| !self.work.contains_key(&ended.id))
            .chain(self.requests.values())
            .chain(self.work.values().map(|(_, operation)| operation))
    }
}

#[cfg(test)]
mod tests {
    use weir_api_types::{ObjectReference, OperationKind};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn operation(number: u128, begun: i64) -> Operation {
        Operation {
            id: Uuid::from_u128(number),
            kind: OperationKind::Drain,
            object: ObjectReference::daemon(),
            message: String::new(),
            state: OperationState::Running,
            reason: Some("a reason".to_owned()),
            progress: None,
            can_be_cancelled: true,
            begun_at: at(begun),
            ended_at: None,
            request: None,
            result: None,
            problem: None,
        }
    }

    fn seen(numbers: &[u128], now: i64) -> Vec<(u128, Operation, bool)> {
        numbers.iter().map(|number| (*number, operation(*number, now), true)).collect()
    }

    fn states(registry: &Registry<u128>) -> Vec<(u128, OperationState)> {
        let mut all: Vec<_> = registry.all().map(|one| (one.id.as_u128(), one.state)).collect();
        all.sort();
        all
    }

    #[test]
    fn work_that_is_no_longer_there_has_ended() {
        use OperationState::{Cancelled, Running, Succeeded};
        let mut registry = Registry::default();
        let end_of = |key: u128| if key == 1 { Succeeded } else { Cancelled };
        assert_eq!(registry.look(seen(&[1, 2], 5), at(5), end_of).len(), 2);
        assert_eq!(registry.look(seen(&[1, 2], 6), at(6), end_of), []);
        assert_eq!(registry.get(Uuid::from_u128(1)).unwrap().begun_at, at(5), "the first look counts");
        assert_eq!(registry.look(seen(&[], 7), at(7), end_of).len(), 2);
        assert_eq!(states(&registry), [(1, Succeeded), (2, Cancelled)]);
        let ended = registry.get(Uuid::from_u128(1)).unwrap();
        assert_eq!((ended.ended_at, ended.can_be_cancelled, &ended.reason), (Some(at(7)), false, &None));
        registry.look(seen(&[1], 8), at(8), end_of);
        assert_eq!(states(&registry), [(1, Running), (2, Cancelled)], "work of the same kind began again");
    }

    #[test]
    fn uncertain_work_begins_nothing_and_ends_nothing() {
        let mut registry = Registry::default();
        let end_of = |_| OperationState::Succeeded;
        let uncertain = |now| vec![(1, operation(1, now), false)];
        assert_eq!(registry.look(uncertain(1), at(1), end_of), []);
        assert_eq!(registry.all().count(), 0);
        registry.look(seen(&[1], 2), at(2), end_of);
        assert_eq!(registry.look(uncertain(3), at(3), end_of), []);
        assert_eq!(states(&registry), [(1, OperationState::Running)]);
    }

    #[test]
    fn answered_request_is_forgotten_and_another_is_kept() {
        let mut registry = Registry::<u128>::default();
        registry.begin_request(operation(1, 0));
        registry.begin_request(operation(2, 0));
        registry.forget_request(Uuid::from_u128(1));
        registry.end_request(Uuid::from_u128(2), at(3), |one| one.state = OperationState::Failed);
        assert_eq!(states(&registry), [(2, OperationState::Failed)]);
        assert!(registry.get(Uuid::from_u128(2)).unwrap().reason.is_some());
    }

    #[test]
    fn ended_operations_are_bounded_in_number_and_age() {
        let mut registry = Registry::<u128>::default();
        for number in 0..OPERATIONS_ENDED_MAX as u128 + 5 {
            registry.was_done(operation(number, 0), at(0));
        }
        assert_eq!(registry.all().count(), OPERATIONS_ENDED_MAX);
        registry.was_done(operation(1 << 64, 0), at(OPERATION_SECONDS + 1));
        assert_eq!(registry.all().count(), 1);
    }
}
