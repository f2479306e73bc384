//! Late answers: answers of drives that are passed on later, in this round or when the emulated drive would have
//! answered, and refused actions that are not answered yet.
//!
//! A held answer is still outstanding: its volume is not quiet and its buffer is in use. This module does not
//! know what an answer means.

use std::collections::{BTreeMap, VecDeque};

use weir_reactor::Completion;

use crate::emulation::volume_of;
use crate::helper::ChecksumAnswer;
use crate::io::Io;
use crate::token::{Token, VolumeIndex};
use crate::volumes::refusals::Refused;
use crate::volumes::replica_metadata;

/// Values that are due at a time, by that time and order of arrival.
pub struct Held<T> {
    waiting: BTreeMap<(u64, u64), T>,
    count: u64,
}

/// The answers of a reactor that are passed on later.
#[derive(Default)]
pub struct LateAnswers {
    /// Completions to pass on in this round, but after the current work.
    later: VecDeque<Completion<Token>>,
    /// Completions that emulated drives hold back.
    completions: Held<Completion<Token>>,
    /// Answers about replica metadata that emulated drives hold back.
    pub metadata: Held<replica_metadata::Answered>,
    /// Answers about checksum files that emulated drives hold back.
    pub checksums: Held<ChecksumAnswer>,
    /// Refused actions, which are answered in the next round.
    refused: VecDeque<Refused>,
}

impl<T> Default for Held<T> {
    fn default() -> Held<T> {
        Held { waiting: BTreeMap::new(), count: 0 }
    }
}

impl<T> Held<T> {
    /// The next due time, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Holds a value back.
    pub fn hold(&mut self, at_ns: u64, value: T) {
        self.count += 1;
        self.waiting.insert((at_ns, self.count), value);
    }

    /// Takes a value that is due.
    pub fn take_due(&mut self, now_ns: u64) -> Option<T> {
        let first = self.waiting.first_entry().filter(|entry| entry.key().0 <= now_ns)?;
        Some(first.remove())
    }
}

impl Held<Completion<Token>> {
    /// Makes all completions of a volume due at once; their order stays.
    fn expedite(&mut self, volume: VolumeIndex) {
        let all = std::mem::take(&mut self.waiting);
        for ((at_ns, count), completion) in all {
            let at_ns = if volume_of(&completion.token) == Some(volume) { 0 } else { at_ns };
            self.waiting.insert((at_ns, count), completion);
        }
    }
}

impl LateAnswers {
    /// Passes a completion on in this round, but after the current work.
    pub fn pass_on_later(&mut self, completion: Completion<Token>) {
        self.later.push_back(completion);
    }

    /// Passes a completion on at this time.
    pub fn hold(&mut self, at_ns: u64, completion: Completion<Token>) {
        self.completions.hold(at_ns, completion);
    }

    /// The next completion to pass on: those left for this round, and then those that are due.
    pub fn take_due(&mut self, io: &Io) -> Option<Completion<Token>> {
        self.next_due(due_by_ns(io))
    }

    fn next_due(&mut self, by_ns: u64) -> Option<Completion<Token>> {
        self.later.pop_front().or_else(|| self.completions.take_due(by_ns))
    }

    /// The next answer about replica metadata that is due.
    pub fn take_due_metadata(&mut self, io: &Io) -> Option<replica_metadata::Answered> {
        self.metadata.take_due(due_by_ns(io))
    }

    /// The next answer about checksum files that is due.
    pub fn take_due_checksums(&mut self, io: &Io) -> Option<ChecksumAnswer> {
        self.checksums.take_due(due_by_ns(io))
    }

    /// Lets a volume become quiet without waiting for its emulated drives.
    pub fn expedite(&mut self, volume: VolumeIndex) {
        self.completions.expedite(volume);
    }

    /// Answers an action with a refusal in the next round.
    pub fn refuse(&mut self, refused: Refused) {
        self.refused.push_back(refused);
    }

    /// Number of refused actions.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// The refused action to answer next.
    pub fn take_refused(&mut self) -> Option<Refused> {
        self.refused.pop_front()
    }

    /// True if nothing is to be passed on at once.
    pub fn is_idle(&self) -> bool {
        self.refused.is_empty() && self.later.is_empty()
    }

    /// True if a completion waits for its emulated drive.
    pub fn is_holding(&self) -> bool {
        !self.completions.is_empty()
    }

    /// The next time at which an emulated drive answers, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        let held = [self.completions.next_ns(), self.metadata.next_ns(), self.checksums.next_ns()];
        held.into_iter().flatten().min()
    }
}

/// Answers that are due by this time are passed on, or all of them if the daemon ends.
fn due_by_ns(io: &Io) -> u64 {
    if io.is_stopping { u64::MAX } else { io.now_ns }
}

#[cfg(test)]
mod tests {
    use weir_reactor::Carried;
    use weir_volume::OperationId;

    use super::*;
    use crate::token::{AskNumber, ReplicaIndex};

    fn completion(volume: VolumeIndex, operation: u32) -> Completion<Token> {
        let token =
            Token::Operation(ReplicaIndex { volume, slot: 0 }, OperationId(operation), AskNumber::default());
        Completion { token, result: Ok(0), carried: Carried::Nothing }
    }

    /// The operations that are due at a given time, in order.
    fn due(answers: &mut LateAnswers, now_ns: u64) -> Vec<u32> {
        let operation = |completion: Completion<Token>| match completion.token {
            Token::Operation(_, operation, _) => operation.0,
            _ => unreachable!("only operations are held here"),
        };
        std::iter::from_fn(|| answers.next_due(now_ns)).map(operation).collect()
    }

    #[test]
    fn completions_are_passed_on_when_due_in_order() {
        let mut answers = LateAnswers::default();
        for (at_ns, operation) in [(30, 3), (10, 1), (30, 4), (20, 2)] {
            answers.hold(at_ns, completion(0, operation));
        }
        assert_eq!(answers.next_ns(), Some(10));
        assert_eq!(due(&mut answers, 9), [0; 0]);
        answers.pass_on_later(completion(0, 5));
        assert!(!answers.is_idle());
        assert_eq!(due(&mut answers, 20), [5, 1, 2]);
        assert_eq!(due(&mut answers, 30), [3, 4]);
        assert!(!answers.is_holding() && answers.is_idle());
    }

    #[test]
    fn ending_volume_gets_held_completions_at_once() {
        let mut answers = LateAnswers::default();
        for (at_ns, volume, operation) in [(30, 0, 3), (10, 1, 1), (20, 0, 2)] {
            answers.hold(at_ns, completion(volume, operation));
        }
        answers.expedite(0);
        let mut early = due(&mut answers, 0);
        early.sort_unstable();
        assert_eq!(early, [2, 3]);
        assert_eq!(due(&mut answers, 10), [1]);
    }
}
