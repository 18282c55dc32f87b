//! The code that all database servers share.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use crate::ServerError;
use crate::clock::Clock;
use crate::daemon::{Daemon, PORTS, is_port_taken, on_thread, temporary_folder};
use crate::kind::Kind;
use crate::port::free_port;

/// How long one query may take to find out whether the server is ready, in seconds.
const PROBE_SECONDS: u64 = 10;

/// How long a client program may take for one call, in seconds.
pub(super) const QUERY_SECONDS: u64 = 60;

/// A database server of a test, in a private temporary folder, on a port of the loopback address.
///
/// Use it as [`Postgres`](crate::Postgres) or [`MariaDb`](crate::MariaDb).
///
/// If the value is dropped, the server ends and its folder is removed; that blocks the thread for
/// at most some seconds. When the test ends without a drop, by SIGKILL or with the server in a
/// `static`, the server ends and its folder is removed soon after. The folder stays only if the
/// server did not run at that moment.
///
/// All methods take `&self`: tasks that share a server put it into an `Arc`.
///
/// The asynchronous methods work on a thread of their own, so an operation finishes even if its
/// future is dropped, and the next operation waits for it. They do not use Tokio's clock: a test
/// may pause it.
///
/// # Examples
///
/// A test whose data outlive a crash:
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::Postgres;
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

pub(super) struct Inner<K> {
    pub(super) kind: K,
    pub(super) port: u16,
    databases: AtomicU64,
    /// `None`: the clock of the machine.
    clock: Option<Clock>,
    /// Before the folder, so that it is dropped first.
    pub(super) daemon: Daemon,
    pub(super) folder: TempDir,
}

impl<K: Kind> Server<K> {
    /// The user of the URLs. It has all rights.
    pub const USER: &str = "keylane";

    /// The password of [`USER`](Self::USER), for tests that check that it does not appear in logs
    /// and errors.
    pub const PASSWORD: &str = "keylane-password";

    /// Creates a server, starts it and waits until it answers a query, at most 60 s.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if the server is not installed, and the other variants if
    /// it does not start.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server ends and its folder is removed as soon as it is ready.
    pub async fn start() -> Result<Self, ServerError> {
        Self::create(K::create).await
    }

    /// Starts a server whose data `create` creates.
    pub(crate) async fn create(
        create: impl FnOnce(&Path) -> Result<K, ServerError> + Send + 'static,
    ) -> Result<Self, ServerError> {
        let inner = on_thread(|| Inner::start(free_port, create, |_| Ok(None))).await?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Starts a server like [`start`](Self::start), with a clock that the test can set.
    ///
    /// # Errors
    ///
    /// The same as those of [`start`](Self::start); [`Missing`](ServerError::Missing) also without
    /// `faketime`.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server ends and its folder is removed as soon as it is ready.
    pub async fn start_with_clock() -> Result<(Self, Clock), ServerError> {
        let started = on_thread(|| {
            let mut clock = None;
            let inner = Inner::start(free_port, K::create, |folder| {
                clock = Some(Clock::of(folder)?);
                Ok(clock.clone())
            })?;
            Ok((inner, clock.expect("the server has been started with it")))
        });
        let (inner, clock) = started.await?;
        let inner = Arc::new(inner);
        Ok((Self { inner }, clock))
    }

    /// Returns the URL of a database, with the user and the password.
    pub fn url(&self, database: &str) -> String {
        let (user, password) = (Self::USER, Self::PASSWORD);
        let (scheme, port) = (K::SCHEME, self.port());
        format!("{scheme}://{user}:{password}@127.0.0.1:{port}/{database}")
    }

    /// Returns the port, on 127.0.0.1. It stays the same for the life of this value.
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// Returns the process id of the server; `None` when it does not run.
    ///
    /// Blocks the thread while the server is being started or stopped.
    pub fn pid(&self) -> Option<u32> {
        self.inner.daemon.pid()
    }

    /// Returns the folder of this server. It is removed when this value is dropped.
    pub fn folder(&self) -> &Path {
        self.inner.folder.path()
    }

    /// Returns the output of the server so far, for the message of a failed test.
    pub fn log(&self) -> String {
        self.inner.daemon.log()
    }

    /// Creates an empty database with a name of its own, and returns its URL.
    ///
    /// So tests can share a server and each have a database of their own.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if the server does not answer within 4 minutes, or
    /// refuses.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
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

    /// Executes statements in a database through the client program of the server, without a
    /// driver. Returns the rows as text: a line for each row, a tab between columns.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if the server does not answer within 4 minutes, or
    /// refuses.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
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
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is stopped all the same.
    pub async fn stop(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.daemon.stop(K::STOP_SIGNAL)).await
    }

    /// Kills all processes of the server with SIGKILL, as a crash would. When this returns, they
    /// are gone.
    ///
    /// Does nothing if the server does not run.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if the processes cannot be killed.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is killed all the same.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.daemon.kill()).await
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
    /// Panics outside a Tokio runtime.
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
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is paused all the same.
    pub async fn pause(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.daemon.pause()).await
    }

    /// Resumes a paused server, with SIGCONT.
    ///
    /// # Errors
    ///
    /// [`NotRunning`](ServerError::NotRunning) if the server does not run.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server is resumed all the same.
    pub async fn resume(&self) -> Result<(), ServerError> {
        self.run(|inner| inner.daemon.resume()).await
    }

    pub(super) async fn run<T: Send + 'static>(
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

impl<K: Kind> Inner<K> {
    fn start(
        mut port: impl FnMut() -> io::Result<u16>,
        create: impl FnOnce(&Path) -> Result<K, ServerError>,
        clock: impl FnOnce(&Path) -> Result<Option<Clock>, ServerError>,
    ) -> Result<Self, ServerError> {
        let folder = temporary_folder()?;
        let kind = create(folder.path())?;
        let clock = clock(folder.path())?;
        let mut inner = Self {
            kind,
            port: 0,
            databases: AtomicU64::new(1),
            clock,
            daemon: Daemon::new(folder.path().join(LOG)),
            folder,
        };
        let mut tried = 0;
        loop {
            tried += 1;
            inner.port = port().map_err(ServerError::system("find a free port"))?;
            match inner.start_again() {
                Err(error) if is_port_taken(&error) && tried < PORTS => {}
                started => return started.map(|()| inner),
            }
        }
    }

    pub(super) fn start_again(&self) -> Result<(), ServerError> {
        let (kind, folder, port) = (&self.kind, self.folder.path(), self.port);
        let program = kind.program(folder, port);
        let program = match &self.clock {
            Some(clock) => clock.given_to(program),
            None => program,
        };
        self.daemon
            .start(program, |_| Ok(kind.is_ready(folder, port, PROBE_SECONDS)))
    }
}

/// The file of the log in the folder of a server.
pub(crate) const LOG: &str = "log";

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::{Maria, PostgreSql};

    /// The first two ports are taken: by a program that does not answer as a server would, and by a
    /// server of the same kind, which lets the same user in.
    fn takes_another_port<K: Kind>() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = listener.local_addr().unwrap().port();
        let other = Inner::<K>::start(free_port, K::create, |_| Ok(None)).unwrap();
        let free = free_port().unwrap();
        let mut ports = [silent, other.port, free].into_iter();
        let port = || Ok(ports.next().unwrap());
        let server = Inner::<K>::start(port, K::create, |_| Ok(None)).unwrap();
        assert_eq!(server.port, free);
        assert!(server.daemon.log().contains("Address already in use"));
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
