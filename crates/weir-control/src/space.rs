//! Space of the state folder: the reserve that volumes leave there, and the alarm if the folder cannot be
//! written.
//!
//! The catalogue, replica metadata and sockets need a little space there at any time, and a start must not
//! need space that volumes have taken. So drives on the same filesystem get only its space above a reserve.
//! Without a writable state folder no change is accepted, and the alarm gives the reason.

use std::sync::{Arc, Mutex, PoisonError};

use weir_store::Store;
use weir_store::space::{Obstacle, Space};
use weir_types::DriveId;
use weir_types::control_bounds::{STATE_RESERVE_BYTES_MAX, STATE_RESERVE_PART};

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::catalogue::{CATALOGUE_BYTES_MIN, CatalogueFault};
use crate::core::Core;

/// The filesystem of the state folder at the last check. Readers do not wait for a check.
#[derive(Default)]
pub(crate) struct StateFilesystem(Mutex<Option<Result<Space, String>>>);

impl StateFilesystem {
    fn is(&self, seen: Result<Space, String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    fn seen(&self) -> Option<Result<Space, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why the state folder cannot be written, from the state of its filesystem and the last failed change.
fn why_unwritable(seen: Option<&Result<Space, String>>, met: Option<CatalogueFault>) -> Option<String> {
    let met = met.map(|fault| (fault.obstacle, fault.error.to_string()));
    match (seen, met) {
        // A later check of the filesystem cannot show that this fault is over.
        (_, Some((None | Some(Obstacle::Disk | Obstacle::ReadOnly), error))) => Some(error),
        (Some(Err(error)), _) => Some(format!("its filesystem does not answer: {error}")),
        (Some(Ok(space)), _) if space.is_read_only => Some(Obstacle::ReadOnly.explain_there(space)),
        (Some(Ok(space)), _) if space.free_bytes < CATALOGUE_BYTES_MIN => {
            Some(Obstacle::Full.explain_there(space))
        }
        _ => None,
    }
}

/// Bytes that volumes leave free on the state folder's filesystem, by its size.
fn reserve_bytes(size_bytes: u64) -> u64 {
    (size_bytes / STATE_RESERVE_PART).min(STATE_RESERVE_BYTES_MAX)
}

/// The filesystem of the state folder, as it was last seen.
pub struct StateSpace {
    core: Arc<Core>,
    state_filesystem: StateFilesystem,
}

impl StateSpace {
    pub(crate) fn new(core: Arc<Core>) -> StateSpace {
        StateSpace { core, state_filesystem: Default::default() }
    }
}

impl StateSpace {
    /// An alarm with the reason why no change is accepted now, if it is known.
    pub(crate) fn state_alarms(&self) -> Vec<ActiveAlarm> {
        let why = why_unwritable(self.state_filesystem.seen().as_ref(), self.core.catalogue.fault());
        let alarm = |why| ActiveAlarm {
            source: AlarmSource::Catalogue,
            volume: None,
            drive: None,
            extent: None,
            message: format!("no change is accepted, because the state folder cannot be written: {why}"),
        };
        why.map(alarm).into_iter().collect()
    }

    /// Tells the data plane the space that volumes may still take on drives that share the state folder's
    /// filesystem.
    pub fn set_space_aside(&self) {
        let look = self.core.engine.begin_look_at_space();
        let seen = Space::of(&self.core.state).map_err(|error| error.to_string());
        self.state_filesystem.is(seen.clone());
        // While the system does not answer, the previous values stay in effect.
        let Ok(space) = seen else { return };
        self.core.engine.set_space_aside(look, reserve_bytes(space.size_bytes), space.free_bytes);
        for (drive, store) in self.core.stores() {
            self.core.engine.set_is_counted(drive, store.filesystem() == space.filesystem);
        }
    }

    /// Tells the data plane whether a drive shares the state folder's filesystem, before a volume is there:
    /// until the next regular check its volumes could otherwise fill the reserve. While the filesystem of the
    /// state folder is unknown, the drive counts as one that shares it.
    pub(crate) fn count_drive(&self, drive: DriveId, store: &Store) {
        let is_elsewhere =
            |seen: Result<Space, String>| seen.is_ok_and(|space| space.filesystem != store.filesystem());
        let is_counted = !self.state_filesystem.seen().is_some_and(is_elsewhere);
        self.core.engine.set_is_counted(drive, is_counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::CatalogueError;

    #[test]
    fn unwritable_reason_reflects_current_state() {
        let filesystem = |free_bytes, is_read_only| {
            Ok(Space { mount: "/var".into(), filesystem: 1, size_bytes: 1 << 30, free_bytes, is_read_only })
        };
        let met = |obstacle| {
            let error = CatalogueError::Disk { message: "an error".to_owned() };
            Some(CatalogueFault { obstacle, error })
        };
        let why = |seen: &Result<Space, String>, met| why_unwritable(Some(seen), met).unwrap_or_default();
        assert_eq!(why_unwritable(None, None), None);
        assert_eq!(why(&filesystem(1 << 20, false), None), "");
        assert!(why(&filesystem(1 << 10, false), None).contains("has 1KiB of 1GiB free"));
        assert_eq!(why(&filesystem(1 << 20, false), met(Some(Obstacle::Full))), "", "there is space again");
        assert!(why(&filesystem(1 << 20, true), None).contains("mounted read-only"));
        assert!(why(&Err("no answer".to_owned()), None).contains("does not answer: no answer"));
        for stays in [Some(Obstacle::Disk), Some(Obstacle::ReadOnly), None] {
            assert!(why(&filesystem(1 << 20, false), met(stays)).contains("an error"));
        }
    }

    #[test]
    fn reserve_is_proportional_and_bounded() {
        assert_eq!(reserve_bytes(96 << 20), 3 << 20);
        assert_eq!(reserve_bytes(1 << 40), STATE_RESERVE_BYTES_MAX);
    }
}
