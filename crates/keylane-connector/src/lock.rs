//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose value is whole at any time, also after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
