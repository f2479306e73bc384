//! The operations that the API shows: those in progress, and those that ended lately.
//!
//! It is told what happens and when. It knows no clock, no control and no request.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;
use weir_api_types::{Operation, OperationState};
use weir_types::control_bounds::{OPERATION_RESULTS_BYTES_MAX, OPERATION_SECONDS, OPERATIONS_ENDED_MAX};

/// How an operation ended: its state, and the reason if it failed.
pub type End = (OperationState, Option<String>);

/// An ended operation, and the size of its result.
#[derive(Debug)]
struct Ended {
    operation: Operation,
    result_bytes: usize,
}

/// Operations in progress, and ended ones, which are bounded in number, age and size.
#[derive(Debug)]
pub struct Registry<K> {
    /// Requests in progress.
    requests: BTreeMap<Uuid, Operation>,
    /// The daemon's own work in progress, with the key of each.
    work: BTreeMap<Uuid, (K, Operation)>,
    /// Ended operations, the oldest end first. At most one has each identity.
    ended: VecDeque<Ended>,
    /// Size of all their results.
    results_bytes: usize,
}

impl<K> Default for Registry<K> {
    fn default() -> Registry<K> {
        Registry {
            requests: BTreeMap::new(),
            work: BTreeMap::new(),
            ended: VecDeque::new(),
            results_bytes: 0,
        }
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

    /// A request has ended, in the way that `end` records. Its result has a size. False if the request was
    /// not in progress.
    pub fn end_request(
        &mut self,
        id: Uuid,
        now: Timestamp,
        result_bytes: usize,
        end: impl FnOnce(&mut Operation),
    ) -> bool {
        let Some(mut operation) = self.requests.remove(&id) else { return false };
        end(&mut operation);
        self.keep(operation, result_bytes, now);
        true
    }

    /// A client began work after a time. Returns the operation if it is new: a look may have seen it begin, or
    /// even end, since then.
    pub fn begin_work(&mut self, key: K, since: Timestamp, operation: Operation) -> Option<Operation> {
        let is_it = |ended: &Ended| ended.operation.id == operation.id;
        let has_ended = |ended: &Ended| is_it(ended) && ended.operation.ended_at >= Some(since);
        if self.work.contains_key(&operation.id) || self.ended.iter().any(has_ended) {
            return None;
        }
        self.work.insert(operation.id, (key, operation.clone()));
        Some(operation)
    }

    /// Takes over what the daemon is doing now. Work that is no longer there has ended, as `end_of` says.
    /// Returns the operations that began or ended.
    ///
    /// Uncertain work, of which nobody knows yet whether there is anything to do, begins nothing and ends
    /// nothing.
    pub fn look(
        &mut self,
        seen: Vec<(K, Operation, bool)>,
        now: Timestamp,
        end_of: impl Fn(K) -> End,
    ) -> Vec<Operation> {
        let mut before = std::mem::take(&mut self.work);
        let mut changed = Vec::new();
        for (key, mut operation, is_certain) in seen {
            match before.remove(&operation.id) {
                Some((_, known)) => operation.begun_at = known.begun_at,
                None if !is_certain => continue,
                None => changed.push(operation.clone()),
            }
            self.work.insert(operation.id, (key, operation));
        }
        for (key, mut operation) in before.into_values() {
            (operation.state, operation.reason) = end_of(key);
            changed.push(self.keep(operation, 0, now));
        }
        self.drop_old(now);
        changed
    }

    fn keep(&mut self, operation: Operation, result_bytes: usize, now: Timestamp) -> Operation {
        let operation = Operation { ended_at: Some(now), can_be_cancelled: false, ..operation };
        if let Some(earlier) = self.ended.iter().position(|ended| ended.operation.id == operation.id) {
            self.drop_at(earlier);
        }
        self.ended.push_back(Ended { operation: operation.clone(), result_bytes });
        self.results_bytes += result_bytes;
        self.drop_old(now);
        operation
    }

    fn drop_old(&mut self, now: Timestamp) {
        let oldest = now - SignedDuration::from_secs(OPERATION_SECONDS);
        let is_old = |ended: &Ended| ended.operation.ended_at.is_some_and(|ended_at| ended_at < oldest);
        while self.ended.len() > OPERATIONS_ENDED_MAX
            || self.results_bytes > OPERATION_RESULTS_BYTES_MAX
            || self.ended.front().is_some_and(is_old)
        {
            self.drop_at(0);
        }
    }

    fn drop_at(&mut self, index: usize) {
        let dropped = self.ended.remove(index).expect("only ended operations are dropped");
        self.results_bytes -= dropped.result_bytes;
    }

    /// The operation with an identity: the one in progress, or else the last one that ended.
    pub fn get(&self, id: Uuid) -> Option<&Operation> {
        self.requests
            .get(&id)
            .or_else(|| self.work.get(&id).map(|(_, operation)| operation))
            .or_else(|| self.ended.iter().map(|ended| &ended.operation).find(|operation| operation.id == id))
    }

    /// The key of work in progress.
    pub fn key(&self, id: Uuid) -> Option<K> {
        self.work.get(&id).map(|(key, _)| *key)
    }

    /// All operations.
    pub fn all(&self) -> impl Iterator<Item = &Operation> {
        let ended = self.ended.iter().map(|ended| &ended.operation);
        ended
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
        let end_of = |key: u128| (if key == 1 { Succeeded } else { Cancelled }, None);
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
        let end_of = |_| (OperationState::Succeeded, None);
        let uncertain = |now| vec![(1, operation(1, now), false)];
        assert_eq!(registry.look(uncertain(1), at(1), end_of), []);
        assert_eq!(registry.all().count(), 0);
        registry.look(seen(&[1], 2), at(2), end_of);
        assert_eq!(registry.look(uncertain(3), at(3), end_of), []);
        assert_eq!(states(&registry), [(1, OperationState::Running)]);
    }

    #[test]
    fn work_that_a_client_began_and_that_ended_before_a_look_began_and_ended() {
        let mut registry = Registry::default();
        let begun = registry.begin_work(1, at(4), operation(1, 4)).expect("it is new");
        let again = registry.begin_work(1, at(5), operation(1, 5));
        assert_eq!((begun.state, again), (OperationState::Running, None));
        let failed = || (OperationState::Failed, Some("the drive is slow".to_owned()));
        let changed = registry.look(Vec::new(), at(5), |_| failed());
        let [ended] = &changed[..] else { panic!("{changed:?}") };
        assert_eq!((ended.state, ended.reason.clone()), failed());
        assert_eq!((ended.begun_at, ended.ended_at), (at(4), Some(at(5))));
        assert_eq!(registry.begin_work(1, at(5), operation(1, 5)), None, "a look saw its end since");
        assert!(registry.begin_work(1, at(6), operation(1, 6)).is_some(), "it begins again");
    }

    #[test]
    fn answered_request_is_forgotten_and_another_is_kept() {
        let mut registry = Registry::<u128>::default();
        registry.begin_request(operation(1, 0));
        registry.begin_request(operation(2, 0));
        registry.forget_request(Uuid::from_u128(1));
        let fail = |one: &mut Operation| one.state = OperationState::Failed;
        assert!(registry.end_request(Uuid::from_u128(2), at(3), 0, fail));
        assert_eq!(states(&registry), [(2, OperationState::Failed)]);
        assert!(!registry.end_request(Uuid::from_u128(2), at(4), 0, fail), "it has ended once");
        assert_eq!(registry.get(Uuid::from_u128(2)).unwrap().ended_at, Some(at(3)));
    }

    fn end(registry: &mut Registry<u128>, number: u128, second: i64, result_bytes: usize) {
        registry.begin_request(operation(number, second));
        assert!(registry.end_request(Uuid::from_u128(number), at(second), result_bytes, |_| ()));
    }

    #[test]
    fn ended_operations_are_bounded_in_number_age_and_size() {
        let mut registry = Registry::<u128>::default();
        for number in 0..OPERATIONS_ENDED_MAX as u128 + 5 {
            end(&mut registry, number, 0, 0);
        }
        assert_eq!(registry.all().count(), OPERATIONS_ENDED_MAX);
        for number in 0..10 {
            end(&mut registry, (1 << 64) + number, 0, OPERATION_RESULTS_BYTES_MAX / 4);
        }
        assert_eq!((registry.all().count(), registry.results_bytes), (4, OPERATION_RESULTS_BYTES_MAX));
        assert_eq!(registry.look(Vec::new(), at(OPERATION_SECONDS + 1), |_| unreachable!()), []);
        assert_eq!((registry.all().count(), registry.results_bytes), (0, 0), "a look drops what is old");
    }
}
