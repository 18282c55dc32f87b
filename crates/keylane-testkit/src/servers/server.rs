//! What all servers have in common.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::servers::ServerError;
use crate::servers::kind::Kind;
use crate::servers::port::free_port;
use crate::servers::process::Process;
use crate::servers::program::tail;

/// What a server is given to answer its first query, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a server that was not ready is left alone.
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// What one query is given to say whether the server is ready, in seconds.
const PROBE_SECONDS: u64 = 10;

/// What a client program is given for one call, in seconds.
const QUERY_SECONDS: u64 = 60;

/// How many ports are tried, because another process may take one just before the server does.
const PORTS: usize = 5;

/// A database server of a test, in a private temporary folder, on a port of the loopback address.
///
/// Use it as [`Postgres`](crate::servers::Postgres) or [`MariaDb`](crate::servers::MariaDb).
///
/// Dropping it ends the server and removes its folder; it blocks the thread for that long, at most
/// some seconds. When the test ends without a drop, by SIGKILL or with the server in a `static`, the
/// server ends and its folder is removed soon after. Only the folder of a server that did not run at
/// that moment stays behind.
///
/// All methods take `&self`: tasks that share a server put it into an `Arc`.
///
/// The asynchronous methods work on a thread of their own, so an operation goes on to its end when
/// its future is dropped, and the next operation waits for it. They leave Tokio's clock alone: a test
/// may pause it.
///
/// # Examples
///
/// A test whose data outlive a crash:
///
/// ```no_run
/// # async fn test() -> Result<(), keylane_testkit::servers::ServerError> {
/// use keylane_testkit::servers::Postgres;
///
/// let server = Postgres::start().await?;
/// let url = server.create_database().await?;
/// // … connect to `url` and write …
/// server.kill().await?;
/// server.start_again().await?;
/// // … connect to `url` again and read …
/// # Ok(())
/// # }
/// ```
pub struct Server<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    kind: K,
    port: u16,
    databases: AtomicU64,
    /// `None` when the server was stopped or killed. Before the folder, so that it is dropped first.
    process: Mutex<Option<Process>>,
    folder: TempDir,
}

impl<K: Kind> Server<K> {
    /// The user as whom a URL connects. It may do everything.
    pub const USER: &str = "keylane";

    /// The password of [`USER`](Self::USER), for tests that see whether it shows where it must not.
    pub const PASSWORD: &str = "keylane-password";

    /// Creates a server, starts it and waits until it answers a query, at most 60 s.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if the server is not installed, and the other variants if it
    /// does not start.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is ended and its folder removed as soon as it is ready.
    pub async fn start() -> Result<Self, ServerError> {
        let inner = on_thread(|| Inner::start(free_port)).await?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The URL of a database, with the user and the password.
    pub fn url(&self, database: &str) -> String {
        let (user, password) = (Self::USER, Self::PASSWORD);
        let (scheme, port) = (K::SCHEME, self.port());
        format!("{scheme}://{user}:{password}@127.0.0.1:{port}/{database}")
    }

    /// The port, on 127.0.0.1. It stays the same for the life of this value.
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// The process id of the server; `None` when it does not run.
    ///
    /// Blocks the thread while the server is being started or stopped.
    pub fn pid(&self) -> Option<u32> {
        let mut process = self.inner.lock();
        let process = process.as_mut()?;
        matches!(process.ended(), Ok(None)).then(|| process.pid())
    }

    /// The folder of this server. It is gone when this value is dropped.
    pub fn folder(&self) -> &Path {
        self.inner.folder.path()
    }

    /// What the server has printed so far, for the message of a test that fails.
    pub fn log(&self) -> String {
        self.inner.log()
    }

    /// Creates an empty database with a name of its own, and returns its URL.
    ///
    /// Tests can share a server this way and still be alone in their database.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if the server does not answer within 60 s, or refuses.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the database is created all the same.
    pub async fn create_database(&self) -> Result<String, ServerError> {
        let number = self.inner.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("keylane_{number}");
        self.execute(K::DATABASE, &format!("create database {name}"))
            .await?;
        Ok(self.url(&name))
    }

    /// Executes statements in a database through the client program of the server, without a driver.
    /// Returns the rows as text: a line for each row, a tab between columns.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if the server does not answer within 60 s, or refuses.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the statements are executed all the same.
    pub async fn execute(&self, database: &str, sql: &str) -> Result<String, ServerError> {
        let (database, sql) = (database.to_owned(), sql.to_owned());
        self.run(move |inner| {
            inner
                .kind
                .execute(inner.port, &database, &sql, QUERY_SECONDS)
        })
        .await
    }

    /// Tells the server to stop in order, and waits until it has ended. Its sessions are closed.
    ///
    /// Does nothing if the server does not run.
    ///
    /// # Errors
    ///
    /// [`NotStopped`](ServerError::NotStopped) if it takes longer than 60 s. It is killed then.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is stopped all the same.
    pub async fn stop(&self) -> Result<(), ServerError> {
        self.run(Inner::stop).await
    }

    /// Kills all processes of the server with SIGKILL, as a crash would. When this returns, they are
    /// gone.
    ///
    /// Does nothing if the server does not run.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if the processes cannot be killed.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is killed all the same.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.run(Inner::kill).await
    }

