//! Writing the accounts beside copies, and the witnesses of them apart, in the order that the mirror needs: an epoch
//! that is new is reserved first, then the accounts are written, then it is known.
//!
//! It does not know what accounts mean. Files are written by helper threads, one for each drive, so that a drive that
//! hangs holds up no other; an emulated drive answers when it would have.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_volume::mirror::{Account, Slots, Standing};

use super::Alarm;
use super::helper::Job;
use super::reactor::Reactor;
use super::stalls::{Ghost, NO_ANSWER};
use super::token::{AskNumber, CopyIndex, VolumeIndex};
use crate::store::account::account_file_name;

/// An account that is being written.
struct Note {
    volume: VolumeIndex,
    extent: u32,
    slots: Slots,
    account: Arc<Account>,
    /// Its epoch has to be reserved before and known after.
    is_new: bool,
    /// Copies beside which it could not be written.
    failed: Slots,
    /// Copies beside which it is being written.
    waiting: BTreeMap<usize, AskNumber>,
    /// When all of these should have answered, in nanoseconds.
    due_ns: u64,
}

impl Note {
    /// True if the account counts, so that its epoch has to be known: a copy that has everything took it.
    fn counts(&self) -> bool {
        let took_it = self.slots.iter().filter(|slot| !self.failed.contains(*slot));
        self.account.counts_beside(took_it.collect())
    }
}

/// That an account was written beside a copy, or why it could not be.
type Written = (u64, CopyIndex, AskNumber, Result<(), String>);

/// A reactor's accounts that are being written: at most one for each extent.
#[derive(Default)]
pub(super) struct Notes {
    under_way: BTreeMap<u64, Note>,
    count: u64,
    /// Answers that emulated drives have not given yet, by when they do.
    held: BTreeMap<(u64, u64), Written>,
    /// Those whose witness could not take note: it is asked again, because nobody may rely on them before.
    unwitnessed: Vec<(u64, bool)>,
}

impl Notes {
    /// The next instant at which an emulated drive answers.
    pub fn next_ns(&self) -> Option<u64> {
        self.held.first_key_value().map(|((due_ns, _), _)| *due_ns)
    }

    /// The accounts of a volume whose writing was due before an instant, beside some copies at least.
    fn stalled(&self, volume: VolumeIndex, before_ns: u64) -> Vec<u64> {
        let is_late = |note: &Note| {
            let has_it = |slot: usize| !note.waiting.contains_key(&slot) && !note.failed.contains(slot);
            let counts = |slot: usize| note.account.standings[slot] == Standing::InSync && has_it(slot);
            let is_late = !note.waiting.is_empty() && note.due_ns < before_ns;
            note.volume == volume && is_late && note.slots.iter().any(counts)
        };
        self.under_way.iter().filter(|(_, note)| is_late(note)).map(|(key, _)| *key).collect()
    }
}

impl Reactor {
    /// Has an account written beside copies of an extent.
    pub(super) fn note_account(
        &mut self,
        index: VolumeIndex,
        extent: u32,
        slots: Slots,
        account: Box<Account>,
    ) {
        let volume = &mut self.volumes[index];
        volume.outstanding += 1;
        let is_new = volume.known_epochs.get(&extent) != Some(&account.epoch);
        let note = Note {
            volume: index,
            extent,
            slots,
            account: Arc::from(account),
            is_new,
            failed: Slots::default(),
            waiting: BTreeMap::new(),
            due_ns: 0,
        };
        self.notes.count += 1;
        let key = self.notes.count;
        self.notes.under_way.insert(key, note);
        if is_new { self.ask_witness(key, false) } else { self.write_accounts(key) }
    }

    fn under_way(&mut self, key: u64) -> &mut Note {
        self.notes.under_way.get_mut(&key).expect("an account is known until it is written")
    }

    /// Has the witness take note of an epoch: that it may come, or that it is there.
    fn ask_witness(&mut self, key: u64, is_there: bool) {
        let note = self.under_way(key);
        let (volume, extent, epoch) = (note.volume, note.extent, note.account.epoch);
        let path = self.volumes[volume].witnesses.clone();
        self.helper.submit(Job::Witness { note: key, path, extent, epoch, is_there });
    }

    /// The witness has taken note, or could not: then nobody may rely on the account.
    pub(super) fn witnessed(&mut self, key: u64, is_there: bool, result: Result<(), String>) {
        let note = self.under_way(key);
        let (volume, extent, epoch) = (note.volume, note.extent, note.account.epoch);
        if let Err(message) = result {
            self.notes.unwitnessed.push((key, is_there));
            let message = format!("waits, because it cannot be kept account of: {message}");
            let alarm =
                Alarm { volume: self.volumes[volume].id, drive: None, extent: extent.into(), message };
            return self.raise_alarm(alarm);
        }
        if is_there {
            self.volumes[volume].known_epochs.insert(extent, epoch);
            return self.end_note(key);
        }
        self.write_accounts(key);
    }

