//! etcd: one server of each version.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use testkit_servers::{Etcd, EtcdKind, ServerError};

use crate::killed::{self, State};
use crate::processes::{is_dead, refuses, state, tree};

/// Calls the server with JSON, and returns the body of its answer.
fn call(server: &Etcd, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v3/{path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Sets the key `order`. Bytes are in base 64.
fn put(server: &Etcd, value: &str) {
    let body = format!(r#"{{"key":"b3JkZXI=","value":"{value}"}}"#);
    assert!(call(server, "kv/put", &body).contains("revision"));
}

fn has(server: &Etcd, value: &str) -> bool {
    let value = format!(r#""value":"{value}""#);
    call(server, "kv/range", r#"{"key":"b3JkZXI="}"#).contains(&value)
}

async fn keeps_what_was_answered(kind: EtcdKind) {
    let server = Etcd::start(kind).await.unwrap();
    assert_eq!(server.kind(), kind);
    assert_eq!(server.url(), format!("http://127.0.0.1:{}", server.port()));
    put(&server, "Nw==");

    let pids = tree(server.pid().unwrap());
    server.kill().await.unwrap();
    assert!(pids.iter().all(|pid| is_dead(*pid)));
    assert!(server.pid().is_none() && refuses(server.port()));
    let paused = server.pause().await;
    assert!(matches!(paused, Err(ServerError::NotRunning)), "{paused:?}");

    server.start_again().await.unwrap();
    assert!(has(&server, "Nw=="));
    let again = server.start_again().await;
    assert!(matches!(again, Err(ServerError::Running)), "{again:?}");
    server.stop().await.unwrap();
    assert!(server.pid().is_none() && refuses(server.port()));
    server.start_again().await.unwrap();
    assert!(has(&server, "Nw=="));

    let pid = server.pid().unwrap();
    server.pause().await.unwrap();
    assert_eq!(state(pid), Some('T'));
    server.resume().await.unwrap();
    assert!(has(&server, "Nw=="));

    let (folder, port) = (server.folder().to_owned(), server.port());
    drop(server);
    assert!(is_dead(pid) && refuses(port) && !folder.exists());
}

async fn data_go_back(kind: EtcdKind) {
    let server = Etcd::start(kind).await.unwrap();
    put(&server, "Nw==");
    let saved = server.save().await.unwrap();
    assert!(has(&server, "Nw=="));
    for _ in 0..2 {
        put(&server, "OA==");
        assert!(has(&server, "OA=="));
        server.put_back(&saved).await.unwrap();
        assert!(has(&server, "Nw=="));
    }
}

#[tokio::test]
async fn etcd_3_4_keeps_what_was_answered() {
    keeps_what_was_answered(EtcdKind::Etcd34).await;
}

#[tokio::test]
async fn etcd_3_4_goes_back_to_saved_data() {
    data_go_back(EtcdKind::Etcd34).await;
}

/// Returns whether etcd 3.7 was built: it needs Go.
fn is_built() -> bool {
    let is_built = testkit_servers::etcd::is_there(EtcdKind::Etcd37);
    if !is_built {
        println!("left out: etcd 3.7 is not built here");
    }
    is_built
}

#[tokio::test]
async fn etcd_3_7_keeps_what_was_answered() {
    if is_built() {
        keeps_what_was_answered(EtcdKind::Etcd37).await;
        data_go_back(EtcdKind::Etcd37).await;
    }
}

#[tokio::test]
async fn a_wrong_argument_is_quoted() {
    let builder = Etcd::builder(EtcdKind::Etcd34).argument("--no-such-argument");
    let error = builder.start().await.unwrap_err().to_string();
    assert!(error.contains("no-such-argument"), "{error}");
}

#[tokio::test]
async fn a_killed_test_leaves_no_server() {
    for state in [State::Running, State::Paused] {
        killed::outlived_by_nothing(concat!(module_path!(), "::child"), state);
    }
}

/// Starts a server and waits to be killed. It does nothing unless the test above starts it.
#[tokio::test]
async fn child() {
    let Some(state) = killed::state() else {
        return;
    };
    let server = Etcd::start(EtcdKind::Etcd34).await.unwrap();
    let pid = server.pid().unwrap();
    if state == State::Paused {
        server.pause().await.unwrap();
    }
    killed::report(pid, server.port(), server.folder().to_str().unwrap());
    std::future::pending::<()>().await;
}
