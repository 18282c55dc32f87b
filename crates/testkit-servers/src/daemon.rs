//! The life of one server process, and of the next ones on the same data.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::ServerError;
use crate::process::{Process, Program};
use crate::program::tail;

/// What a server is given to become ready, and to stop.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long a server that was not ready is left alone.
const PROBE_PAUSE: Duration = Duration::from_millis(50);

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
    /// A server that does not run yet, and whose programs print to the file `log`.
    pub(crate) fn new(log: PathBuf) -> Self {
        Self {
            log,
            process: Mutex::new(None),
        }
    }

    /// The process id; `None` when the server does not run.
    pub(crate) fn pid(&self) -> Option<u32> {
        let mut process = self.lock();
        let process = process.as_mut()?;
        matches!(process.ended(), Ok(None)).then(|| process.pid())
    }

    /// What the server has printed so far, from its first start on.
    pub(crate) fn log(&self) -> String {
        // Not there before the first start. A server may print what is no UTF-8.
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Starts `program` and asks `is_ready` again and again. It is given what this program has
    /// printed, and may give up with an error.
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

    /// A panic leaves a process in its slot or none, which are both states to go on from.
    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Processes are waited for with a thread's sleep. Tokio's clock may be paused in a test, and does
/// not run ahead while a thread like this is busy.
pub(crate) async fn on_thread<T: Send + 'static>(
    operation: impl FnOnce() -> T + Send + 'static,
) -> T {
    match tokio::task::spawn_blocking(operation).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// A temporary folder of a server.
pub(crate) fn temporary_folder() -> Result<tempfile::TempDir, ServerError> {
    tempfile::Builder::new()
        .prefix("keylane-")
        .tempdir()
        .map_err(ServerError::system("create the folder of the server"))
}

/// A server that could not have its port: another process may take one just before it does.
pub(crate) fn is_port_taken(error: &ServerError) -> bool {
    matches!(error, ServerError::Ended { log, .. } if log.contains("Address already in use"))
}

/// How many ports are tried, because of [`is_port_taken`].
pub(crate) const PORTS: usize = 5;

fn observe(source: io::Error) -> ServerError {
    ServerError::system("observe the server")(source)
}

fn kill(source: io::Error) -> ServerError {
    ServerError::system("kill the server")(source)
}
