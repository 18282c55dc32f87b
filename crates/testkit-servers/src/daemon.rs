//! The life of one server process, and of its successors on the same data.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::ServerError;
use crate::process::{Process, Program};
use crate::program::tail;

/// How long a server may take to become ready, and to stop.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// How long to wait after a server was not ready.
pub(crate) const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// A server that runs, or that was stopped or killed and can be started again.
///
/// All methods block the thread. An operation waits for the one before it.
#[derive(Debug)]
pub(crate) struct Daemon {
    log: PathBuf,
    /// `None` when the server was stopped or killed.
    process: Mutex<Option<Process>>,
}

impl Daemon {
    /// Creates a server that does not run yet, and whose programs print to the file `log`.
    pub(crate) fn new(log: PathBuf) -> Self {
        Self {
            log,
            process: Mutex::new(None),
        }
    }

    /// Returns the process id; `None` when the server does not run.
    pub(crate) fn pid(&self) -> Option<u32> {
        let mut process = self.lock();
        let process = process.as_mut()?;
        matches!(process.ended(), Ok(None)).then(|| process.pid())
    }

    /// Returns the output of the server so far, from its first start on.
    pub(crate) fn log(&self) -> String {
        // The file does not exist before the first start. A server may print bytes that are not
        // UTF-8.
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Starts `program` and calls `is_ready` again and again. `is_ready` gets the output of this
    /// program, and may give up with an error.
    pub(crate) fn start(
        &self,
        program: Program,
        mut is_ready: impl FnMut(&dyn Fn() -> String) -> Result<bool, ServerError>,
    ) -> Result<(), ServerError> {
        let mut slot = self.lock();
        if let Some(process) = slot.as_mut()
            && process.ended().map_err(observe)?.is_none()
        {
            return Err(ServerError::Running);
        }
        *slot = None;
        let logged = self.log().len();
        let mut process = program
            .start()
            .map_err(ServerError::system("start the server"))?;
        let printed = || self.log().get(logged..).unwrap_or_default().to_owned();
        let log = || tail(&printed());
        let began = Instant::now();
        while !is_ready(&printed)? {
            if let Some(status) = process.ended().map_err(observe)? {
                return Err(ServerError::Ended { status, log: log() });
            }
            if began.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                return Err(ServerError::NotReady {
                    seconds,
                    log: log(),
                });
            }
            thread::sleep(PROBE_PAUSE);
        }
        *slot = Some(process);
        Ok(())
    }

    /// Sends `signal` and waits for the end. Does nothing if the server does not run.
    pub(crate) fn stop(&self, signal: &str) -> Result<(), ServerError> {
        let Some(mut process) = self.lock().take() else {
            return Ok(());
        };
        let ended = process
            .resume()
            .and_then(|()| process.signal(signal))
            .and_then(|()| process.ends_within(PATIENCE));
        if ended.map_err(ServerError::system("stop the server"))? {
            return Ok(());
        }
        process.kill().map_err(kill)?;
        let seconds = PATIENCE.as_secs();
        Err(ServerError::NotStopped { seconds })
    }

    /// Kills all processes of the server. Does nothing if it does not run.
    pub(crate) fn kill(&self) -> Result<(), ServerError> {
        match self.lock().take() {
            Some(mut process) => process.kill().map_err(kill),
            None => Ok(()),
        }
    }

    /// Stops all processes of the server as they are.
    pub(crate) fn pause(&self) -> Result<(), ServerError> {
        self.with_process("pause the server", Process::pause)
    }

    /// Lets all processes of the server go on.
    pub(crate) fn resume(&self) -> Result<(), ServerError> {
        self.with_process("resume the server", Process::resume)
    }

    fn with_process(
        &self,
        action: &'static str,
        operation: impl FnOnce(&mut Process) -> io::Result<()>,
    ) -> Result<(), ServerError> {
        let mut slot = self.lock();
        let process = slot.as_mut().ok_or(ServerError::NotRunning)?;
        if process.ended().map_err(observe)?.is_some() {
            return Err(ServerError::NotRunning);
        }
        operation(process).map_err(ServerError::system(action))
    }

    /// After a panic the slot has a process or none, and both are valid.
    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for processes on a thread. Tokio's clock may be paused in a test, and does not run ahead
/// while a thread like this is busy.
pub(crate) async fn on_thread<T: Send + 'static>(
    operation: impl FnOnce() -> T + Send + 'static,
) -> T {
    match tokio::task::spawn_blocking(operation).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// Creates a temporary folder for a server.
pub(crate) fn temporary_folder() -> Result<tempfile::TempDir, ServerError> {
    tempfile::Builder::new()
        .prefix("keylane-")
        .tempdir()
        .map_err(ServerError::system("create the folder of the server"))
}

/// Returns whether a server could not get its port: another process may take one just before it
/// does.
pub(crate) fn is_port_taken(error: &ServerError) -> bool {
    // Programs in Go begin with a small letter.
    matches!(error, ServerError::Ended { log, .. } if log.contains("ddress already in use"))
}

/// How many ports to try, because of [`is_port_taken`].
pub(crate) const PORTS: usize = 5;

fn observe(source: io::Error) -> ServerError {
    ServerError::system("observe the server")(source)
}

fn kill(source: io::Error) -> ServerError {
    ServerError::system("kill the server")(source)
}