    /// Starts the server again after [`stop`](Self::stop), [`kill`](Self::kill) or a crash, on the
    /// same port and with the same data, and waits until it answers a query, at most 60 s.
    ///
    /// # Errors
    ///
    /// [`Running`](ServerError::Running) if the server runs; [`Ended`](ServerError::Ended) or
    /// [`NotReady`](ServerError::NotReady) if it does not start.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is started all the same.
    pub async fn start_again(&self) -> Result<(), ServerError> {
        self.run(Inner::start_again).await
    }

    /// Stops all processes of the server where they are, with SIGSTOP. Connections stay open, and
    /// queries hang.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if the server does not run.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is paused all the same.
    pub async fn pause(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.with_process("pause the server", Process::pause))
            .await
    }

    /// Lets a server go on that was paused, with SIGCONT.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if the server does not run.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is resumed all the same.
    pub async fn resume(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.with_process("resume the server", Process::resume))
            .await
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Inner<K>) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let inner = Arc::clone(&self.inner);
        on_thread(move || operation(&inner)).await
    }
}

impl<K> fmt::Debug for Server<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("port", &self.inner.port)
            .field("folder", &self.inner.folder.path())
            .finish_non_exhaustive()
    }
}

/// Processes are waited for with a thread's sleep. Tokio's clock may be paused in a test, and does
/// not run ahead while a thread like this is busy.
async fn on_thread<T: Send + 'static>(operation: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(operation).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

impl<K: Kind> Inner<K> {
    fn start(mut port: impl FnMut() -> io::Result<u16>) -> Result<Self, ServerError> {
        let system = ServerError::system("create the folder of the server");
        let folder = tempfile::Builder::new()
            .prefix("keylane-")
            .tempdir()
            .map_err(system)?;
        let kind = K::create(folder.path())?;
        let mut inner = Self {
            kind,
            port: 0,
            databases: AtomicU64::new(1),
            process: Mutex::new(None),
            folder,
        };
        let mut tried = 0;
        loop {
            tried += 1;
            inner.port = port().map_err(ServerError::system("find a free port"))?;
            match inner.start_again() {
                Err(ServerError::Ended { log, .. })
                    if log.contains("Address already in use") && tried < PORTS => {}
                started => return started.map(|()| inner),
            }
        }
    }

    fn start_again(&self) -> Result<(), ServerError> {
        let mut slot = self.lock();
        if let Some(process) = slot.as_mut()
            && process.ended().map_err(observe)?.is_none()
        {
            return Err(ServerError::Running);
        }
        *slot = None;
        let logged = self.log().len();
        let program = self.kind.program(self.folder.path(), self.port);
        let mut process = program
            .start()
            .map_err(ServerError::system("start the server"))?;
        let log = || tail(self.log().get(logged..).unwrap_or_default());
        let began = Instant::now();
        while !self
            .kind
            .is_ready(self.folder.path(), self.port, PROBE_SECONDS)
        {
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

    fn stop(&self) -> Result<(), ServerError> {
        let Some(mut process) = self.lock().take() else {
            return Ok(());
        };
        let ended = process
            .resume()
            .and_then(|()| process.signal(K::STOP_SIGNAL))
            .and_then(|()| process.ends_within(PATIENCE));
        if ended.map_err(ServerError::system("stop the server"))? {
            return Ok(());
        }
        process.kill().map_err(kill)?;
        let seconds = PATIENCE.as_secs();
        Err(ServerError::NotStopped { seconds })
    }

    fn kill(&self) -> Result<(), ServerError> {
        match self.lock().take() {
            Some(mut process) => process.kill().map_err(kill),
            None => Ok(()),
        }
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
}

impl<K> Inner<K> {
    fn log(&self) -> String {
        // Not there before the first start. A server may print what is no UTF-8.
        let bytes = fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A panic leaves a process in its slot or none, which are both states to go on from.
    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of the log in the folder of a server.
pub(crate) const LOG: &str = "log";

fn observe(source: io::Error) -> ServerError {
    ServerError::system("observe the server")(source)
}

fn kill(source: io::Error) -> ServerError {
    ServerError::system("kill the server")(source)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::servers::{Maria, PostgreSql};

    /// The first two ports are taken: by a program that does not answer as a server would, and by a
    /// server of the same kind, which lets the same user in.
    fn takes_another_port<K: Kind>() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = listener.local_addr().unwrap().port();
        let other = Inner::<K>::start(free_port).unwrap();
        let free = free_port().unwrap();
        let mut ports = [silent, other.port, free].into_iter();
        let server = Inner::<K>::start(|| Ok(ports.next().unwrap())).unwrap();
        assert_eq!(server.port, free);
        assert!(server.log().contains("Address already in use"));
    }

    #[test]
    fn postgres_takes_another_port_when_one_is_taken() {
        takes_another_port::<PostgreSql>();
    }

    #[test]
    fn mariadb_takes_another_port_when_one_is_taken() {
        takes_another_port::<Maria>();
    }
}
