//! Shared model: a reader holds a snapshot that never changes, and an update replaces the current state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

/// A state of which readers hold snapshots.
#[derive(Default)]
pub(crate) struct Shared<T> {
    current: RwLock<Arc<T>>,
    /// Held by the one update that runs.
    updating: Mutex<()>,
    /// Number of updates that are visible.
    changes: AtomicU64,
}

impl<T: Clone> Shared<T> {
    /// Shares a first state.
    pub fn new(first: T) -> Shared<T> {
        Shared { current: RwLock::new(Arc::new(first)), updating: Mutex::new(()), changes: AtomicU64::new(0) }
    }

    /// The current state. It stays the same for its holder.
    pub fn snapshot(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of updates so far. A state that is read after it has all of them, and perhaps later ones.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Changes the current state.
    ///
    /// If a reader holds the state, a clone is changed instead. Only other updates wait for the cloning.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let answer = self.replace(change);
        self.changes.fetch_add(1, Ordering::Release);
        answer
    }

    fn replace<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let _updating: MutexGuard<'_, ()> = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let mut current = self.write();
        if let Some(only) = Arc::get_mut(&mut current) {
            return change(only);
        }
        let before = Arc::clone(&current);
        drop(current);
        let mut after = T::clone(&before);
        drop(before);
        let answer = change(&mut after);
        let replaced = std::mem::replace(&mut *self.write(), Arc::new(after));
        // This may be the last reference, and dropping a large state takes time, so the lock is free here.
        drop(replaced);
        answer
    }

    fn write(&self) -> RwLockWriteGuard<'_, Arc<T>> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_never_changes_and_blocks_no_update() {
        let shared = Shared::new(vec![1]);
        let before = shared.snapshot();
        let second = shared.snapshot();
        assert_eq!((shared.update(|all| all.len()), shared.changes()), (1, 1));
        shared.update(|all| all.push(2));
        assert_eq!((&*before, &*second, &*shared.snapshot()), (&vec![1], &vec![1], &vec![1, 2]));
        drop((before, second));
        shared.update(|all| all.push(3));
        assert_eq!(*shared.snapshot(), [1, 2, 3]);
    }
}
