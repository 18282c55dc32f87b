//! A service with a dispatcher and a console, on a port of its own.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use keylane::error::Failure;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_console::{Builder, Console, ConsoleKey};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use testkit_browser::{Answer, Request, until};

/// Where the console is nested.
pub(crate) const AT: &str = "/ops/console";

/// What the handler does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Done,
    Fails,
    /// It never ends.
    Holds,
    /// It fails, and is tried again in an hour.
    Waits,
}

pub(crate) type Orders<K> = Dispatcher<K, (K, Work), (), &'static str>;

pub(crate) struct Served<K = String> {
    pub(crate) runtime: Runtime,
    pub(crate) address: SocketAddr,
    pub(crate) console: Console,
    pub(crate) orders: Orders<K>,
}

/// Serves a console by itself, at the root.
pub(crate) fn serve(runtime: &Runtime, console: Builder) -> SocketAddr {
    let console = console.build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { console.serve(listener).await });
    address
}

impl<K> Served<K>
where
    K: ConsoleKey + std::hash::Hash + Eq + Clone + Send + Sync + 'static,
{
    pub(crate) fn start(set: impl FnOnce(Builder) -> Builder) -> Self {
        Self::start_at(0, set)
    }

    pub(crate) fn start_at(port: u16, set: impl FnOnce(Builder) -> Builder) -> Self {
        Self::start_with(port, set, |app| app)
    }

    /// `around` changes the service that has the console.
    pub(crate) fn start_with(
        port: u16,
        set: impl FnOnce(Builder) -> Builder,
        around: impl FnOnce(Router) -> Router,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        let entered = runtime.enter();
        let hour = Duration::from_secs(3_600);
        let orders = Dispatcher::builder(|(key, _): &(K, Work)| key.clone())
            .retry(
                Retry::fixed(hour)
                    .max_attempts(2)
                    .retry_if(|why| matches!(why, Failure::Error("later"))),
            )
            .on_exhausted(OnExhausted::Halt)
            .capacity(1_000_000)
            .concurrency(64)
            .spawn(async |(_, work): (K, Work)| match work {
                Work::Done => Ok(()),
                Work::Fails => Err("declined"),
                Work::Waits => Err("later"),
                Work::Holds => std::future::pending().await,
            })
            .unwrap();
        let console = set(Console::builder()
            .dispatcher("orders", &orders)
            .without_token())
        .build()
        .unwrap();
        let app = around(Router::new().nest(AT, console.router()));
        let listener = until_bound(&runtime, port);
        let address = listener.local_addr().unwrap();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, service).await });
        drop(entered);
        Self {
            runtime,
            address,
            console,
            orders,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}{AT}", self.address)
    }

    pub(crate) fn send(&self, key: K, work: Work) {
        let sent = self.runtime.block_on(self.orders.send((key, work)));
        assert!(sent.is_ok());
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        get(path).send(self.address)
    }

    /// What the page sends.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ours(post(path)).json(body).send(self.address)
    }

    /// A request as the page makes it.
    pub(crate) fn ours(&self, request: Request) -> Request {
        let origin = format!("http://{}", self.address);
        request
            .header("origin", &origin)
            .header("x-keylane-console", "1")
    }

    pub(crate) fn find(&self, key: &str) -> Value {
        let found = self.post("find", &json!({ "dispatcher": "orders", "key": key }));
        assert_eq!(found.status, 200, "{found:?}");
        found.json()
    }

    pub(crate) fn act(&self, key: &str, action: &str) -> Answer {
        let id = self.find(key)["id"].clone();
        self.post(
            "act",
            &json!({ "dispatcher": "orders", "id": id, "action": action }),
        )
    }

    /// Looks until the lane of a key is in this state.
    pub(crate) fn until_in(&self, key: &str, state: &str) {
        until(&format!("{key} is {state}"), || {
            self.find(key)["state"] == state
        });
    }

    pub(crate) fn stream(&self, path: &str, last_id: Option<&str>) -> Stream {
        Stream::open(self.address, &at(path), last_id)
    }
}

/// A service that was here a moment ago may still have the port.
fn until_bound(runtime: &Runtime, port: u16) -> TcpListener {
    let mut bound = None;
    until("the port is free", || {
        bound = runtime
            .block_on(TcpListener::bind(("127.0.0.1", port)))
            .ok();
        bound.is_some()
    });
    bound.expect("it was bound")
}

pub(crate) fn get(path: &str) -> Request {
    Request::new("GET", &at(path))
}

pub(crate) fn post(path: &str) -> Request {
    Request::new("POST", &at(path))
}

fn at(path: &str) -> String {
    if path.is_empty() {
        AT.to_owned()
    } else {
        format!("{AT}/{path}")
    }
}

/// An open feed.
pub(crate) struct Stream(BufReader<TcpStream>);

impl Stream {
    pub(crate) fn open(address: SocketAddr, path: &str, last_id: Option<&str>) -> Self {
        let last_id = last_id.map(|id| format!("last-event-id: {id}\r\n"));
        Self::open_with(address, path, &last_id.unwrap_or_default())
    }

    /// With more lines in its head.
    pub(crate) fn open_with(address: SocketAddr, path: &str, lines: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let head =
            format!("GET {path} HTTP/1.1\r\nconnection: close\r\nhost: {address}\r\n{lines}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// The id and the data of the next event; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<(String, Value)> {
        let (mut id, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            match self.0.read_line(&mut line) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it is silent"),
                Ok(0) | Err(_) => return None,
            }
            if let Some(value) = line.strip_prefix("id: ") {
                id = value.trim_end().to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((id, serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// Reads until an event is so.
    pub(crate) fn until(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (_, data) = self.next().expect("the feed goes on");
            if is_so(&data) {
                return data;
            }
        }
    }
}
