//! Locks of changes: one per volume, a bounded number of changes per drive, and one decision lock.
//!
//! Changes are decided and committed under the decision lock. It is held for memory and the catalogue only:
//! never while a drive's files are touched, a reactor ends I/O, or a thread sleeps.
//!
//! A change that needs a drive holds its volumes and a slot at their drives for as long as it runs. It
//! releases the decision lock while it works on the drives ([`Change::beside`]). So a drive that hangs blocks
//! the changes on this drive, and nothing else.
//!
//! Volumes and drives are taken before the decision lock, all at once and never one after the other. So no
//! two changes wait for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_types::control_bounds::DRIVE_CHANGES_MAX;
use weir_types::{DriveId, VolumeId};

use crate::core::record_backups::{RecordBackups, Tickets};

/// How long a change waits for volumes and drives that other changes hold before it is refused.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Why a change cannot begin: other changes hold the volume or drive for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Another change of this volume has not ended.
    Volume(VolumeId),
    /// This drive has its maximum number of changes; the oldest began this long ago.
    Drive(DriveId, Duration),
}

/// All locks of changes.
#[derive(Default)]
pub(crate) struct Locks {
    decision: Mutex<()>,
    held: Mutex<Held>,
    freed: Condvar,
}

/// Volumes and drives that running changes hold.
#[derive(Default)]
struct Held {
    volumes: BTreeSet<VolumeId>,
    /// Start of each change that has a slot at a drive.
    drives: BTreeMap<DriveId, Vec<Instant>>,
}

/// A running change. It holds the decision lock except during [`Change::beside`].
pub(crate) struct Change<'a> {
    locks: &'a Locks,
    backups: &'a RecordBackups,
    decision: Option<MutexGuard<'a, ()>>,
    volumes: Vec<VolumeId>,
    drives: Vec<DriveId>,
    began: Instant,
    /// Backups of records that this change has requested.
    tickets: Tickets,
}

impl Held {
    fn busy(&self, volumes: &[VolumeId], drives: &[DriveId]) -> Option<Busy> {
        let volume = volumes.iter().find(|volume| self.volumes.contains(volume));
        let is_full = |drive: &&DriveId| self.changes_at(**drive) >= DRIVE_CHANGES_MAX;
        volume.map(|volume| Busy::Volume(*volume)).or_else(|| {
            let drive = *drives.iter().find(is_full)?;
            let oldest = self.drives.get(&drive)?.iter().min()?;
            Some(Busy::Drive(drive, oldest.elapsed()))
        })
    }

    fn changes_at(&self, drive: DriveId) -> usize {
        self.drives.get(&drive).map_or(0, Vec::len)
    }

    fn claim(&mut self, volumes: &[VolumeId], drives: &[DriveId], began: Instant) {
        self.volumes.extend(volumes);
        drives.iter().for_each(|drive| self.drives.entry(*drive).or_default().push(began));
    }

    fn give_back(&mut self, volumes: &[VolumeId], drives: &[DriveId], began: Instant) {
        volumes.iter().for_each(|volume| _ = self.volumes.remove(volume));
        for drive in drives {
            let Some(changes) = self.drives.get_mut(drive) else { continue };
            if let Some(at) = changes.iter().position(|other| *other == began) {
                changes.swap_remove(at);
            }
            if changes.is_empty() {
                self.drives.remove(drive);
            }
        }
    }
}

impl Locks {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self) -> MutexGuard<'_, ()> {
        self.decision.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a change that needs no file of any drive.
    pub fn begin<'a>(&'a self, backups: &'a RecordBackups) -> Change<'a> {
        self.change(backups, Vec::new(), Vec::new(), Instant::now())
    }

    /// Begins a change of volumes on drives, once no other change holds them.
    pub fn begin_at<'a>(
        &'a self,
        backups: &'a RecordBackups,
        volumes: Vec<VolumeId>,
        drives: Vec<DriveId>,
    ) -> Result<Change<'a>, Busy> {
        let began = self.claim(&volumes, &drives, LOCK_WAIT)?;
        Ok(self.change(backups, volumes, drives, began))
    }

    /// Begins a change as [`Locks::begin_at`] does, if no other change holds the volumes and drives now.
    pub fn try_begin_at<'a>(
        &'a self,
        backups: &'a RecordBackups,
        volumes: Vec<VolumeId>,
        drives: Vec<DriveId>,
    ) -> Result<Change<'a>, Busy> {
        let began = self.claim(&volumes, &drives, Duration::ZERO)?;
        Ok(self.change(backups, volumes, drives, began))
    }

    /// True if a change has a slot at a drive.
    pub fn is_in_use(&self, drive: DriveId) -> bool {
        self.held().changes_at(drive) > 0
    }

    fn change<'a>(
        &'a self,
        backups: &'a RecordBackups,
        volumes: Vec<VolumeId>,
        drives: Vec<DriveId>,
        began: Instant,
    ) -> Change<'a> {
        let decision = Some(self.decide());
        Change { locks: self, backups, decision, volumes, drives, began, tickets: Tickets::default() }
    }

    /// Takes volumes and drives together. The returned time identifies the change.
    fn claim(&self, volumes: &[VolumeId], drives: &[DriveId], timeout: Duration) -> Result<Instant, Busy> {
        let until = Instant::now() + timeout;
        let mut held = self.held();
        while let Some(busy) = held.busy(volumes, drives) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(busy);
            }
            held = match self.freed.wait_timeout(held, left) {
                Ok((held, _)) => held,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        let began = Instant::now();
        held.claim(volumes, drives, began);
        Ok(began)
    }
}

