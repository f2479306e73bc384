//! Writing the accounts beside copies, and the witnesses of them apart, in the order that the mirror needs: an epoch
//! that is new is reserved first, then the accounts are written, then it is known.
//!
//! It does not know what accounts mean. Files are written by helper threads, one for each drive, so that a drive that
//! hangs holds up no other; an emulated drive answers when it would have.

use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;
use weir_volume::mirror::{Account, Slots};

use super::helper::Job;
use super::reactor::Reactor;
use super::token::VolumeIndex;
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
    /// Copies that have not answered.
    left: u32,
}

/// A reactor's accounts that are being written: at most one for each extent.
#[derive(Default)]
pub(super) struct Notes {
    under_way: Slab<Note>,
    /// Answers that emulated drives have not given yet, by when they do.
    held: BTreeMap<(u64, usize, usize), Result<(), String>>,
}

impl Notes {
    /// The next instant at which an emulated drive answers.
    pub fn next_ns(&self) -> Option<u64> {
        self.held.first_key_value().map(|((due_ns, ..), _)| *due_ns)
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
        let account = Arc::from(account);
        let note = Note { volume: index, extent, slots, account, is_new, failed: Slots::default(), left: 0 };
        let note = self.notes.under_way.insert(note);
        if is_new { self.ask_witness(note, false) } else { self.write_accounts(note) }
    }

    /// Has the witness take note of an epoch: that it may come, or that it is there.
    fn ask_witness(&mut self, index: usize, is_there: bool) {
        let note = &self.notes.under_way[index];
        let path = self.volumes[note.volume].witnesses.clone();
        let (extent, epoch) = (note.extent, note.account.epoch);
        self.helper.submit(Job::Witness { note: index, path, extent, epoch, is_there });
    }

    /// The witness has taken note, or could not: then nobody may rely on the account.
    pub(super) fn witnessed(&mut self, index: usize, is_there: bool, result: Result<(), String>) {
        let note = &mut self.notes.under_way[index];
        if let Err(message) = result {
            note.failed = note.slots;
            self.volumes[note.volume].fault_message = Some(message);
            return self.end_note(index);
        }
        if is_there {
            self.volumes[note.volume].known_epochs.insert(note.extent, note.account.epoch);
            return self.end_note(index);
        }
        self.write_accounts(index);
    }

    fn write_accounts(&mut self, index: usize) {
        let note = &mut self.notes.under_way[index];
        let (extent, slots) = (note.extent, note.slots);
        note.left = slots.iter().count() as u32;
        let account = Arc::clone(&note.account);
        let volume = &mut self.volumes[note.volume];
        for slot in slots.iter() {
            let home = volume.home_of(slot, extent).expect("the mirror writes beside copies that there are");
            let due_ns = volume.emulated.note(self.now_ns, home, extent);
            let (drive, directory) = (volume.homes[home].drive, &volume.homes[home].directory);
            let path = directory.join(account_file_name(extent.into()));
            let account = Arc::clone(&account);
            self.helper.submit(Job::Account { note: index, slot, drive, path, account, due_ns });
        }
    }

    /// A drive has written an account, or could not.
    pub(super) fn account_answered(
        &mut self,
        index: usize,
        slot: usize,
        due_ns: u64,
        result: Result<(), String>,
    ) {
        let volume = &self.volumes[self.notes.under_way[index].volume];
        if due_ns > self.now_ns && self.stop_by_ns.is_none() && !volume.is_ending() {
            self.notes.held.insert((due_ns, index, slot), result);
        } else {
            self.account_written(index, slot, result);
        }
    }

    fn account_written(&mut self, index: usize, slot: usize, result: Result<(), String>) {
        let note = &mut self.notes.under_way[index];
        note.left -= 1;
        if let Err(message) = result {
            note.failed.insert(slot);
            let message = format!("cannot keep account: {message}");
            self.volumes[note.volume].fault_message = Some(message);
        }
        match (note.left, note.is_new) {
            (1.., _) => {}
            (0, true) => self.ask_witness(index, true),
            (0, false) => self.end_note(index),
        }
    }

    fn end_note(&mut self, index: usize) {
        let Note { volume: index, extent, failed, .. } = self.notes.under_way.remove(index);
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
            let ((_, index, slot), result) = first.remove_entry();
            self.account_written(index, slot, result);
        }
    }
}
