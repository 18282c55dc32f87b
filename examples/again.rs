//! This program once more, in a process that can be killed and paused.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long the system may take to end a process that is killed.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A process that runs this program. It is killed when this is dropped, which waits for its end.
///
/// Its input is a pipe that ends with this process, however that ends: a program that reads it to
/// its end does not outlive its parent.
#[derive(Debug)]
pub struct Again {
    child: Child,
    input: Option<ChildStdin>,
}

/// The lines that a process writes to its standard output.
pub type Said = Lines<BufReader<ChildStdout>>;

impl Again {
    /// Starts this program with one argument, and returns what it says.
    ///
    /// It is in a process group of its own: Ctrl-C is for the parent, which ends its processes
    /// itself.
    ///
    /// # Errors
    ///
    /// The error of the operating system if it cannot be started.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub fn start(argument: &str) -> io::Result<(Self, Said)> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let output = output.ok_or_else(|| io::Error::other("the output is piped"))?;
        Ok((Self { child, input }, BufReader::new(output).lines()))
    }

    /// Writes a line to its standard input. A paused process reads it later.
    ///
    /// # Errors
    ///
    /// The error of the pipe if the process has ended.
    pub async fn tell(&mut self, line: &str) -> io::Result<()> {
        let closed = || io::Error::other("its input is closed");
        let input = self.input.as_mut().ok_or_else(closed)?;
        input.write_all(format!("{line}\n").as_bytes()).await
    }

    /// Sends a signal, such as `STOP` or `CONT`, with the program `kill`.
    ///
    /// # Errors
    ///
    /// An error if the process has ended, or the signal cannot be sent.
    pub async fn signal(&self, signal: &str) -> io::Result<()> {
        let id = self.child.id();
        let id = id
            .ok_or_else(|| io::Error::other("it has ended"))?
            .to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        match sent.await?.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("`kill -s {signal}` has failed"))),
        }
    }

    /// Kills it as it is, paused or not, with SIGKILL, and waits for its end.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Returns how it has ended; `None` while it runs.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Ends its input, which tells it to leave. [`wait`](Self::wait) waits for that.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// The error of the operating system, or one that says that it has not ended within `limit`.
    pub async fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let ended = timeout(limit, self.child.wait()).await;
        ended.map_err(|_| io::Error::other(format!("it does not end within {limit:?}")))?
    }
}

/// When it returns, the process does not run any more: what comes after it may say so.
impl Drop for Again {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.start_kill();
        let until = Instant::now() + KILLED_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            sleep(Duration::from_millis(1));
        }
    }
}
