//! The service as a process, and HTTP as text.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long anything may take here.
const PATIENCE: Duration = Duration::from_secs(60);

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

    pub(crate) fn state(&self) -> Value {
        self.get("/state.json").json()
    }

    /// Asks until the state is so.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        until(what, || {
            last = self.state();
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

/// Looks until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < PATIENCE,
            "it does not come about that {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
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

/// A request, said in so many words.
pub(crate) struct Request {
    head: String,
    host: Option<String>,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self {
            head: format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n"),
            host: None,
            body: Vec::new(),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    /// Another host than the one it is sent to.
    pub(crate) fn host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(body.to_string())
    }

    pub(crate) fn send(self, address: SocketAddr) -> Answer {
        let host = self.host.unwrap_or_else(|| address.to_string());
        let head = format!(
            "{}host: {host}\r\ncontent-length: {}\r\n\r\n",
            self.head,
            self.body.len()
        );
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("it is not zero");
        stream.write_all(head.as_bytes()).expect("it reads");
        // A body that is too large may be refused before it is read.
        let _ = stream.write_all(&self.body);
        Answer::read(&mut BufReader::new(stream))
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn read(from: &mut impl BufRead) -> Self {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let count = from.read_line(&mut head).expect("an answer");
            assert!(count > 0, "it has hung up: {head}");
        }
        let head = head.to_ascii_lowercase();
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse().ok());
        let mut body = Vec::new();
        match length {
            Some(length) => {
                body = vec![0; length];
                from.read_exact(&mut body).expect("the whole body");
            }
            None => {
                from.read_to_end(&mut body).expect("the whole body");
            }
        }
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Self {
            status: status.unwrap_or_else(|| panic!("{head}")),
            head,
            body: String::from_utf8(body).expect("text"),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The status, and the name of the error.
    pub(crate) fn refusal(&self) -> (u16, String) {
        let json = self.json();
        assert!(json["what_to_do"].is_string(), "{self:?}");
        (
            self.status,
            json["error"].as_str().expect("a name").to_owned(),
        )
    }
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
