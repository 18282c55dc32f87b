//! Entries of producers that do not use these fields.

use std::time::{Duration, SystemTime};

use keylane::source::{Deliveries, Source as _};
use keylane_redis::StreamSource;
use keylane_testkit::Lines;
use keylane_testkit::scenario::give_up;
use redis::cmd;
use testkit_servers::RedisKind;
use tokio::time::Instant;

use crate::support::{Client, Driven, builder, new_name, payloads, shared};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_fields_are_headers() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("foreign"));
        let source = builder(&server.url(), "g").stream(name.clone());
        let source = source.key_field("user").payload_field("body");
        let mut source = Driven::open(source.build().unwrap()).await;
        let mut add = cmd("XADD");
        add.arg(&name)
            .arg("*")
            .arg("user")
            .arg("7")
            .arg("amount")
            .arg("250");
        add.arg(b"\xff").arg(b"\0\xff");
        let id: String = client.ask(&add).await;
        let with_all = [
            "XADD", &name, "*", "id", "o-1", "version", "12", "body", "x", "user", "",
        ];
        let _: String = client.run(&with_all).await;
        let handed = source.receive(2).await;

        let raw = &handed[0].message;
        assert_eq!(raw.key.as_deref(), Some(&b"7"[..]));
        assert!(raw.payload.is_empty() && !raw.is_tombstone);
        let headers: Vec<_> = raw.headers.iter().collect();
        assert_eq!(headers[0], &("amount".to_owned(), Some("250".into())));
        assert_eq!(
            headers[1],
            &("\u{fffd}".to_owned(), Some((&b"\0\xff"[..]).into()))
        );
        let token = StreamSource::token(raw).unwrap();
        let position = format!("{token} {name}/{id}");
        assert_eq!(raw.position.as_deref(), Some(position.as_bytes()));
        assert_eq!(raw.id.as_deref(), Some(format!("{name}/{id}").as_bytes()));
        let age = SystemTime::now().duration_since(raw.enqueued_at.unwrap());
        assert!(age.unwrap_or_default() < Duration::from_secs(60));

        let raw = &handed[1].message;
        assert_eq!(
            (raw.key.as_deref(), raw.version),
            (Some(&b""[..]), Some(12))
        );
        assert_eq!(
            (raw.id.as_deref(), &raw.payload[..]),
            (Some(&b"o-1"[..]), &b"x"[..])
        );
        assert!(raw.headers.is_empty());
        assert_eq!(handed[0].position.id().to_string(), id);
    }
}

/// Answers have another form in the third version of the protocol.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_versions_of_the_protocol_are_understood() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("resp3"));
        client.add_all(&name, 0..5).await;
        for (acked, left) in [(1, 4), (4, 0)] {
            let url = format!("{}?protocol=resp3", server.url());
            let source = builder(&url, "g").stream(name.clone()).delete_acked();
            let mut source = Driven::open(source.build().unwrap()).await;
            let handed = source.receive(if left == 4 { 5 } else { 4 }).await;
            let again: Vec<_> = handed.iter().map(|one| one.position).collect();
            let mut into = Deliveries::new(5, Instant::now());
            source.0.reread(&again, &mut into).await.unwrap();
            assert_eq!(payloads(&into.take()), payloads(&handed));
            source.ack(&handed[..acked]).await;
            assert_eq!(client.pending(&name, "g").await.len(), left);
            source.0.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_lines_about_an_entry_name_it() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("lines"));
    let lines = Lines::new();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.writer());
    // On one thread, so that all of it is logged to these lines.
    let _on = keylane_testkit::set_subscriber(subscriber.finish());
    for (fields, id) in [("id", "o-1"), ("other", "")] {
        let name = format!("{name}-{fields}");
        let add = ["XADD", &name, "*", "key", "7", fields, "o-1"];
        let entry: String = client.run(&add).await;
        let source = builder(&server.url(), "g").stream(name.clone());
        give_up(source.build().unwrap(), 1).await;
        let position = format!("source=redis streams {name} as g position={name}/{entry}");
        let about = lines.with(&position);
        assert_eq!(about.len(), 3, "{:#?}", lines.all());
        // The entry is no id of the producer.
        let id = match id {
            "" => format!("{position} attempt"),
            id => format!("{position} id={id} attempt"),
        };
        assert!(about.iter().all(|line| line.contains(&id)), "{about:#?}");
    }
}
