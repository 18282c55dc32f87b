//! Other processes that run a test of this program.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

/// A process that runs one test, and prints a word at intervals. It is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    said: mpsc::UnboundedReceiver<()>,
}

impl Process {
    /// Runs the test of this name with these variables.
    pub(crate) fn start(test: &str, word: &'static str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, said) = mpsc::unbounded_channel();
        let output = child.stdout.take().unwrap();
        std::thread::spawn(move || pass_on(output, word, &sender));
        Self { child, said }
    }

    /// Waits until it prints its word once more.
    pub(crate) async fn says(&mut self) {
        let said = timeout(Duration::from_secs(60), self.said.recv()).await;
        said.expect("it says its word").expect("the process lives");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // This also kills a stopped process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pass_on(output: ChildStdout, word: &str, said: &mpsc::UnboundedSender<()>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line.ends_with(word) && said.send(()).is_err() {
            return;
        }
    }
}

/// Ends such a process with its parent: its standard input is closed when the parent ends, in any
/// way.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}
