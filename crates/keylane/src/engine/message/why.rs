//! The text of a failure.

use std::fmt;

use keylane_rt::cut;
use keylane_rt::unwind::caught;

use crate::error::Failure;

/// Most characters kept of an error, as the reason why a lane waits.
pub(crate) const LONGEST_WHY: usize = 256;

/// The failure as a short text. Runs the user's `Debug`, so never call it under a lock.
pub(crate) fn why<E: fmt::Debug>(failure: &Failure<E>) -> Box<str> {
    match caught(|| failure.to_string()) {
        Ok(text) => cut(text, LONGEST_WHY).into(),
        Err(_) => "an error whose `Debug` panics".into(),
    }
}
