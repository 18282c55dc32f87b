//! A program that runs, and what it has printed.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Nothing takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program of the book. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: Vec<String>,
}

/// A signal, by its number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signal {
    Interrupt = 2,
    Terminate = 15,
}

/// Whether a process has a handler for a signal, as the system says.
fn handles(process: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mut lines = status.lines();
    let handled = lines.find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let handled = u64::from_str_radix(handled.trim(), 16).unwrap();
    handled >> (signal as u32 - 1) & 1 == 1
}

impl Program {
    /// Starts a program, with a variable that says where its server or its directory is.
    pub(crate) fn start(path: &str, (name, value): (&str, &str)) -> Self {
        let mut command = Command::new(path);
        command.env(name, value).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Waits for a line with this text, among all lines so far. Returns the line.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(line) = self.said.iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            let Some(line) = self.line().await else {
                panic!("it has ended without {text:?}: {:#?}", self.said);
            };
            self.said.push(line);
        }
    }

    async fn line(&mut self) -> Option<String> {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let Ok(line) = line else {
            panic!("it says nothing more: {:#?}", self.said);
        };
        line.unwrap()
    }

    /// Sends a signal, as Ctrl-C or a service manager does. Waits until the program handles it,
    /// which may be a moment after the last line that it prints.
    pub(crate) async fn signal(&self, signal: Signal) {
        let process = self.child.id().expect("it runs").to_string();
        let handles = async {
            while !handles(&process, signal) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let handles = timeout(PATIENCE, handles).await;
        handles.unwrap_or_else(|_| panic!("it does not handle {signal:?}: {:#?}", self.said));
        let number = format!("-{}", signal as u32);
        let sent = Command::new("kill").args([&number, &process]).status();
        assert!(sent.await.unwrap().success());
    }

    /// Ends it at once.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Interrupts it, and waits for its end.
    pub(crate) async fn stop(self) -> String {
        self.signal(Signal::Interrupt).await;
        self.ended().await
    }

    /// Waits for its end. Returns all that it has printed.
    pub(crate) async fn ended(mut self) -> String {
        while let Some(line) = self.line().await {
            self.said.push(line);
        }
        let said = self.said.join("\n");
        let status = timeout(PATIENCE, self.child.wait()).await;
        let status = status.expect("it ends").unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

/// The path of a program.
macro_rules! program {
    ($name:literal) => {
        env!(concat!("CARGO_BIN_EXE_", $name))
    };
}
pub(crate) use program;
