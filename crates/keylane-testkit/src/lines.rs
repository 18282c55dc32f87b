//! What is logged.

use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Subscriber};

/// What is logged: the writer of a subscriber, and its lines so far. Clones share the lines.
///
/// ```
/// use std::io::Write;
/// use keylane_testkit::Lines;
///
/// let lines = Lines::new();
/// // For a test: `tracing_subscriber::fmt().with_writer(lines.writer())`.
/// let writer = lines.writer();
/// writer().write_all(b"INFO one\nWARN two\n").unwrap();
/// assert_eq!(lines.with("WARN"), ["WARN two"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

/// Makes a subscriber the one of this thread, until the guard is dropped.
///
/// Call this in tests in place of `tracing::subscriber::set_default`. While a process has one
/// subscriber only, `tracing` decides whether a line is of use by the subscriber of the thread that
/// first comes to that line. A test on another thread has none. The line would then be off for
/// all, also for the test that waits for it.
pub fn set_subscriber(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
    LazyLock::force(&ANOTHER);
    tracing::subscriber::set_default(subscriber)
}

impl Lines {
    /// Returns no lines.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a function that makes writers, for `with_writer` of `tracing-subscriber`.
    pub fn writer(&self) -> impl Fn() -> Self + Send + Sync + 'static {
        let lines = self.clone();
        move || lines.clone()
    }

    /// Returns all lines.
    pub fn all(&self) -> Vec<String> {
        self.with("")
    }

    /// Returns the lines that contain a text.
    pub fn with(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = String::from_utf8_lossy(&bytes);
        let lines = written.lines().filter(|line| line.contains(text));
        lines.map(str::to_owned).collect()
    }

    /// Asserts that the lines about messages that failed and were given up have these fields, as
    /// after [`give_up`](crate::scenario::give_up).
    ///
    /// # Panics
    ///
    /// Panics if one of them has not, or if there are none.
    #[track_caller]
    pub fn assert_named(&self, fields: &str) {
        for what in ["an attempt failed", "gave up on the message"] {
            let about = self.with(what);
            assert!(!about.is_empty(), "no line `{what}`: {:#?}", self.all());
            for line in about {
                assert!(line.contains(fields), "without `{fields}`: {line}");
            }
        }
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
