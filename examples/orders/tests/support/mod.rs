//! The service as a process.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::{Value, json};
use testkit_browser::{Answer, Request, until};

/// The example, as cargo has built it beside its tests.
pub(crate) fn example() -> Command {
    let test = std::env::current_exe().expect("a test knows where it is");
    let folder = test.ancestors().nth(2).expect("it lies in `deps`");
    let program = folder
        .join("examples/orders")
        .with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        program.is_file(),
        "{} is not there: `cargo test -p orders` without --test builds it",
        program.display()
    );
    Command::new(program)
}

/// A service that runs; it is killed when this is dropped.
pub(crate) struct Service {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
}

impl Service {
    pub(crate) fn start(directory: &Path) -> Self {
        Self::start_at(directory, 0)
    }

    pub(crate) fn start_at(directory: &Path, port: u16) -> Self {
        let mut child = example()
            .args(["--serve", "--port", &port.to_string(), "--dir"])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        output.read_line(&mut first).expect("it says where");
        let address = first.strip_prefix("listening on http://");
        let address = address.and_then(|rest| rest.split_whitespace().next());
        let address = address.unwrap_or_else(|| panic!("{first}"));
        Self {
            child,
            address: address.parse().expect("an address"),
            output,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// What Ctrl-C does. Returns what it says, and how it ends.
    pub(crate) fn interrupt(mut self) -> (String, ExitStatus) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status();
        assert!(sent.expect("`kill` is there").success());
        let mut said = String::new();
        self.output.read_to_string(&mut said).expect("it is text");
        (said, self.child.wait().expect("it ends"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        Request::new("GET", path).send(self.address)
    }

    pub(crate) fn order(&self, order: &Value) -> Answer {
        Request::new("POST", "/orders")
            .json(order)
            .send(self.address)
    }

    pub(crate) fn stats(&self) -> Value {
        self.get("/stats").json()
    }

    /// The dead letters, as the console has them.
    pub(crate) fn letters(&self) -> Value {
        self.get("/console/letters?name=orders").json()["letters"].take()
    }

    /// Asks until the figures are so.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        until(what, || {
            last = self.stats();
            is_so(&last)
        });
        last
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The payments in the ledger of a service, in their order: user, number, id.
pub(crate) fn payments(directory: &Path) -> Vec<(String, u64, String)> {
    let text = std::fs::read_to_string(directory.join("effects.log")).expect("it is there");
    let records = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let paid = records.filter(|record: &Value| record["what"] == "paid");
    paid.map(|record| {
        let text = |name: &str| record[name].as_str().expect("a text").to_owned();
        (
            text("user"),
            record["number"].as_u64().expect("a number"),
            text("id"),
        )
    })
    .collect()
}

/// An order of a user.
pub(crate) fn order(id: &str, user: &str) -> Value {
    json!({ "id": id, "user": user, "cents": 100 })
}

/// A directory for orders, gone when it is dropped.
pub(crate) fn directory() -> (tempfile::TempDir, PathBuf) {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let path = temporary.path().join("shop");
    (temporary, path)
}
