//! The worker: this program once more, in a process of its own that can be killed.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Failure;
use crate::arguments::Place;
use crate::service::LISTENING;

/// A worker that serves.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    /// While it is open, the worker serves.
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl Worker {
    /// Starts one, and waits until it listens.
    pub(crate) async fn start(place: &Place) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--worker")
            .arg("--dir")
            .arg(&place.directory)
            .args(["--port", &place.port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        // Ctrl-C is for the demo, which ends its worker itself.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or("the input is piped")?;
        let output = child.stdout.take().ok_or("the output is piped")?;
        let mut output = BufReader::new(output).lines();
        let first = output.next_line().await?;
        let address = first
            .as_deref()
            .and_then(|line| line.strip_prefix(LISTENING));
        let Some(address) = address else {
            let status = child.wait().await?;
            return Err(format!("the worker has not begun ({status}), and says why above").into());
        };
        Ok(Self {
            address: address.parse()?,
            child,
            input,
            output,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it as it is: SIGKILL.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// Has it finish what has started, and returns what it says about that.
    pub(crate) async fn stop(mut self) -> Result<Vec<String>, Failure> {
        drop(self.input);
        let mut lines = Vec::new();
        while let Some(line) = self.output.next_line().await? {
            lines.push(line);
        }
        let status = self.child.wait().await?;
        if !status.success() {
            return Err(format!("the worker has ended with {status}: {lines:?}").into());
        }
        Ok(lines)
    }
}
