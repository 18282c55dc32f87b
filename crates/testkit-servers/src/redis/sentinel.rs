//! Sentinels, which watch a primary and decide which replica takes over.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use crate::ServerError;
use crate::daemon::{Daemon, on_thread, temporary_folder};
use crate::port::free_port;
use crate::process::Program;
use crate::redis::server::PROBE;
use crate::redis::{Redis, resp};
use crate::server::LOG;

/// The name under which the sentinels watch the primary.
const NAME: &str = "keylane";

/// A Sentinel of a test, in a process of its own.
///
/// When it is dropped it ends. Three of them watch a primary best: two must agree that it is down.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{Redis, RedisKind, Sentinel};
///
/// let primary = Redis::start(RedisKind::Redis7).await?;
/// let replica = Redis::builder(RedisKind::Redis7).replica_of(&primary).start().await?;
/// let sentinels = Sentinel::watch(&primary, 3).await?;
/// primary.kill().await?;
/// // … some seconds later …
/// assert_eq!(sentinels[0].primary().await?, replica.port());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sentinel {
    port: u16,
    /// Before the folder, so that it is dropped first.
    daemon: Daemon,
    folder: TempDir,
}

impl Sentinel {
    /// The name under which the primary is watched.
    pub const NAME: &str = NAME;

    /// Starts so many sentinels that watch a primary. It counts as down when more than half of them
    /// have had no answer for two seconds.
    ///
    /// # Errors
    ///
    /// The same as those of [`Redis::start`].
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the sentinels end.
    pub async fn watch(primary: &Redis, sentinels: usize) -> Result<Vec<Self>, ServerError> {
        let primary = primary.share();
        let start = move || {
            let quorum = sentinels / 2 + 1;
            let all = (0..sentinels).map(|_| Self::start(&primary, quorum));
            all.collect()
        };
        on_thread(start).await
    }

    /// Returns the port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the output so far, for the message of a failed test.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Returns the port of the server that is the primary by the word of this sentinel.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if the sentinel does not answer within 2 s.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing happens.
    pub async fn primary(&self) -> Result<u16, ServerError> {
        let port = self.port;
        let asked = on_thread(move || {
            let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
            resp::ask(port, None, &ask, PROBE)
        });
        let answer = asked.await.map_err(ServerError::system("ask a sentinel"))?;
        let answer = answer.to_string();
        let port = answer.lines().nth(1).and_then(|port| port.parse().ok());
        port.ok_or(ServerError::Refused { answer })
    }

    /// Starts one. Blocks the thread.
    fn start(primary: &Redis, quorum: usize) -> Result<Self, ServerError> {
        let folder = temporary_folder()?;
        let port = free_port().map_err(ServerError::system("find a free port"))?;
        // It writes what it learns into this file.
        let file = folder.path().join("sentinel.conf");
        let watched = primary.port();
        let text = format!(
            "bind 127.0.0.1\nport {port}\nprotected-mode no\n\
             sentinel monitor {NAME} 127.0.0.1 {watched} {quorum}\n\
             sentinel down-after-milliseconds {NAME} 2000\n\
             sentinel failover-timeout {NAME} 5000\n"
        );
        fs::write(&file, text).map_err(ServerError::system("prepare the folder of the server"))?;
        let log = folder.path().join(LOG);
        let program = Program::new(primary.program(), folder.path(), &log)
            .last_signal("KILL")
            .arg(&file)
            .arg("--sentinel");
        let daemon = Daemon::new(log);
        let is_ready = || resp::ask(port, None, &["PING"], Duration::from_secs(2)).is_ok();
        daemon.start(program, |_| Ok(is_ready()))?;
        Ok(Self {
            port,
            daemon,
            folder,
        })
    }

    /// Returns the folder. It is removed when this value is dropped.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}
