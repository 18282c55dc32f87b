//! The server of a run.

use std::time::Duration;

use clap::ValueEnum;
use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};
use serde::Serialize;
use testkit_servers::RedisKind;

use crate::Error;

/// How often the server is asked whether it has come to rest.
const ASKED: Duration = Duration::from_millis(20);

/// After so long what was written is on the disk with `appendfsync everysec`.
const SYNCED: Duration = Duration::from_millis(1_100);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Redis 7.0.
    #[value(name = "redis-7")]
    Redis7,
    /// Redis 8.2.
    #[value(name = "redis-8")]
    Redis8,
    /// Valkey 9.1.
    #[value(name = "valkey-9")]
    Valkey9,
}

impl From<Kind> for RedisKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Redis7 => Self::Redis7,
            Kind::Redis8 => Self::Redis8,
            Kind::Valkey9 => Self::Valkey9,
        }
    }
}

/// When the append-only file is written to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fsync {
    /// Before each answer.
    Always,
    /// Once a second: what servers come with.
    Everysec,
    /// When the system does it.
    No,
}

impl From<Fsync> for testkit_servers::Fsync {
    fn from(fsync: Fsync) -> Self {
        match fsync {
            Fsync::Always => Self::Always,
            Fsync::Everysec => Self::EverySecond,
            Fsync::No => Self::No,
        }
    }
}

/// The server.
#[derive(Debug)]
pub struct Server {
    server: testkit_servers::Redis,
    fsync: Fsync,
    /// Its name and version.
    pub version: String,
}

impl Server {
    /// Starts one, which ends with this value.
    pub async fn start(kind: Kind, fsync: Fsync) -> Result<Self, Error> {
        let server = testkit_servers::Redis::builder(kind.into())
            .appendfsync(fsync.into())
            // It is rewritten between the measurements, and not in the middle of one.
            .argument("auto-aof-rewrite-percentage", "0")
            .start()
            .await?;
        let info = server.execute(&["INFO", "server"]).await?;
        let version = ["valkey_version", "redis_version"]
            .into_iter()
            .find_map(|name| field(&info, name));
        let name = if kind == Kind::Valkey9 {
            "Valkey"
        } else {
            "Redis"
        };
        let version = format!("{name} {}", version.unwrap_or("of an unknown version"));
        Ok(Self {
            server,
            fsync,
            version,
        })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Its process.
    pub fn pid(&self) -> Result<u32, Error> {
        Ok(self.server.pid().ok_or("the server does not run")?)
    }

    /// A connection of its own.
    pub async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        let client = Client::open(self.url())?;
        Ok(client.get_multiplexed_async_connection().await?)
    }

    /// Removes everything, and what was written of it.
    pub async fn clear(&self) -> Result<(), Error> {
        self.server.execute(&["FLUSHALL", "SYNC"]).await?;
        self.server.execute(&["BGREWRITEAOF"]).await?;
        loop {
            tokio::time::sleep(ASKED).await;
            let info = self.server.execute(&["INFO", "persistence"]).await?;
            let is_done = |name| field(&info, name) == Some("0");
            if is_done("aof_rewrite_in_progress") && is_done("aof_rewrite_scheduled") {
                return Ok(());
            }
        }
    }

    /// All messages are stored: what is still to be written is, and the counters of the commands begin.
    pub async fn settle(&self) -> Result<(), Error> {
        if self.fsync == Fsync::Everysec {
            tokio::time::sleep(SYNCED).await;
        }
        self.server.execute(&["CONFIG", "RESETSTAT"]).await?;
        Ok(())
    }

    /// What the server has done since it has settled.
    pub async fn commands(&self) -> Result<Vec<Command>, Error> {
        let mut connection = self.connect().await?;
        let info: String = cmd("INFO")
            .arg("commandstats")
            .query_async(&mut connection)
            .await?;
        Ok(commands(&info))
    }
}

/// A command, as the server has counted it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Command {
    /// Its name.
    pub name: String,
    /// How often it was called; from scripts, too.
    pub calls: u64,
    /// How long all calls took, in microseconds. Those from scripts are in the time of the script, too.
    pub micros: u64,
}

fn commands(info: &str) -> Vec<Command> {
    let of_line = |line: &str| {
        let (name, figures) = line.trim().strip_prefix("cmdstat_")?.split_once(':')?;
        let figure = |wanted: &str| {
            let mut figures = figures.split(',').filter_map(|one| one.split_once('='));
            let (_, value) = figures.find(|(name, _)| *name == wanted)?;
            value.parse().ok()
        };
        Some(Command {
            name: name.to_owned(),
            calls: figure("calls")?,
            micros: figure("usec")?,
        })
    };
    let mut commands: Vec<Command> = info.lines().filter_map(of_line).collect();
    // The harness asks for these.
    commands.retain(|command| !matches!(&*command.name, "info" | "config|resetstat"));
    commands.sort_by_key(|command| std::cmp::Reverse(command.micros));
    commands
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| {
        let (found, value) = line.trim().split_once(':')?;
        (found == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_the_server_are_read() {
        let info = "# Commandstats\r\n\
            cmdstat_hset:calls=7,usec=20,usec_per_call=2.86,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_evalsha:calls=2,usec=90,usec_per_call=45.00\r\n\
            cmdstat_config|resetstat:calls=1,usec=99,usec_per_call=99.00\r\n";
        let command = |name: &str, calls, micros| Command {
            name: name.to_owned(),
            calls,
            micros,
        };
        let wanted = [command("evalsha", 2, 90), command("hset", 7, 20)];
        assert_eq!(commands(info), wanted);
        assert_eq!(field("a:1\r\nb:2\r\n", "b"), Some("2"));
    }
}
