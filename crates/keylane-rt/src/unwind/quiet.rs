//! The user's values, dropped without being taken down by it.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::caught::dropped;

/// A value of the user's, which may panic in its `Drop` without consequence: its last owner may be
/// a lane that is being removed, the task that keeps the time, or work that unwinds.
pub struct Quiet<T>(Option<T>);

impl<T> Quiet<T> {
    /// Holds a value.
    pub fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// Returns the value.
    pub fn get(&self) -> &T {
        self.0.as_ref().expect("only its end takes the value out")
    }

    /// Returns the value, whose drop is up to the caller.
    pub fn into_inner(mut self) -> T {
        self.0.take().expect("only its end takes the value out")
    }
}

impl<T> Drop for Quiet<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take()
            && std::mem::needs_drop::<T>()
            && dropped(value)
        {
            tracing::error!(target: "keylane", "a message or a key panicked when it was dropped");
        }
    }
}

// The value is the user's: it is not shown, and need not be showable.
impl<T> fmt::Debug for Quiet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Quiet(..)")
    }
}

impl<T: Clone> Clone for Quiet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: PartialEq> PartialEq for Quiet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq> Eq for Quiet<T> {}

impl<T: Hash> Hash for Quiet<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
