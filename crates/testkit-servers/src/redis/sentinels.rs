//! Sentinels: servers that watch a primary, and promote a replica when it is gone.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::ServerError;
use crate::daemon::{Daemon, PORTS, is_port_taken, on_thread, temporary_folder};
use crate::port::free_port;
use crate::process::Program;
use crate::program::tail;
use crate::redis::server::{PATIENCE, PROBE};
use crate::redis::{Redis, resp, wheels};
use crate::server::LOG;

/// The file with the settings and the knowledge of a Sentinel, which writes it anew.
const FILE: &str = "sentinel.conf";

/// How long to wait when the Sentinels do not know each other yet.
const PROBE_PAUSE: Duration = Duration::from_millis(100);

/// Sentinels of a test, which watch one primary.
///
/// A primary that does not answer for a second is gone when more than half of the Sentinels say so.
/// Then they promote one of its replicas. A primary that comes back becomes a replica.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{Redis, RedisKind, RedisSentinels};
///
/// let primary = Redis::start(RedisKind::Redis7).await?;
/// let replica = Redis::builder(RedisKind::Redis7)
///     .replica_of(&primary)
///     .start()
///     .await?;
/// let sentinels = RedisSentinels::start(&primary, 3).await?;
/// primary.kill().await?;
/// while sentinels.primary().await != Some(replica.port()) {
///     tokio::time::sleep(std::time::Duration::from_millis(100)).await;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisSentinels {
    sentinels: Arc<Vec<Sentinel>>,
}

#[derive(Debug)]
struct Sentinel {
    program: PathBuf,
    port: u16,
    /// Before the folder, so that it is dropped first.
    daemon: Daemon,
    folder: TempDir,
}

impl RedisSentinels {
    /// The name of the primary.
    pub const NAME: &str = "orders-primary";

    /// Starts so many Sentinels, and waits until each of them knows the others and all replicas
    /// that follow the primary now.
    ///
    /// # Errors
    ///
    /// [`Missing`](ServerError::Missing) if the server is not installed, and the other variants if
    /// a Sentinel does not start or does not hear of the others.
    ///
    /// # Panics
    ///
    /// Panics if `count` is 0, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the Sentinels end as soon as they are ready.
    pub async fn start(primary: &Redis, count: usize) -> Result<Self, ServerError> {
        assert!(count > 0, "there is one Sentinel at least");
        let primary = primary.share();
        on_thread(move || Self::create(&primary, count)).await
    }

    /// Blocks the thread.
    fn create(primary: &Redis, count: usize) -> Result<Self, ServerError> {
        let info = primary.execute_within(PATIENCE, &["INFO", "replication"])?;
        let replicas = resp::field(&info, "connected_slaves").unwrap_or_default();
        let replicas = replicas.parse().unwrap_or(0);
        let start = |_| Sentinel::start(primary, count / 2 + 1);
        let sentinels: Vec<_> = (0..count).map(start).collect::<Result<_, _>>()?;
        let began = Instant::now();
        while let Some(late) = sentinels.iter().find(|one| !one.knows(count - 1, replicas)) {
            if began.elapsed() > PATIENCE {
                return Err(ServerError::NotReady {
                    seconds: PATIENCE.as_secs(),
                    log: tail(&late.daemon.log()),
                });
            }
            thread::sleep(PROBE_PAUSE);
        }
        Ok(Self {
            sentinels: Arc::new(sentinels),
        })
    }

    /// Returns the URLs of the Sentinels.
    pub fn urls(&self) -> Vec<String> {
        let urls = self.sentinels.iter();
        urls.map(|one| format!("redis://127.0.0.1:{}/", one.port))
            .collect()
    }

    /// Returns the port of the primary that the first Sentinel names that answers.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing happens.
    pub async fn primary(&self) -> Option<u16> {
        let sentinels = Arc::clone(&self.sentinels);
        on_thread(move || sentinels.iter().find_map(Sentinel::primary)).await
    }

    /// Kills a Sentinel, counted from 0.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if it cannot be killed.
    ///
    /// # Panics
    ///
    /// Panics if there is no such Sentinel, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is killed all the same.
    pub async fn kill(&self, number: usize) -> Result<(), ServerError> {
        let sentinels = Arc::clone(&self.sentinels);
        on_thread(move || sentinels[number].daemon.kill()).await
    }

    /// Starts a Sentinel again that was killed, with what it knew.
    ///
    /// # Errors
    ///
    /// [`Running`](ServerError::Running) if it runs, and the others if it does not start.
    ///
    /// # Panics
    ///
    /// Panics if there is no such Sentinel, and outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is started all the same.
    pub async fn start_again(&self, number: usize) -> Result<(), ServerError> {
        let sentinels = Arc::clone(&self.sentinels);
        on_thread(move || sentinels[number].launch()).await
    }
}

impl Sentinel {
    fn start(primary: &Redis, quorum: usize) -> Result<Self, ServerError> {
        let folder = temporary_folder()?;
        let mut sentinel = Self {
            program: wheels::program(primary.kind())?,
            port: 0,
            daemon: Daemon::new(folder.path().join(LOG)),
            folder,
        };
        let mut tried = 0;
        loop {
            tried += 1;
            sentinel.port = free_port().map_err(ServerError::system("find a free port"))?;
            let settings = sentinel.settings(primary, quorum);
            fs::write(sentinel.folder.path().join(FILE), settings)
                .map_err(ServerError::system("write the settings of a Sentinel"))?;
            match sentinel.launch() {
                Err(error) if is_port_taken(&error) && tried < PORTS => {}
                started => return started.map(|()| sentinel),
            }
        }
    }

    fn settings(&self, primary: &Redis, quorum: usize) -> String {
        let name = RedisSentinels::NAME;
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {}", self.port),
            format!("dir \"{}\"", self.folder.path().display()),
            format!(
                "sentinel monitor {name} 127.0.0.1 {} {quorum}",
                primary.port()
            ),
            format!("sentinel down-after-milliseconds {name} 1000"),
            format!("sentinel failover-timeout {name} 5000"),
        ];
        let password = primary.password();
        lines.extend(password.map(|password| format!("sentinel auth-pass {name} {password:?}")));
        lines.join("\n") + "\n"
    }

    fn launch(&self) -> Result<(), ServerError> {
        let folder = self.folder.path();
        let program = Program::new(&self.program, folder, &folder.join(LOG))
            // Only the folder outlives a KILL.
            .last_signal("KILL")
            .args([
                folder.join(FILE).to_string_lossy().into_owned(),
                "--sentinel".to_owned(),
            ]);
        self.daemon
            .start(program, |_| Ok(self.ask(&["PING"]) == "PONG"))
    }

    fn ask(&self, command: &[&str]) -> String {
        let reply = resp::ask(self.port, None, command, PROBE);
        reply.map_or_else(|_| String::new(), |reply| reply.to_string())
    }

    /// Whether it knows so many other Sentinels, and so many replicas.
    fn knows(&self, others: usize, replicas: usize) -> bool {
        let answer = self.ask(&["SENTINEL", "MASTER", RedisSentinels::NAME]);
        let number = |name| {
            let mut lines = answer.lines().skip_while(|line| *line != name);
            lines.nth(1)?.parse::<usize>().ok()
        };
        number("num-other-sentinels") == Some(others) && number("num-slaves") == Some(replicas)
    }

    fn primary(&self) -> Option<u16> {
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", RedisSentinels::NAME];
        self.ask(&ask).lines().nth(1)?.parse().ok()
    }
}
