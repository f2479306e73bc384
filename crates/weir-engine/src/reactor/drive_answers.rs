//! Answers of drives: passing them on now, later in this round, or when the emulated drive would have
//! answered.

use weir_reactor::Completion;

use crate::emulation::volume_of;
use crate::reactor::Reactor;
use crate::token::{Token, VolumeIndex};

impl Reactor {
    /// Passes on an answer of a disk, now or when the emulated drive would have answered.
    pub(crate) fn disk_answered(&mut self, completion: Completion<Token>) {
        if let Token::Journal { volume, journal, flight } = completion.token {
            return self.journal_landed((volume, journal, flight), completion);
        }
        let held_until_ns = self.held_until_ns(&completion.token);
        match held_until_ns.filter(|&due_ns| due_ns > self.io.now_ns) {
            Some(due_ns) => self.held.hold(due_ns, completion),
            None => self.pass_on(completion),
        }
    }

    /// Until when the emulated drive holds back an answer, in nanoseconds.
    fn held_until_ns(&mut self, token: &Token) -> Option<u64> {
        let volume = volume_of(token).filter(|_| !self.io.is_stopping)?;
        let volume = &mut self.volumes[volume];
        let due_ns = volume.emulated.take_due_ns(token)?;
        (!volume.is_ending()).then_some(due_ns)
    }

    fn pass_on(&mut self, completion: Completion<Token>) {
        if let Token::Journal { volume, journal, flight } = completion.token {
            return self.journal_answered((volume, journal, flight), completion);
        }
        let Completion { token, result, carried } = completion;
        self.on_disk_completion(token, result, carried);
    }

    /// Passes on what was left for later in this round, and all due completions, or all completions if the
    /// daemon ends.
    pub(crate) fn pass_on_due(&mut self) {
        let by_ns = if self.io.is_stopping { u64::MAX } else { self.io.now_ns };
        while let Some(completion) = self.later.pop_front().or_else(|| self.held.take_due(by_ns)) {
            self.pass_on(completion);
        }
    }

    /// Lets a volume become quiet without waiting for its emulated drives.
    pub(crate) fn expedite(&mut self, volume: VolumeIndex) {
        if self.volumes[volume].emulated.is_any() {
            self.held.expedite(volume);
        }
    }
}
