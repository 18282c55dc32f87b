//! A single Redis or Valkey server.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::ServerError;
use crate::daemon::{Daemon, PORTS, is_port_taken, on_thread, temporary_folder};
use crate::port::free_port;
use crate::process::Program;
use crate::program::tail;
use crate::redis::builder::{Primary, RedisBuilder};
use crate::redis::clock::Clock;
use crate::redis::directives::{Place, arguments};
use crate::redis::resp::{self, Reply};
use crate::redis::{RedisKind, wheels};
use crate::server::LOG;
use crate::tls::{Files, ServerTls};

/// How long one check of a starting server may take. It is repeated.
pub(super) const PROBE: Duration = Duration::from_secs(2);

/// How long a command may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);

/// The signal after which the server writes its file and stops in order.
const STOP_SIGNAL: &str = "TERM";

/// A Redis or Valkey server of a test, in a private temporary folder, on a port of the loopback
/// address.
///
/// It runs as the user of the test, without a configuration file. A confirmed write outlives
/// [`kill`](Self::kill): the server writes an append-only file, by default to the disk before each
/// answer, and no snapshots. [`RedisBuilder`] has the other settings.
///
/// If the value is dropped, the server ends and its folder is removed; that blocks the thread for
/// less than a second. When the test ends without a drop, by SIGKILL or with the server in a
/// `static`, the server ends and its folder is removed soon after. The folder stays only if the
/// server did not run at that moment.
///
/// All methods take `&self`: tasks that share a server put it into an `Arc`.
///
/// The asynchronous methods work on a thread of their own, so an operation finishes even if its
/// future is dropped, and the next one that starts, ends, pauses or resumes the server waits for
/// it. They do not use Tokio's clock: a test may pause it.
///
/// # Examples
///
/// A test whose data outlive a crash:
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{Redis, RedisKind};
///
/// let server = Redis::start(RedisKind::Redis8).await?;
/// server.execute(&["SET", "order", "7"]).await?;
/// server.kill().await?;
/// server.start_again().await?;
/// assert_eq!(server.execute(&["GET", "order"]).await?, "7");
/// # Ok(())
/// # }
/// ```
pub struct Redis {
    inner: Arc<Inner>,
}

struct Inner {
    settings: RedisBuilder,
    program: PathBuf,
    port: u16,
    bus: Option<u16>,
    /// The port with TLS of a node of a cluster.
    tls: Option<u16>,
    clock: Option<Clock>,
    /// Before the folder, so that it is dropped first.
    daemon: Daemon,
    folder: TempDir,
}

impl Redis {
    /// Creates a server, starts it and waits until it answers, at most 60 s.
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
    pub async fn start(kind: RedisKind) -> Result<Self, ServerError> {
        Self::builder(kind).start().await
    }

    /// Returns the builder of a server with other settings.
    pub fn builder(kind: RedisKind) -> RedisBuilder {
        RedisBuilder::new(kind)
    }

    /// Creates a server that is the only node of its cluster and has no slots yet. Blocks the
    /// thread, which runs no task of a runtime.
    pub(super) fn create_node(settings: &RedisBuilder) -> Result<Self, ServerError> {
        Inner::start(settings, true, free_port).map(Self::new)
    }

    fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns another handle to the same server.
    pub(super) fn share(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }

    /// Returns the kind of the server.
    pub fn kind(&self) -> RedisKind {
        self.inner.settings.kind
    }

    /// Returns the URL for clients, with the password if there is one, and without a database.
    pub fn url(&self) -> String {
        let port = self.port();
        match self.password() {
            Some(password) => format!("redis://:{}@127.0.0.1:{port}/", escaped(password)),
            None => format!("redis://127.0.0.1:{port}/"),
        }
    }

    /// Returns the settings with which it was created.
    pub(super) fn settings(&self) -> &RedisBuilder {
        &self.inner.settings
    }

    /// Returns whether it is a primary, or a replica with all data of its primary so far.
    pub(super) fn follows_if_it_should(&self) -> bool {
        let info = self.inner.execute(&["INFO", "replication"], PROBE);
        info.is_ok_and(|info| {
            let is = |name, value| resp::field(&info, name) == Some(value);
            is("role", "master") || is("master_link_status", "up")
        })
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.inner.settings.password.as_deref()
    }

