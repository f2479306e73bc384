//! Locks: taking a mutex whose content no panic can leave half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks state that is changed in one step, so a panic elsewhere leaves it consistent.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
