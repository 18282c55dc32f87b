//! A failure that lasts.

use std::time::SystemTime;

/// Since when it fails, and why.
#[derive(Clone, Debug)]
pub(crate) struct Fault<E> {
    pub(crate) since: SystemTime,
    pub(crate) error: E,
}