    /// Returns the port, on 127.0.0.1. It stays the same for the life of this value.
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// Returns the port with TLS, on 127.0.0.1, of a node of a
    /// [cluster](RedisBuilder::cluster_tls) that has them; `None` of other servers.
    pub fn tls_port(&self) -> Option<u16> {
        self.inner.tls
    }

    /// Returns the port for the other nodes of its cluster.
    pub(super) fn bus(&self) -> Option<u16> {
        self.inner.bus
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

    /// Executes a command, given as its words, on a connection of its own, and returns the reply as
    /// text, in the format of `redis-cli`: an array as a line for each element, a nested array as
    /// lines of its own, and the absence of a value as `(nil)`.
    ///
    /// # Errors
    ///
    /// [`Refused`](ServerError::Refused) with the text of the server if it replies with an error,
    /// [`NotReady`](ServerError::NotReady) if it does not reply within 4 minutes, and
    /// [`System`](ServerError::System) if it cannot be reached.
    ///
    /// # Panics
    ///
    /// Panics if `command` is empty, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the command is executed all the same.
    pub async fn execute(&self, command: &[&str]) -> Result<String, ServerError> {
        assert!(!command.is_empty(), "a command has one word at least");
        let command: Vec<_> = command.iter().map(|&word| word.to_owned()).collect();
        self.run(move |inner| {
            let words: Vec<_> = command.iter().map(String::as_str).collect();
            inner.execute(&words, PATIENCE)
        })
        .await
    }

    /// Executes a command like [`execute`](Self::execute), and blocks the thread.
    pub(super) fn execute_within(
        &self,
        patience: Duration,
        command: &[&str],
    ) -> Result<String, ServerError> {
        self.inner.execute(command, patience)
    }

    /// Serves TLS at a port of its own from now on, and returns the port. The port without TLS
    /// stays. A later call changes the certificates and the port.
    ///
    /// A server that is started again has no TLS.
    ///
    /// # Errors
    ///
    /// [`Refused`](ServerError::Refused) with the text of the server if it cannot use them, and
    /// [`System`](ServerError::System) if they cannot be written.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server has TLS all the same.
    pub async fn serve_tls(&self, tls: &ServerTls) -> Result<u16, ServerError> {
        let port = free_port().map_err(ServerError::system("find a free port"))?;
        self.serve_tls_at(port, tls).await?;
        Ok(port)
    }

    /// Serves TLS at this port, as [`serve_tls`](Self::serve_tls) does at a free one. New
    /// connections get the new certificates.
    ///
    /// # Errors
    ///
    /// As [`serve_tls`](Self::serve_tls).
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn serve_tls_at(&self, port: u16, tls: &ServerTls) -> Result<(), ServerError> {
        let tls = tls.clone();
        self.run(move |inner| inner.serve_tls(port, &tls)).await
    }

    /// Tells the server to stop in order, and waits until it has ended. Its connections are closed.
    ///
    /// Does nothing if the server does not run. A primary waits 10 s for a replica that does not
    /// follow.
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
        self.run(|inner| inner.daemon.stop(STOP_SIGNAL)).await
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
    /// same port, with the same data and with its original settings, and waits until it has read
    /// its data and answers, at most 60 s.
    ///
    /// Settings that a command has changed are forgotten: a promoted replica follows its first
    /// primary again. The call does not wait for the data of the primary, which may be gone. A node
    /// of a cluster keeps its place in it: see [`RedisCluster::ready`](crate::RedisCluster::ready).
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
        self.run(|inner| inner.launch(Inner::answers)).await
    }

    /// Sets the clock of the server so many seconds ahead of that of the machine, or, if negative,
    /// behind it. Its monotonic clock does not change.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if the file of the clock cannot be written.
    ///
    /// # Panics
    ///
    /// Panics if the server does not have [a clock of its own](RedisBuilder::own_clock).
    #[track_caller]
    pub fn set_clock(&self, ahead: i64) -> Result<(), ServerError> {
        let clock = self.inner.clock.as_ref();
        clock.expect("a server with `own_clock`").set(ahead)
    }

