//! A test of this executable in a process of its own.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use keylane_testkit::scenario::until;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// The longest wait for a line.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that runs one test of this executable. It is killed when this is dropped.
///
/// Its input is a pipe that ends with this process, however that ends. See [`end_with_parent`] and
/// [`told_to_stop`].
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Process {
    /// Starts the test of this name, such as `processes::worker`, with these variables.
    ///
    /// # Panics
    ///
    /// Panics if the process cannot be started.
    pub fn start<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        test: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", test, "--nocapture"])
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let input = child.stdin.take();
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || pass_on(output, &sender));
        Self {
            child,
            input,
            lines,
        }
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process prints this line. Lines before it are skipped.
    ///
    /// # Panics
    ///
    /// Panics if the process ends first, or does not print it within a minute.
    pub async fn wait_for(&mut self, line: &str) {
        let found = timeout(PATIENCE, async {
            while let Some(next) = self.lines.recv().await {
                if next == line {
                    return true;
                }
            }
            false
        });
        let found = found.await;
        let found = found.unwrap_or_else(|_| panic!("no line `{line}` within {PATIENCE:?}"));
        assert!(found, "the process ended before the line `{line}`");
    }

    /// Does the same in a test without a runtime, and waits without a limit.
    ///
    /// # Panics
    ///
    /// Panics if the process ends first.
    pub fn blocking_wait_for(&mut self, line: &str) {
        loop {
            match self.lines.blocking_recv() {
                Some(next) if next == line => return,
                Some(_) => {}
                None => panic!("the process ended before the line `{line}`"),
            }
        }
    }

    /// Skips all lines that were printed so far.
    pub fn skip_lines(&mut self) {
        while self.lines.try_recv().is_ok() {}
    }

    /// Stops the process as it is. When this returns, it does not run.
    ///
    /// # Panics
    ///
    /// Panics if the process cannot be stopped.
    pub async fn pause(&self) {
        self.signal("STOP");
        until(|| state(self.id()) == Some('T')).await;
    }

    /// Lets a paused process go on.
    ///
    /// # Panics
    ///
    /// Panics if there is no such process any more.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Kills the process, paused or not, and waits until it is gone. Its lines stay.
    ///
    /// # Panics
    ///
    /// Panics if the process has ended by itself.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        let status = self.child.wait().expect("it ends");
        // Without a code: it was ended by a signal.
        assert!(status.code().is_none(), "the process had ended: {status}");
    }

    /// Ends the input of the process, which tells it to leave, and waits until it has left.
    ///
    /// # Panics
    ///
    /// Panics if the process fails, or does not end within two minutes.
    pub async fn stop(mut self) {
        drop(self.input.take());
        until(|| self.child.try_wait().expect("its state").is_some()).await;
        self.blocking_wait();
    }

    /// Waits until the process ends by itself.
    ///
    /// # Panics
    ///
    /// Panics if the process fails.
    pub fn blocking_wait(&mut self) {
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "the process failed: {status}");
    }

    /// Waits until the process has closed its output, and returns the lines that were not read.
    pub fn blocking_rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.lines.blocking_recv()).collect()
    }

    /// Writes a line to the input of the process: see [`orders`]. A paused one reads it later.
    ///
    /// # Panics
    ///
    /// Panics if the process has closed its input.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it was not stopped");
        writeln!(input, "{line}").expect("the process reads its input");
    }

    fn signal(&self, signal: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(sent.expect("`kill` is there").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // This also kills a paused process. It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pass_on(output: ChildStdout, lines: &mpsc::UnboundedSender<String>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if lines.send(line).is_err() {
            return;
        }
    }
}

/// Returns the letter of the state of a process; `None` if there is no such process.
fn state(id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in front of it is in brackets, and may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.trim_start().chars().next()
}

/// In a process that a test has started: ends it when the test ends, in any way.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}

/// In a process that a test has started: waits until [`Process::stop`] is called, or the test ends.
///
/// # Panics
///
/// Panics if the input cannot be read.
pub async fn told_to_stop() {
    let end = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    let ended = tokio::task::spawn_blocking(end).await;
    ended.expect("no panic").expect("the end of the input");
}

/// In a process that a test has started: returns the lines that [`Process::tell`] sends. They end
/// when [`Process::stop`] is called, or the test ends.
pub fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Pauses two processes in turn, this many times. They want the same lease, and print this line
/// each time that they get it. Its holder is paused until the other one has it, and then goes on
/// with its interrupted work. Returns the longest time from a pause to the takeover.
///
/// # Panics
///
/// Panics if a process ends, or does not take over within a minute.
pub async fn pause_in_turn(pair: &mut [Process; 2], line: &str, rounds: usize) -> Duration {
    let [one, other] = &mut *pair;
    let mut holder = tokio::select! {
        () = one.wait_for(line) => 0,
        () = other.wait_for(line) => 1,
    };
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        // In the middle of its work.
        tokio::time::sleep(Duration::from_millis(40 + (round as u64 * 13) % 50)).await;
        let since = Instant::now();
        pair[holder].pause().await;
        let other = 1 - holder;
        pair[other].wait_for(line).await;
        longest = longest.max(since.elapsed());
        pair[holder].resume();
        holder = other;
    }
    longest
}
