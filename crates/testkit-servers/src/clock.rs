//! The clock of a server, or of another process, which a test sets.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ServerError;
use crate::process::Program;
use crate::program::find;

/// The library beside the program `faketime`, in the folder of the machine's architecture; the
/// loader replaces `$LIB` with that folder.
const LIBRARY: &str = "/usr/$LIB/faketime/libfaketime.so.1";

/// The clock of one process, mostly of a server. It begins as that of the machine, and a test can
/// set it while the process runs. Its monotonic clock goes on unchanged, as when an operator sets
/// the time.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::Postgres;
///
/// let (server, clock) = Postgres::start_with_clock().await?;
/// clock.set(-3_600)?;
/// // … for the server it is an hour ago …
/// # drop(server);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Clock {
    file: PathBuf,
}

impl Clock {
    /// Creates a clock whose file is in this folder: one for each folder.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if the program `faketime` is not installed;
    /// [`System`](ServerError::System) if the file cannot be written.
    pub fn of(folder: &Path) -> Result<Self, ServerError> {
        // The library comes with it.
        find("faketime")?;
        let clock = Self {
            file: folder.join("clock"),
        };
        clock.set(0)?;
        Ok(clock)
    }

    /// Returns the variables with which a process has this clock in place of that of the machine.
    pub fn variables(&self) -> [(&'static str, OsString); 5] {
        [
            ("LD_PRELOAD", LIBRARY.into()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone().into()),
            // Without this, the process reads it only every ten seconds.
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
    }

    /// Returns the program with this clock in place of that of the machine.
    pub(crate) fn given_to(&self, program: Program) -> Program {
        let variables = self.variables().into_iter();
        variables.fold(program, |program, (name, value)| program.env(name, value))
    }

    /// Sets the clock to that of the machine plus so many seconds.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if the file of the clock cannot be written.
    pub fn set(&self, seconds: i64) -> Result<(), ServerError> {
        // The server reads the file at any moment, and must not see half of it.
        let new = self.file.with_extension("new");
        let written = fs::write(&new, format!("{seconds:+}"));
        let written = written.and_then(|()| fs::rename(&new, &self.file));
        written.map_err(ServerError::system("set the clock of the server"))
    }
}
