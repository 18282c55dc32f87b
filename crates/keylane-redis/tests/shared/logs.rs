//! The lines that an operator reads.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Records what this thread logs, until it is dropped. All tasks of a test run on its one thread.
pub(crate) struct Logs {
    lines: Lines,
    _on: DefaultGuard,
}

impl Logs {
    pub(crate) fn record() -> Self {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::INFO)
            .with_ansi(false)
            .with_writer(lines.clone())
            .finish();
        let _on = keylane_testkit::set_subscriber(subscriber);
        Self { lines, _on }
    }

    /// Returns the lines of keylane at this level.
    pub(crate) fn at(&self, level: Level) -> Vec<String> {
        let lines = String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap();
        let level = format!(" {level} keylane");
        let of_level = lines.lines().filter(|line| line.contains(&level));
        of_level.map(str::to_owned).collect()
    }
}
