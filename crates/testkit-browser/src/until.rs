//! Waiting without a runtime.

use std::time::{Duration, Instant};

/// How long anything may take here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it is so, and looks every 20 ms.
///
/// # Panics
///
/// If it is not so within a minute.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < PATIENCE,
            "it does not come about that {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
