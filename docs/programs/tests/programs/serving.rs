//! Programs that serve HTTP.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::program::{Program, program};

const ANY_PORT: (&str, &str) = ("ADDRESS", "127.0.0.1:0");

/// The address in a line such as `post to http://127.0.0.1:41897/orders`.
fn address(line: &str) -> String {
    let rest = line.split("http://").nth(1).unwrap();
    rest.split('/').next().unwrap().to_owned()
}

async fn ask(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nx-user: ada\r\n\
         x-keylane-console: 1\r\norigin: http://{address}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_service_answers() {
    let mut axum = Program::start(program!("axum"), ANY_PORT);
    let address = address(&axum.until("post to http://").await);
    let answer = ask(&address, "POST /orders", r#"{"cents": 250}"#).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("250 cents\n"),
        "{answer}"
    );
    axum.stop().await;
}

#[tokio::test]
async fn the_console_shows_the_dispatcher() {
    let mut console = Program::start(program!("console"), ANY_PORT);
    let address = address(&console.until("look at http://").await);
    let answer = ask(&address, "POST /orders", r#"{"user": "bob", "cents": 0}"#).await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let page = ask(&address, "GET /console", "").await;
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("<html"),
        "{page}"
    );
    let find = || {
        ask(
            &address,
            "POST /console/find",
            r#"{"dispatcher": "orders", "key": "bob"}"#,
        )
    };
    let halted = async {
        while !find().await.contains("halted") {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), halted)
        .await
        .expect("the lane of bob is halted");
    let said = console.stop().await;
    assert!(said.contains("1 accepted"), "{said}");
}
