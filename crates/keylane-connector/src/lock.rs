//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose value is whole at any time, also after a panic.
///
/// ```
/// use std::sync::Mutex;
///
/// let count = Mutex::new(1);
/// *keylane_connector::lock(&count) += 1;
/// assert_eq!(*keylane_connector::lock(&count), 2);
/// ```
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