impl Change<'_> {
    /// Works on the drives of this change, while other changes are decided.
    pub fn beside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.decision = None;
        let done = work();
        self.decision = Some(self.locks.decide());
        done
    }

    /// Takes a new volume and slots at its drives. No other change can hold the new volume for long.
    ///
    /// If this has to wait, other changes are decided in between. Returns true in this case: the caller must
    /// repeat its decision.
    pub fn claim(&mut self, volume: VolumeId, drives: Vec<DriveId>) -> Result<bool, Busy> {
        let first = self.locks.claim(&[volume], &drives, Duration::ZERO);
        let (began, has_waited) = match first {
            Ok(began) => (began, false),
            Err(_) => {
                self.decision = None;
                let began = self.locks.claim(&[volume], &drives, LOCK_WAIT);
                self.decision = Some(self.locks.decide());
                (began?, true)
            }
        };
        self.give_back();
        (self.volumes, self.drives, self.began) = (vec![volume], drives, began);
        Ok(has_waited)
    }

    /// True if this change holds a volume.
    pub fn holds(&self, volume: VolumeId) -> bool {
        self.volumes.contains(&volume)
    }

    /// Backups of records that are written once this change has ended. The end waits for them for a bounded
    /// time.
    pub fn tickets(&mut self) -> &mut Tickets {
        &mut self.tickets
    }

    fn give_back(&mut self) {
        self.locks.held().give_back(&self.volumes, &self.drives, self.began);
        self.locks.freed.notify_all();
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.decision = None;
        self.give_back();
        self.backups.wait(&self.tickets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(number: u128) -> VolumeId {
        VolumeId(uuid::Uuid::from_u128(number))
    }

    fn drive(number: u128) -> DriveId {
        DriveId(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn change_at_a_drive_blocks_only_its_own_volume() {
        let (locks, backups) = (Locks::default(), RecordBackups::default());
        let mut first = locks.begin_at(&backups, vec![volume(1)], vec![drive(1)]).unwrap();
        first.beside(|| {
            drop(locks.begin(&backups));
            drop(locks.begin_at(&backups, vec![volume(2)], vec![drive(1)]).unwrap());
            let again = locks.try_begin_at(&backups, vec![volume(3), volume(1)], vec![drive(2)]);
            assert_eq!(again.map(|_| ()), Err(Busy::Volume(volume(1))));
            assert!(!locks.is_in_use(drive(2)), "what was refused holds nothing");
            drop(locks.try_begin_at(&backups, vec![volume(3)], vec![]).unwrap());
            assert!(locks.is_in_use(drive(1)));
        });
        drop(first);
        assert!(!locks.is_in_use(drive(1)));
        drop(locks.try_begin_at(&backups, vec![volume(1)], vec![drive(1)]).unwrap());
    }

    #[test]
    fn drive_accepts_a_bounded_number_of_changes() {
        let (locks, backups) = (Locks::default(), RecordBackups::default());
        let began = |_| locks.claim(&[], &[drive(1)], Duration::ZERO).unwrap();
        let all: Vec<Instant> = (0..DRIVE_CHANGES_MAX).map(began).collect();
        let refused = locks.try_begin_at(&backups, vec![volume(1)], vec![drive(1)]).map(|_| ());
        assert!(matches!(refused, Err(Busy::Drive(full, _)) if full == drive(1)), "{refused:?}");
        drop(locks.try_begin_at(&backups, vec![volume(1)], vec![drive(2)]).unwrap());
        locks.held().give_back(&[], &[drive(1)], all[0]);
        drop(locks.try_begin_at(&backups, vec![volume(1)], vec![drive(1)]).unwrap());
    }
}
