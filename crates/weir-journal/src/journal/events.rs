//! Events: requests and answers of the journal's owner. Each event changes one part of the journal; then
//! everything continues that the change allows. This is the only module that calls all parts, and no part
//! calls it.

use weir_types::bounds::JOURNAL_WAITING_MAX;

use super::Journal;
use crate::action::{
    Action, DestageFault, DestageId, FileId, Kind, Pin, QueueFull, Request, SlowFault, Ticket,
};

impl Journal {
    /// Requests a change. Its end is an [`Action::Done`] of this call or a later one.
    ///
    /// # Errors
    /// If the queue is full; then the request was not taken.
    pub fn change(&mut self, request: Request, actions: &mut Vec<Action>) -> Result<(), QueueFull> {
        request.assert_is_sound();
        if let Some(fault) = self.fault_of(request.file) {
            actions.push(Action::Done { ticket: request.ticket, result: Err(fault) });
            return Ok(());
        }
        let is_write = matches!(request.kind, Kind::Write { .. });
        if is_write && self.passes_by(request.file, request.offset, request.length) {
            self.pass_by(request, actions);
            return Ok(());
        }
        if self.waiting.len() >= JOURNAL_WAITING_MAX {
            return Err(QueueFull);
        }
        self.waiting.push_back(request);
        self.go_on(actions);
        Ok(())
    }

    /// Requests that all completed changes of a file become stable. The end is [`Action::Done`].
    ///
    /// # Errors
    /// If the queue is full; then the request was not taken.
    pub fn sync(&mut self, ticket: Ticket, file: FileId, actions: &mut Vec<Action>) -> Result<(), QueueFull> {
        if let Some(fault) = self.fault_of(file) {
            actions.push(Action::Done { ticket, result: Err(fault) });
            return Ok(());
        }
        if let Some(sequence) = self.syncs.begin((ticket, file), self.stable, &mut self.files, actions)? {
            self.wanted = self.wanted.max(sequence);
            self.sync_journal(actions);
        }
        Ok(())
    }

    /// Drops everything that the journal holds of a file. The end is [`Action::Forgotten`]; until then the
    /// caller asks nothing else of the file.
    ///
    /// Before the call, the caller durably records that the content does not count: the volume is deleted, or
    /// the replica is stale or removed. A crash before the end brings the file back, and the caller has to
    /// forget it again.
    pub fn forget(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.has_failed {
            actions.push(Action::Forgotten { file: self.files.get(file).key });
            return;
        }
        let is_flying = self.flying_requests.iter().any(|request| request.file == file);
        // Recovery cannot read records before the tail.
        let needs_record = is_flying || self.files.get(file).last_sequence >= self.destage.durable_tail();
        self.forgets.begin(file, needs_record, &mut self.files);
        self.index.forget(file);
        self.destage.forget(file);
        self.refuse(file, actions);
        self.finish(actions);
    }

    /// Suspends a file: nothing is destaged to it until it is resumed. Then the journal destages again
    /// everything that was not synced, because the drive may have lost that data. Syncs and writes in flight
    /// prove nothing if they succeed.
    ///
    /// The owner must repeat bypass writes since the last sync, so syncs of the file wait for the journal
    /// alone. The call does nothing for a failed file: the journal keeps the file's data until the file is
    /// forgotten.
    pub fn suspend(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.fault_of(file).is_none() {
            self.files.get_mut(file).suspend();
            self.doubt_destaged(file);
            self.finish(actions);
        }
    }

    /// Resumes a file: its drive is reliable again, and data that is synced from now on is stable.
    pub fn resume(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if !self.has_failed {
            self.files.get_mut(file).is_suspended = false;
            // A request that waits for the journal still waits for the slow file too.
            self.files.make_synced(file, 0, actions);
            self.go_on(actions);
        }
    }

    /// Sets whether the journal destages everything as fast as it can. A caller drains it before the slow
    /// files are served without the journal.
    pub fn set_draining(&mut self, is_draining: bool, actions: &mut Vec<Action>) {
        self.is_draining = is_draining;
        self.go_on(actions);
    }

