//! A process with candidates: started, told, killed.

use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::Error;
use crate::worker::now;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a process has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A candidate leads, since then, in microseconds.
    Lead(u64, String),
    /// The leader was told to leave, then.
    Left(u64),
    /// A leader has released its term.
    Released(u64),
    /// A candidate is elected, and does not lead yet.
    Elected(u64),
}

impl Said {
    fn of(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (what, at) = (words.next()?, words.next()?.parse().ok()?);
        match (what, words.next()) {
            ("lead", Some(candidate)) => Some(Self::Lead(at, candidate.to_owned())),
            ("left", None) => Some(Self::Left(at)),
            ("released", None) => Some(Self::Released(at)),
            ("elected", None) => Some(Self::Elected(at)),
            _ => None,
        }
    }
}

/// A process with candidates.
#[derive(Debug)]
pub struct Process {
    child: Child,
    orders: ChildStdin,
    said: mpsc::UnboundedReceiver<Said>,
    /// When it has said last that a term was released, and that a candidate was elected.
    steps: [Option<u64>; 2],
}

impl Process {
    /// Starts a process.
    pub fn start(command: Command) -> Result<Self, Error> {
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let orders = child.stdin.take().ok_or("standard input is piped")?;
        let output = child.stdout.take().ok_or("standard output is piped")?;
        let (sender, said) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(said) = Said::of(&line)
                    && sender.send(said).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            orders,
            said,
            steps: [None; 2],
        })
    }

    /// Waits until a candidate of the process leads, and returns since when.
    pub async fn leads(&mut self) -> Result<u64, Error> {
        loop {
            if let Said::Lead(at, _) = self.next().await? {
                return Ok(at);
            }
        }
    }

    /// Lets the leader of the process leave. Returns when it was told.
    pub async fn resign(&mut self) -> Result<u64, Error> {
        self.orders.write_all(b"resign\n").await?;
        loop {
            if let Said::Left(at) = self.next().await? {
                return Ok(at);
            }
        }
    }

    /// Kills the process with SIGKILL. Returns when.
    pub async fn kill(&mut self) -> Result<u64, Error> {
        let at = now();
        self.child.kill().await?;
        Ok(at)
    }

    /// Ends the process in order.
    pub async fn close(mut self) -> Result<(), Error> {
        drop(self.orders);
        let ended = timeout(PATIENCE, self.child.wait()).await;
        ended.map_err(|_| "a process does not end")??;
        Ok(())
    }

    async fn next(&mut self) -> Result<Said, Error> {
        let said = timeout(PATIENCE, self.said.recv()).await;
        let said = said.map_err(|_| "a process has said nothing for a minute")?;
        let said = said.ok_or("a process has ended")?;
        self.note(&said);
        Ok(said)
    }

    /// Reads what it has said since. Returns when it has released its last term.
    pub fn released(&mut self) -> Option<u64> {
        while let Ok(said) = self.said.try_recv() {
            self.note(&said);
        }
        self.steps[0]
    }

    /// Returns when one of its candidates was elected last.
    pub fn elected(&self) -> Option<u64> {
        self.steps[1]
    }

    fn note(&mut self, said: &Said) {
        match said {
            Said::Released(at) => self.steps[0] = Some(*at),
            Said::Elected(at) => self.steps[1] = Some(*at),
            Said::Lead(..) | Said::Left(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let lead = Said::of("lead 12 a-3");
        assert_eq!(lead, Some(Said::Lead(12, "a-3".to_owned())));
        assert_eq!(Said::of("left 7"), Some(Said::Left(7)));
        for other in ["", "lead", "lead x a", "lead 7", "left 7 a", "log 7"] {
            assert_eq!(Said::of(other), None, "{other}");
        }
    }
}
