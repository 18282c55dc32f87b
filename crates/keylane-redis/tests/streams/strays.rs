//! Producers that were set up wrongly: what the log says of their entries.

use keylane_redis::StreamBuilder;
use testkit_servers::RedisKind;
use tracing::Level;

use crate::logs::Logs;
use crate::support::{Client, Driven, builder, new_name, shared, until};

/// What a source logs that receives this many entries.
async fn warnings(source: StreamBuilder, entries: usize, least: usize) -> Vec<String> {
    let logs = Logs::record();
    let mut source = Driven::open(source.build().unwrap()).await;
    source.receive(entries).await;
    until("the warnings are there", async || {
        logs.at(Level::WARN).len() >= least
    })
    .await;
    drop(source);
    logs.at(Level::WARN)
}

#[tokio::test]
async fn entries_without_a_key_or_a_payload_are_warned_of_once() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("strays"));
        for _ in 0..3 {
            let add = ["XADD", &name, "*", "user", "u-7", "order", "12 cents"];
            let _: String = client.run(&add).await;
        }
        let source = || builder(&server.url(), "g").stream(name.clone());
        let said = warnings(source(), 3, 2).await;
        assert_eq!(said.len(), 2, "{kind}: {said:#?}");
        for (line, field, remedy) in [
            (&said[0], "field=key", "`StreamBuilder::key_field`"),
            (&said[1], "field=payload", "`StreamBuilder::payload_field`"),
        ] {
            assert!(line.contains(&*name) && line.contains(field), "{line}");
            assert!(line.contains(remedy), "{line}");
        }
        let source = builder(&server.url(), "right").stream(name.clone());
        let source = source.key_field("user").payload_field("order");
        assert_eq!(warnings(source, 3, 0).await, [""; 0], "{kind}");
    }
}

#[tokio::test]
async fn messages_under_the_name_of_partitions_are_warned_of_once() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let client = Client::to(&server).await;
        let (stream, list, right) = (new_name("un"), new_name("listed"), new_name("right"));
        client.add(&stream, "u-7", "12 cents").await;
        let _: u64 = client.run(&["LPUSH", &list, "12 cents"]).await;
        for name in [&stream, &list, &right] {
            client.add(&format!("{name}:0"), "u-7", "13 cents").await;
        }
        let source = builder(&server.url(), "g");
        let source = [&stream, &list, &right]
            .into_iter()
            .fold(source, |source, name| source.partitions(name, 2));
        let mut said = warnings(source, 3, 2).await;
        said.sort_unstable_by_key(|line| line.contains(&format!("`{list}:N`")));
        assert_eq!(said.len(), 2, "{kind}: {said:#?}");
        for (line, name) in said.iter().zip([&stream, &list]) {
            assert!(line.contains(&format!("`{name}:N`")), "{line}");
        }
        // It is read, too.
        let source = builder(&server.url(), "both").partitions(&stream, 2);
        let source = source.stream(stream.clone());
        assert_eq!(warnings(source, 2, 0).await, [""; 0], "{kind}");
    }
}
