//! What errors of commands say: which server it is, and what to do.

use keylane::source::RawMessage;
use keylane_redis::{ErrorKind, Redis, RedisError, StreamSink};
use testkit_servers::{RedisCluster, RedisKind};

use crate::parts::{allow, url};
use crate::support::{Client, new_name, own};

/// The error of a message that is pushed to a stream of the server with this address.
async fn refused(url: &str, stream: &str) -> RedisError {
    let sink = StreamSink::new(&Redis::at(url).unwrap(), stream.to_owned()).unwrap();
    let message = RawMessage::new("payload").key("key");
    sink.push(&message).await.unwrap_err()
}

fn assert_says(error: &RedisError, server: &testkit_servers::Redis, kind: ErrorKind, advice: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    let named = format!("Redis at 127.0.0.1:{}", server.port());
    assert!(text.starts_with(&named) && text.contains(advice), "{text}");
    assert!(
        !text.contains("canary") && !text.contains("secret"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_commands_name_the_server_and_what_to_do() {
    for kind in RedisKind::ALL {
        let server = own(kind).await;
        let (client, user) = (Client::to(&server).await, new_name("user"));
        client.run::<()>(&["SET", "orders", "no stream"]).await;
        let error = refused(&server.url(), "orders").await;
        let advice = ": a key has another type: WRONGTYPE `orders` is a string: remove the key";
        assert_says(&error, &server, ErrorKind::WrongType, advice);

        allow(&client, &user, &["others"]).await;
        let error = refused(&url(&server, &user), "letters").await;
        let advice = "NOPERM";
        assert_says(&error, &server, ErrorKind::Denied, advice);
        let advice = "give the user the right with `ACL SETUSER`";
        assert_says(&error, &server, ErrorKind::Denied, advice);

        let full = ["CONFIG", "SET", "maxmemory", "1"];
        client.run::<()>(&full).await;
        let error = refused(&server.url(), "letters").await;
        assert_says(&error, &server, ErrorKind::Unable, "OOM");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_names_the_server() {
    let server = own(RedisKind::Redis8).await;
    let sink = StreamSink::new(&Redis::at(&server.url()).unwrap(), "orders").unwrap();
    let message = RawMessage::new("payload").key("key");
    sink.push(&message).await.unwrap();
    server.pause().await.unwrap();
    let pushed = tokio::spawn(async move { sink.push(&message).await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    server.kill().await.unwrap();
    let error = pushed.await.unwrap().unwrap_err();
    assert_says(&error, &server, ErrorKind::Unreachable, ": ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_or_missing_password_says_what_to_set() {
    for kind in RedisKind::ALL {
        let server = testkit_servers::Redis::builder(kind).password("canary");
        let server = server.start().await.unwrap();
        let host = format!("127.0.0.1:{}", server.port());
        for (login, advice) in [
            ("", "NOAUTH"),
            (
                "",
                "write the password into the address: redis://:password@host:port",
            ),
            (
                ":canary-4711@",
                "correct the user and the password in the address",
            ),
        ] {
            let error = refused(&format!("redis://{login}{host}"), "orders").await;
            assert_says(&error, &server, ErrorKind::Denied, advice);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_that_has_not_the_key_says_to_name_the_cluster() {
    let cluster = RedisCluster::start(RedisKind::Redis8, 3).await.unwrap();
    let has = cluster.place_of("orders").await.unwrap();
    let other = cluster.node((has + 1) % 3);
    let error = refused(&other.url(), "orders").await;
    assert_says(&error, other, ErrorKind::Unable, "MOVED");
    assert_says(&error, other, ErrorKind::Unable, "use `Redis::cluster`");
}