    /// Ends an interval; the caller calls this about once a second. Records that existed at the call before
    /// the last one are old. Old records are destaged while there is room to keep young ones.
    pub fn interval_passed(&mut self, actions: &mut Vec<Action>) {
        self.age.pass_interval(self.applied);
        self.go_on(actions);
    }

    /// Ends a read. If the read failed in the journal's file, the caller also calls
    /// [`Journal::journal_unreadable`], before or after.
    pub fn read_ended(&mut self, pin: Pin, actions: &mut Vec<Action>) {
        if let Some(sequence) = pin.sequence {
            self.log.unpin(sequence);
            self.destage.unpinned(sequence);
            self.go_on(actions);
        }
    }

    /// Fails the journal: its file could not be read, or is not the file that the next start would read.
    pub fn journal_unreadable(&mut self, actions: &mut Vec<Action>) {
        self.fail(actions);
    }

    /// Takes the answer to [`Action::WriteRecord`]; any error is final.
    pub fn record_written<E>(&mut self, result: Result<(), E>, actions: &mut Vec<Action>) {
        let flying = self.flying.take().expect("a record that was written was asked for");
        if self.survives(&result, actions) {
            self.complete_record(flying, actions);
            self.finish(actions);
        }
    }

    /// Takes the answer to [`Action::SyncJournal`]; any error is final.
    pub fn journal_synced<E>(&mut self, result: Result<(), E>, actions: &mut Vec<Action>) {
        let syncing = self.syncing.take().expect("a sync that ends has begun");
        if self.survives(&result, actions) {
            self.became_stable(syncing, actions);
            self.finish(actions);
        }
    }

    /// Takes the answer to [`Action::WriteSuperblock`]; any error is final.
    pub fn superblock_written<E>(&mut self, result: Result<(), E>, actions: &mut Vec<Action>) {
        if self.survives(&result, actions) {
            self.destage.tail_moved(&self.superblock);
            self.go_on(actions);
        }
    }

    /// Takes the answer to [`Action::Destage`]. A failed operation is never retried.
    pub fn destaged(
        &mut self,
        operation: DestageId,
        result: Result<(), DestageFault>,
        actions: &mut Vec<Action>,
    ) {
        if !self.has_failed {
            self.end_operation(operation, result, actions);
            self.finish(actions);
        }
    }

    /// Takes the answer to [`Action::PassBy`].
    pub fn passed_by(&mut self, ticket: Ticket, result: Result<(), SlowFault>, actions: &mut Vec<Action>) {
        if !self.has_failed {
            self.end_pass_by(ticket, result, actions);
            self.finish(actions);
        }
    }

    /// Takes the answer to [`Action::SyncSlow`]. A failed sync is never retried.
    pub fn slow_synced<E>(&mut self, file: FileId, result: Result<(), E>, actions: &mut Vec<Action>) {
        if !self.has_failed {
            let state = self.files.get_mut(file);
            state.under_way -= 1;
            if result.is_err() {
                self.fail_file(file, actions);
            } else if state.end_sync() {
                actions.push(Action::SyncSlow { file });
            }
            self.finish(actions);
        }
    }

    /// Fails the journal after an error of its own file. True if the journal has not failed.
    fn survives<E>(&mut self, result: &Result<(), E>, actions: &mut Vec<Action>) -> bool {
        if result.is_err() {
            self.fail(actions);
        }
        !self.has_failed
    }

    /// Ends the syncs and the forgetting that an event may have ended, then goes on.
    fn finish(&mut self, actions: &mut Vec<Action>) {
        self.syncs.finish(self.stable, &self.files, actions);
        self.forgets.finish(self.stable, &mut self.files, actions);
        self.go_on(actions);
    }

    /// Does everything that can be done now.
    fn go_on(&mut self, actions: &mut Vec<Action>) {
        if self.has_failed {
            return;
        }
        let is_hurried = self.is_draining || self.is_starved;
        self.drop_records(is_hurried);
        self.write_record(actions);
        if self.is_starved && self.drop_records(true) {
            self.write_record(actions);
        }
        self.destage(actions);
        self.sync_journal(actions);
    }
}
