//! PgBouncer, in front of a PostgreSQL server.

use std::fmt;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::daemon::{Daemon, PORTS, is_port_taken, on_thread, temporary_folder};
use crate::port::free_port;
use crate::process::{Program, User};
use crate::program::{find, run, service_user};
use crate::server::LOG;
use crate::{Postgres, ServerError};

/// How long one query may take to find out whether the bouncer is ready, in seconds.
const PROBE_SECONDS: u64 = 10;

/// For how long a client has the same session of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Until it disconnects.
    Session,
    /// Until its transaction ends. Prepared statements are not tracked.
    Transaction,
    /// Until its transaction ends. Statements are prepared in each session that needs them:
    /// [`Bouncer::tracks_statements`].
    Tracked,
}

/// A PgBouncer of a test, in front of a [`Postgres`], on a port of the loopback address.
///
/// It runs with the default settings, except the pooling, and `default_pool_size`, which is 100.
/// User and password are those of the server. When the test runs as root, it runs as the user
/// `postgres`, because it refuses to run as root. It ends when this value is dropped, or with the
/// test. The asynchronous methods work on a thread of their own: see [`Server`](crate::Server).
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{Bouncer, Pooling, Postgres};
///
/// let server = Postgres::start().await?;
/// let bouncer = Bouncer::start(Pooling::Session, &server).await?;
/// println!("connect to port {} instead of {}", bouncer.port(), server.port());
/// # Ok(())
/// # }
/// ```
pub struct Bouncer {
    inner: Arc<Inner>,
}

struct Inner {
    program: PathBuf,
    client: PathBuf,
    user: Option<User>,
    port: u16,
    /// Before the folder, so that it is dropped first.
    daemon: Daemon,
    folder: TempDir,
}

impl Bouncer {
    /// Starts a bouncer and waits until it answers. The server need not run.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if PgBouncer is not installed, and the other variants if
    /// it does not start.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the bouncer ends as soon as it is ready.
    pub async fn start(pooling: Pooling, server: &Postgres) -> Result<Self, ServerError> {
        let server = server.port();
        let inner = on_thread(move || Inner::start(pooling, server)).await?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Returns whether the installed PgBouncer knows [`Pooling::Tracked`]: 1.21 and newer do.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if it is not installed.
    pub fn tracks_statements() -> Result<bool, ServerError> {
        let shown = run(&find("pgbouncer")?, None, PROBE_SECONDS, |bouncer| {
            bouncer.arg("--version");
        })?;
        Ok(version(&shown) >= Some((1, 21)))
    }

    /// Returns the port, on 127.0.0.1. It stays the same for the life of this value.
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// Returns the process id; `None` when it does not run.
    ///
    /// Blocks the thread while the bouncer is being started.
    pub fn pid(&self) -> Option<u32> {
        self.inner.daemon.pid()
    }

    /// Returns the output so far, for the message of a failed test.
    pub fn log(&self) -> String {
        self.inner.daemon.log()
    }

    /// Kills it with SIGKILL, and all connections with it. Does nothing if it does not run.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if it cannot be killed.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is killed all the same.
    pub async fn kill(&self) -> Result<(), ServerError> {
        let inner = Arc::clone(&self.inner);
        on_thread(move || inner.daemon.kill()).await
    }

    /// Starts it again after [`kill`](Self::kill), on the same port.
    ///
    /// # Errors
    ///
    /// [`Running`](ServerError::Running) if it runs; [`Ended`](ServerError::Ended) or
    /// [`NotReady`](ServerError::NotReady) if it does not start.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is started all the same.
    pub async fn start_again(&self) -> Result<(), ServerError> {
        let inner = Arc::clone(&self.inner);
        on_thread(move || inner.run()).await
    }
}

impl fmt::Debug for Bouncer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bouncer")
            .field("port", &self.inner.port)
            .field("folder", &self.inner.folder.path())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn start(pooling: Pooling, server: u16) -> Result<Self, ServerError> {
        let folder = temporary_folder()?;
        let mut inner = Self {
            program: find("pgbouncer")?,
            client: find("psql")?,
            user: service_user(folder.path(), "postgres")?,
            port: 0,
            daemon: Daemon::new(folder.path().join(LOG)),
            folder,
        };
        let mut tried = 0;
        loop {
            tried += 1;
            inner.port = free_port().map_err(ServerError::system("find a free port"))?;
            inner.configure(pooling, server)?;
            match inner.run() {
                Err(error) if is_port_taken(&error) && tried < PORTS => {}
                started => return started.map(|()| inner),
            }
        }
    }

    /// Writes the files, and gives them to the user of the bouncer.
    fn configure(&self, pooling: Pooling, server: u16) -> Result<(), ServerError> {
        let (folder, user, password) = (self.folder.path(), Postgres::USER, Postgres::PASSWORD);
        let (users, settings) = (users(folder), settings(folder));
        let is_tracked = pooling == Pooling::Tracked;
        let pooling = match pooling {
            Pooling::Session => "session",
            Pooling::Transaction | Pooling::Tracked => "transaction",
        };
        // Older ones refuse the setting.
        let statements = match Bouncer::tracks_statements()? {
            true => format!(
                "max_prepared_statements = {}\n",
                if is_tracked { 200 } else { 0 }
            ),
            false => String::new(),
        };
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {}\nadmin_users = {user}\n\
             pool_mode = {pooling}\ndefault_pool_size = 100\n{statements}",
            self.port,
            users.display(),
        );
        let written = || {
            fs::write(&users, format!("\"{user}\" \"{password}\"\n"))?;
            fs::write(&settings, text)?;
            let Some(user) = self.user else { return Ok(()) };
            [folder, &users, &settings]
                .into_iter()
                .try_for_each(|path| chown(path, Some(user.uid), Some(user.gid)))
        };
        written().map_err(ServerError::system("prepare the folder of the bouncer"))
    }

    fn run(&self) -> Result<(), ServerError> {
        let folder = self.folder.path();
        let program = Program::new(&self.program, folder, &folder.join(LOG))
            .user(self.user)
            .arg(settings(folder));
        self.daemon.start(program, |_| Ok(self.is_ready()))
    }

    /// Returns whether it answers, and is the one with these files: another one may have taken the
    /// port.
    fn is_ready(&self) -> bool {
        let shown = run(&self.client, None, PROBE_SECONDS, |psql| {
            psql.env("PGPASSWORD", Postgres::PASSWORD);
            psql.args(["--host=127.0.0.1", &format!("--port={}", self.port)]);
            psql.args(["--username", Postgres::USER, "--no-password"]);
            psql.args(["--dbname=pgbouncer", "--no-psqlrc", "--command=show config"]);
        });
        let users = users(self.folder.path());
        shown.is_ok_and(|shown| shown.contains(&*users.to_string_lossy()))
    }
}

/// Reads the version from `PgBouncer 1.25.2` and further lines.
fn version(shown: &str) -> Option<(u32, u32)> {
    let mut numbers = shown.split_whitespace().nth(1)?.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

fn users(folder: &Path) -> PathBuf {
    folder.join("users")
}

fn settings(folder: &Path) -> PathBuf {
    folder.join("bouncer.ini")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let shown = "PgBouncer 1.18.0\nlibevent 2.1.12-stable\n";
        assert_eq!(version(shown), Some((1, 18)));
        assert_eq!(version("PgBouncer"), None);
    }
}
