//! The clock of a server, which a test sets.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ServerError;
use crate::process::Program;
use crate::program::find;

/// The library beside the program `faketime`, in the folder of the machine's architecture; the
/// loader replaces `$LIB` with that folder.
const LIBRARY: &str = "/usr/$LIB/faketime/libfaketime.so.1";

/// The clock of one server. It begins as that of the machine, and a test can set it while the
/// server runs. The server's monotonic clock goes on unchanged, as when an operator sets the time.
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
    /// Creates the clock of a server with this folder.
    pub(crate) fn of(folder: &Path) -> Result<Self, ServerError> {
        // The library comes with it.
        find("faketime")?;
        let clock = Self {
            file: folder.join("clock"),
        };
        clock.set(0)?;
        Ok(clock)
    }

    /// Returns the program with this clock in place of that of the machine.
    pub(crate) fn given_to(&self, program: Program) -> Program {
        program
            .env("LD_PRELOAD", LIBRARY)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            // Without this, the server reads it only every ten seconds.
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1")
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