    /// Stops all processes of the server where they are, with SIGSTOP. Connections stay open, and
    /// commands hang.
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

    async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Inner) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<T, ServerError> {
        let inner = Arc::clone(&self.inner);
        on_thread(move || operation(&inner)).await
    }
}

impl RedisBuilder {
    /// Makes it a replica of `primary`, which must run. [`start`](Self::start) waits until it has
    /// the data of the primary, and has written them to its own file.
    ///
    /// Each time a replica gets all data anew, its file is complete a moment later: when
    /// `aof_rewrite_in_progress` of `INFO persistence` is 0. A replica that is killed before that
    /// starts again without data.
    pub fn replica_of(mut self, primary: &Redis) -> Self {
        self.primary = Some(Primary {
            port: primary.port(),
            password: primary.password().map(str::to_owned),
        });
        self
    }

    /// Creates the server, starts it and waits until it answers, at most 60 s.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if the server is not installed;
    /// [`Ended`](ServerError::Ended) with the server's error text if a directive is wrong;
    /// [`NotReady`](ServerError::NotReady) if the primary of a replica does not answer; the other
    /// variants if the server does not start.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server ends and its folder is removed as soon as it is ready.
    pub async fn start(self) -> Result<Redis, ServerError> {
        on_thread(move || Inner::start(&self, false, free_port).map(Redis::new)).await
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("kind", &self.inner.settings.kind)
            .field("port", &self.inner.port)
            .field("folder", &self.inner.folder.path())
            .finish_non_exhaustive()
    }
}

