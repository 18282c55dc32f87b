//! A clock that a test sets while its server runs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ServerError;
use crate::process::Program;
use crate::program::{find, run};

const SOURCE: &str = include_str!("clock.c");

/// How long the compiler may take, in seconds.
const COMPILER: u64 = 60;

/// A clock, in the folder of its server.
#[derive(Debug)]
pub(super) struct Clock {
    library: PathBuf,
    /// The file with the number of seconds by which it is ahead.
    ahead: PathBuf,
}

impl Clock {
    /// Creates a clock that shows the right time. Blocks the thread.
    pub(super) fn create(folder: &Path) -> Result<Self, ServerError> {
        let clock = Self {
            library: folder.join("clock.so"),
            ahead: folder.join("clock"),
        };
        let source = folder.join("clock.c");
        fs::write(&source, SOURCE).map_err(ServerError::system("write the clock"))?;
        run(&find("cc")?, None, COMPILER, |command| {
            command.args(["-shared", "-fPIC", "-O1", "-o"]);
            command.arg(&clock.library).arg(&source);
        })?;
        clock.set(0)?;
        Ok(clock)
    }

    pub(super) fn set(&self, ahead: i64) -> Result<(), ServerError> {
        // A server that reads the file meanwhile finds the old or the new one.
        let new = self.ahead.with_extension("new");
        fs::write(&new, ahead.to_string())
            .and_then(|()| fs::rename(&new, &self.ahead))
            .map_err(ServerError::system("set the clock"))
    }

    pub(super) fn of(&self, program: Program) -> Program {
        program
            .env("LD_PRELOAD", &self.library)
            .env("KEYLANE_CLOCK", &self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::redis::{Redis, RedisKind};

    /// How long a server may use an earlier time, and how often to check.
    const LOOKS: u32 = 500;
    const LOOK_EVERY: Duration = Duration::from_millis(20);

    async fn time(server: &Redis) -> i64 {
        let time = server.execute(&["TIME"]).await.unwrap();
        time.lines().next().unwrap().parse().unwrap()
    }

    /// Waits until a server is so far ahead of `before`, give or take five minutes.
    async fn is_ahead(server: &Redis, before: i64, ahead: i64) {
        let mut seen = 0;
        for _ in 0..LOOKS {
            seen = time(server).await - before;
            if (seen - ahead).abs() < 300 {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("{seen} s ahead, and not {ahead} s");
    }

    #[tokio::test]
    async fn a_server_sees_the_clock_of_the_test() {
        for kind in RedisKind::ALL {
            let server = Redis::builder(kind).own_clock().start().await.unwrap();
            let before = time(&server).await;
            for ahead in [-3_600, 7_389_000_000] {
                server.set_clock(ahead).unwrap();
                is_ahead(&server, before, ahead).await;
            }
        }
    }
}
