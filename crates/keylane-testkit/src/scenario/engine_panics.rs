//! Panics of the engine itself.

use std::sync::{Mutex, Once, PoisonError};

/// The panics so far. The runtime catches the panic of a task. The engine then continues as if the
/// task had been aborted, and no assertion of a test would notice.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records every panic of this process that comes from the sources of `keylane`.
///
/// The previous panic hook is still called. Scripted panics call no hook.
pub fn watch_for_engine_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map_or("", |location| location.file());
            if file.contains("crates/keylane/") {
                let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
                panics.push(panic.to_string());
            }
            hook(panic);
        }));
    });
}

/// Asserts that no task of an engine in this process has panicked since
/// [`watch_for_engine_panics`] was first called.
///
/// # Panics
///
/// Panics if a task has panicked, with all messages.
#[track_caller]
pub fn assert_no_engine_panics() {
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let panics = panics.join("\n");
    assert!(panics.is_empty(), "{panics}");
}