    fn write_accounts(&mut self, key: u64) {
        let now_ns = self.now_ns;
        let note = self.notes.under_way.get_mut(&key).expect("an account is known until it is written");
        let (index, extent) = (note.volume, note.extent);
        let volume = &mut self.volumes[index];
        note.due_ns = now_ns;
        for slot in note.slots.iter() {
            let home = volume.line_of(slot, extent).expect("the mirror writes beside copies that there are");
            let due_ns = volume.emulated.note(now_ns, home, extent);
            note.due_ns = note.due_ns.max(due_ns);
            let number = volume.next_number();
            note.waiting.insert(slot, number);
            let (drive, directory) = (volume.homes[home].drive, &volume.homes[home].directory);
            let journaled = volume.journals.account_path(extent, slot);
            let path = journaled.unwrap_or_else(|| directory.join(account_file_name(extent.into())));
            let (copy, account) = (CopyIndex { volume: index, slot }, Arc::clone(&note.account));
            self.helper.submit(Job::Account { note: key, copy, number, drive, path, account, due_ns });
        }
    }

    /// A drive has written an account, or could not.
    pub(super) fn account_answered(
        &mut self,
        key: u64,
        (copy, number): (CopyIndex, AskNumber),
        due_ns: u64,
        result: Result<(), String>,
    ) {
        if due_ns > self.now_ns && self.stop_by_ns.is_none() && !self.volumes[copy.volume].is_ending() {
            self.notes.count += 1;
            let order = self.notes.count;
            self.notes.held.insert((due_ns, order), (key, copy, number, result));
        } else {
            self.account_written(key, copy, number, result);
        }
    }

    fn account_written(&mut self, key: u64, copy: CopyIndex, number: AskNumber, result: Result<(), String>) {
        let note = self.notes.under_way.get_mut(&key);
        let Some(note) = note.filter(|note| note.waiting.get(&copy.slot) == Some(&number)) else {
            self.is_ghost(copy, number);
            return;
        };
        note.waiting.remove(&copy.slot);
        if let Err(message) = result {
            note.failed.insert(copy.slot);
            let message = format!("cannot keep account: {message}");
            self.volumes[copy.volume].fault_message = Some(message);
        }
        self.go_on_noting(key);
    }

    fn go_on_noting(&mut self, key: u64) {
        let note = self.under_way(key);
        match (note.waiting.is_empty(), note.is_new && note.counts()) {
            (false, _) => {}
            (true, true) => self.ask_witness(key, true),
            (true, false) => self.end_note(key),
        }
    }

    /// Asks witnesses again that could not take note.
    pub(super) fn ask_witnesses_again(&mut self) {
        for (key, is_there) in std::mem::take(&mut self.notes.unwitnessed) {
            self.ask_witness(key, is_there);
        }
    }

    /// Gives up copies of a volume beside which an account should have been written before an instant, while others
    /// have it.
    pub(super) fn give_up_notes(&mut self, index: VolumeIndex, before_ns: u64) {
        for key in self.notes.stalled(index, before_ns) {
            let note = self.notes.under_way.get_mut(&key).expect("it was just found");
            let volume = &mut self.volumes[index];
            for (slot, number) in std::mem::take(&mut note.waiting) {
                note.failed.insert(slot);
                volume.outstanding += 1;
                volume.ghosts.add(slot, number, Ghost { extent: note.extent, media: None });
            }
            volume.fault_message = Some(NO_ANSWER.to_owned());
            self.go_on_noting(key);
        }
    }

    fn end_note(&mut self, key: u64) {
        let note = self.notes.under_way.remove(&key).expect("an account is written once");
        let Note { volume: index, extent, failed, .. } = note;
        let volume = &mut self.volumes[index];
        volume.outstanding -= 1;
        volume.mirror.noted(extent, failed, &mut volume.effects);
        self.carry_out(index);
        self.settle_volume(index);
    }

    /// Passes on what emulated drives answer now; everything, if the daemon is ending.
    pub(super) fn pass_on_due_notes(&mut self) {
        let by_ns = if self.stop_by_ns.is_some() { u64::MAX } else { self.now_ns };
        while let Some(first) = self.notes.held.first_entry().filter(|entry| entry.key().0 <= by_ns) {
            let (_, (key, copy, number, result)) = first.remove_entry();
            self.account_written(key, copy, number, result);
        }
    }
}