/// Returns the directives for a port with TLS.
fn directives(port: u16, files: &Files) -> [(String, String); 5] {
    let text = |path: &Path| path.display().to_string();
    // It must have one, also if it looks at no certificate of a client.
    let clients = files.clients.as_ref().unwrap_or(&files.certificate);
    let requires = match files.clients {
        Some(_) => "yes",
        None => "no",
    };
    [
        ("tls-cert-file", text(&files.certificate)),
        ("tls-key-file", text(&files.key)),
        ("tls-ca-cert-file", text(clients)),
        ("tls-auth-clients", requires.to_owned()),
        ("tls-port", port.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

impl Inner {
    fn serve_tls(&self, port: u16, tls: &ServerTls) -> Result<(), ServerError> {
        let files = Files::write(self.folder.path(), &format!("tls-{port}"), tls)?;
        let directives = directives(port, &files);
        let words = directives.iter();
        let words = words.flat_map(|(name, value)| [name.as_str(), value]);
        let words: Vec<_> = ["CONFIG", "SET"].into_iter().chain(words).collect();
        self.execute(&words, PATIENCE).map(drop)
    }

    fn start(
        settings: &RedisBuilder,
        is_node: bool,
        mut port: impl FnMut() -> io::Result<u16>,
    ) -> Result<Self, ServerError> {
        let folder = temporary_folder()?;
        fs::create_dir(data(folder.path()))
            .map_err(ServerError::system("prepare the folder of the server"))?;
        let mut port = || port().map_err(ServerError::system("find a free port"));
        let mut inner = Self {
            settings: settings.clone(),
            program: wheels::program(settings.kind)?,
            port: 0,
            bus: None,
            tls: None,
            clock: match settings.has_own_clock {
                true => Some(Clock::create(folder.path())?),
                false => None,
            },
            daemon: Daemon::new(folder.path().join(LOG)),
            folder,
        };
        let mut tried = 0;
        loop {
            tried += 1;
            inner.port = port()?;
            inner.bus = is_node.then(&mut port).transpose()?;
            if let Some(tls) = settings.tls.as_ref().filter(|_| is_node) {
                let port = port()?;
                inner.tls = Some(port);
                let files = Files::write(inner.folder.path(), "tls", tls)?;
                inner.settings.arguments = settings.arguments.clone();
                let set = &mut inner.settings.arguments;
                set.extend(directives(port, &files));
                // Those of clients are not looked at.
                set.retain(|(name, _)| name != "tls-auth-clients");
                set.push(("tls-auth-clients".to_owned(), "no".to_owned()));
                set.push(("tls-cluster".to_owned(), "yes".to_owned()));
            }
            match inner.launch(|inner| inner.answers() && inner.follows()) {
                Err(error) if is_port_taken(&error) && tried < PORTS => {}
                started => return started.map(|()| inner),
            }
        }
    }

    fn launch(&self, is_ready: impl Fn(&Self) -> bool) -> Result<(), ServerError> {
        let folder = self.folder.path();
        let place = Place {
            port: self.port,
            bus: self.bus,
            data: &data(folder),
        };
        let program = Program::new(&self.program, folder, &folder.join(LOG))
            // Only the folder outlives a KILL.
            .last_signal("KILL")
            .args(arguments(&self.settings, place));
        let program = match &self.clock {
            Some(clock) => clock.of(program),
            None => program,
        };
        self.daemon.start(program, |_| Ok(is_ready(self)))
    }

    fn execute(&self, command: &[&str], patience: Duration) -> Result<String, ServerError> {
        let password = self.settings.password.as_deref();
        match resp::ask(self.port, password, command, patience) {
            Ok(Reply::Error(answer)) => Err(ServerError::Refused { answer }),
            Ok(reply) => Ok(reply.to_string()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(ServerError::NotReady {
                seconds: patience.as_secs(),
                log: tail(&self.daemon.log()),
            }),
            Err(error) => Err(ServerError::system("ask the server")(error)),
        }
    }

    /// Returns whether it has read its data, and is not another server that has taken the port.
    fn answers(&self) -> bool {
        let ask = |command: &[&str]| self.execute(command, PROBE).unwrap_or_default();
        // While a server reads its data, it refuses a PING, and no other command here.
        ask(&["PING"]) == "PONG" && self.is_ours(&ask(&["CONFIG", "GET", "dir"]))
    }

    fn is_ours(&self, answer: &str) -> bool {
        // The server resolves the links in the path.
        let ours = data(self.folder.path()).canonicalize();
        let theirs = answer.strip_prefix("dir\n");
        ours.is_ok_and(|ours| theirs.is_some_and(|theirs| Path::new(theirs) == ours))
    }

    /// Returns whether it has the data of its primary, if it has one, and has written them.
    fn follows(&self) -> bool {
        let is = |section, name, value| {
            self.execute(&["INFO", section], PROBE)
                .is_ok_and(|info| resp::field(&info, name) == Some(value))
        };
        self.settings.primary.is_none()
            || is("replication", "master_link_status", "up")
                // It first loads the received data, and writes a new file after that.
                && is("persistence", "aof_rewrite_scheduled", "0")
                && is("persistence", "aof_rewrite_in_progress", "0")
    }
}

/// Returns the data folder in the folder of a server.
fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Escapes a password for a URL.
fn escaped(password: &str) -> String {
    let escape = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    password.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The first two ports are taken: by a program that does not answer as a server would, and by a
    /// server of the same kind.
    #[test]
    fn takes_another_port_when_one_is_taken() {
        for kind in RedisKind::ALL {
            let settings = RedisBuilder::new(kind);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let silent = listener.local_addr().unwrap().port();
            let other = Inner::start(&settings, false, free_port).unwrap();
            let free = free_port().unwrap();
            let mut ports = [silent, other.port, free].into_iter();
            let server = Inner::start(&settings, false, || Ok(ports.next().unwrap())).unwrap();
            assert_eq!(server.port, free);
            assert!(server.daemon.log().contains("Address already in use"));
        }
    }

    #[test]
    fn a_node_takes_other_ports_when_its_bus_is_taken() {
        for kind in RedisKind::ALL {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let taken = listener.local_addr().unwrap().port();
            let mut asked = 0;
            let port = || {
                asked += 1;
                if asked == 2 { Ok(taken) } else { free_port() }
            };
            let node = Inner::start(&RedisBuilder::new(kind), true, port).unwrap();
            assert_eq!(asked, 4, "{kind}");
            assert_ne!(node.bus, Some(taken));
        }
    }

    #[test]
    fn a_password_does_not_break_the_url() {
        assert_eq!(escaped("a-Z_9.~"), "a-Z_9.~");
        assert_eq!(escaped("p@:/ ß"), "p%40%3A%2F%20%C3%9F");
    }
}
