//! HTTP/1.1, written as text: a test sends exactly what it says.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::until::PATIENCE;

/// A request, with exactly the headers that are set.
#[derive(Debug)]
pub struct Request {
    head: String,
    host: Option<String>,
    body: Vec<u8>,
}

impl Request {
    /// Starts a request.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            head: format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n"),
            host: None,
            body: Vec::new(),
        }
    }

    /// Adds a header. One of the same name stays.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    /// Another host than the one it is sent to.
    pub fn host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a body of JSON, and its type.
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(body.to_string())
    }

    /// Sends it on a connection of its own, and reads the answer.
    ///
    /// # Panics
    ///
    /// If there is no connection, or no whole answer within a minute.
    pub fn send(self, address: SocketAddr) -> Answer {
        Answer::read(&mut BufReader::new(self.open(address)))
    }

    /// Sends it, and returns the connection without waiting for the answer.
    ///
    /// # Panics
    ///
    /// If there is no connection.
    pub fn open(self, address: SocketAddr) -> TcpStream {
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
        stream
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The status line and the headers, in lower case.
    pub head: String,
    /// The body, as text.
    pub body: String,
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

    /// Returns the body as JSON.
    ///
    /// # Panics
    ///
    /// If it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the status, and the name of the error.
    ///
    /// # Panics
    ///
    /// If it is no refusal, which has a sentence on what to do.
    pub fn refusal(&self) -> (u16, String) {
        let json = self.json();
        assert!(json["what_to_do"].is_string(), "{self:?}");
        (
            self.status,
            json["error"].as_str().expect("a name").to_owned(),
        )
    }
}
