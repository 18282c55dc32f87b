//! Running the user's code without being taken down by it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the user's code, and returns a panic as its text.
///
/// Unwind safety: values that the code leaves half done are the user's and are dropped, or belong
/// to the user's shared state, whose locks poison themselves.
#[inline]
pub fn caught<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = text_of(&*panic);
        // The payload is the user's too, and its drop may panic as well.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(panic))).map_err(std::mem::forget);
        text
    })
}

/// Drops a value of the user's. Returns whether that panicked.
#[inline]
pub fn dropped<T>(value: T) -> bool {
    caught(move || drop(value)).is_err()
}

/// Wakes tasks of the user's. A waker that panics affects its owner, and not the message that is
/// being settled.
#[inline]
pub fn shielded(wake: impl FnOnce()) {
    if let Err(text) = caught(wake) {
        tracing::error!(target: "keylane", panic = %text, "a waker panicked");
    }
}

/// Clones the user's key. Returns `None` if that panics.
pub fn cloned<K: Clone>(key: &K) -> Option<K> {
    caught(|| key.clone()).ok()
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }

    #[test]
    fn panics_become_text() {
        assert_eq!(caught(|| 1), Ok(1));
        assert_eq!(caught(|| panic!("plain")), Err::<(), _>("plain".to_owned()));
        assert_eq!(caught(|| panic!("{}", 7)), Err::<(), _>("7".to_owned()));
    }

    #[test]
    fn a_payload_that_panics_in_drop_is_survived() {
        assert!(caught(|| std::panic::panic_any(Bomb)).is_err());
        assert!(dropped(Bomb));
        assert!(!dropped(()));
    }
}
