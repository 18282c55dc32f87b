//! Locks whose values are whole, whatever panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex under which whole values are replaced, so that a panic leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
