//! A cluster of three nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use keylane::source::{LetterCause, RawMessage, Source as _, SourceLetter};
use keylane_redis::{Redis, StreamSink, StreamSource, partition_of};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{Value, cmd};
use testkit_servers::{RedisCluster, RedisKind};

use crate::support::{Driven, LEASE, PATIENCE, payloads, show_log, texts};

async fn add(link: &mut ClusterConnection, stream: &str, key: &str, payload: u64) {
    let mut add = cmd("XADD");
    add.arg(stream)
        .arg("*")
        .arg("key")
        .arg(key)
        .arg("payload")
        .arg(payload);
    let _: String = add.query_async(link).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_on_three_nodes() {
    show_log();
    for kind in [RedisKind::Redis7, RedisKind::Valkey9] {
        let cluster = RedisCluster::start(kind, 3).await.unwrap();
        let urls = cluster.urls();
        let client = ClusterClient::builder(urls.clone()).response_timeout(PATIENCE);
        let mut link = client
            .build()
            .unwrap()
            .get_async_connection()
            .await
            .unwrap();
        let source = |letters: &str| {
            let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
            let builder = StreamSource::builder(&redis, "g").partitions("orders", 8);
            builder
                .lease(20 * LEASE)
                .dead_letters(letters.to_owned())
                .build()
                .unwrap()
        };
        let mut first = Driven::open(source("orders.dead")).await;
        let mut sent = Vec::new();
        for number in 0..200_u64 {
            let key = format!("key-{}", number % 20);
            let partition = partition_of(key.as_bytes(), 8);
            add(&mut link, &format!("orders:{partition}"), &key, number).await;
            sent.push((key, number));
        }
        let handed = first.receive(200).await;
        let of = |key: &str| {
            let theirs = handed
                .iter()
                .filter(|one| one.message.key.as_deref() == Some(key.as_bytes()));
            payloads(&theirs.cloned().collect())
        };
        for key in (0..20).map(|key| format!("key-{key}")) {
            let theirs = sent
                .iter()
                .filter(|(other, _)| *other == key)
                .map(|(_, number)| *number);
            assert_eq!(of(&key), texts(theirs), "{kind}: {key}");
        }
        let streams: BTreeSet<_> = handed.iter().map(|one| one.position.stream()).collect();
        assert_eq!(streams.len(), 8);
        // The letters are in another slot.
        let letter =
            |position| SourceLetter::new(position, 1, LetterCause::Failed, "no".to_owned());
        first
            .0
            .dead_letter(letter(handed[0].position))
            .await
            .unwrap();
        let letters: Vec<Value> = cmd("XLEN")
            .arg("orders.dead")
            .query_async(&mut link)
            .await
            .map(|n: i64| vec![Value::Int(n)])
            .unwrap();
        assert_eq!(letters, [Value::Int(1)]);
        let positions: Vec<_> = handed.iter().take(9).map(|one| one.position).collect();
        let mut into = keylane::source::Deliveries::new(9, tokio::time::Instant::now());
        first.0.reread(&positions, &mut into).await.unwrap();
        assert_eq!(into.take().len(), 9);
        first.ack(&handed[..190]).await;

        // A second member takes its share, with the unacked entries of it.
        let mut second = Driven::open(source("orders.dead")).await;
        let mut theirs = 0;
        let until = tokio::time::Instant::now() + PATIENCE;
        let watch = second.0.watch();
        while watch.counts().owned < 4 {
            assert!(tokio::time::Instant::now() < until, "{:?}", watch.counts());
            let (_, received) = first.once(0, Duration::from_millis(50)).await;
            if let keylane::source::Received::Revoked(generations) = received {
                first.0.release(&generations).await.unwrap();
            }
            theirs += second.once(1_000, Duration::from_millis(50)).await.0.len();
        }
        theirs += second.receive_for(Duration::from_millis(500)).await.len();
        let here = first.0.watch().counts().owned;
        assert_eq!(here, 4, "{kind}");
        let moved = handed[190..]
            .iter()
            .filter(|one| one.position.stream() >= 4)
            .count();
        assert_eq!(theirs, moved, "{kind}: the highest ones have moved");
    }
}

/// Letters in the slot of the stream are written together with the ack.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_in_the_slot_of_its_stream() {
    show_log();
    let cluster = RedisCluster::start(RedisKind::Redis8, 3).await.unwrap();
    let urls = cluster.urls();
    let client = ClusterClient::builder(urls.clone()).response_timeout(PATIENCE);
    let mut link = client
        .build()
        .unwrap()
        .get_async_connection()
        .await
        .unwrap();
    let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
    let source = StreamSource::builder(&redis, "g").partitions("{shop}orders", 2);
    let source = source
        .lease(20 * LEASE)
        .dead_letters("{shop}dead")
        .delete_acked()
        .build()
        .unwrap();
    let mut source = Driven::open(source).await;
    add(&mut link, "{shop}orders:1", "a", 1).await;
    let handed = source.receive(1).await;
    let letter = SourceLetter::new(handed[0].position, 1, LetterCause::Failed, "no".to_owned());
    source.0.dead_letter(letter).await.unwrap();
    let mut length = async |stream: &str| {
        cmd("XLEN")
            .arg(stream)
            .query_async::<u64>(&mut link)
            .await
            .unwrap()
    };
    assert_eq!(
        (length("{shop}dead").await, length("{shop}orders:1").await),
        (1, 0)
    );
}

/// Moves the slot of a key to another node, with all its data.
async fn move_slot(cluster: &RedisCluster, key: &str, to: usize) {
    let ask = async |node: usize, words: &[&str]| {
        let answer = cluster.node(node).execute(words).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    };
    let slot = ask(0, &["CLUSTER", "KEYSLOT", key]).await;
    let nodes = cluster.nodes().len();
    let mut from = None;
    for node in 0..nodes {
        let nodes = ask(node, &["CLUSTER", "NODES"]).await;
        let myself = nodes.lines().find(|line| line.contains("myself")).unwrap();
        let number: u64 = slot.parse().unwrap();
        let ranges = myself
            .trim()
            .split(' ')
            .skip(8)
            .filter(|range| !range.starts_with('['));
        let owns = ranges.into_iter().any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (first.parse().unwrap()..=last.parse().unwrap()).contains(&number)
        });
        if owns {
            from = Some(node);
        }
    }
    let from = from.unwrap();
    if from == to {
        return;
    }
    let (source, target) = (
        ask(from, &["CLUSTER", "MYID"]).await,
        ask(to, &["CLUSTER", "MYID"]).await,
    );
    ask(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).await;
    ask(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).await;
    let port = cluster.node(to).port().to_string();
    loop {
        let keys = ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
        let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
        if keys.is_empty() {
            break;
        }
        let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        ask(from, &[&migrate[..], &keys].concat()).await;
    }
    for node in [to, from]
        .into_iter()
        .chain((0..nodes).filter(|node| ![to, from].contains(node)))
    {
        ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &target]).await;
    }
}

/// A sink whose stream has moved to another node goes on there: the entries from before, during and
/// after the move are there once, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_follows_its_stream() {
    show_log();
    for kind in RedisKind::ALL {
        let cluster = RedisCluster::start(kind, 3).await.unwrap();
        let urls = cluster.urls();
        let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
        let sink = StreamSink::partitions(&redis, "orders", 1).unwrap();
        let mut pushed = Vec::new();
        let mut next = 0_u64;
        let mut push = async |count: u64| {
            let messages: Vec<_> = (next..next + count)
                .map(|number| RawMessage::new(number.to_string()).key("a"))
                .collect();
            next += count;
            let until = tokio::time::Instant::now() + Duration::from_secs(20);
            while let Err(error) = sink.push_all(&messages).await {
                // While it moves, no node may have it.
                assert!(error.is_retryable(), "{kind}: {error}");
                assert!(tokio::time::Instant::now() < until, "{kind}: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            pushed.extend(messages.into_iter().map(|message| message.payload));
        };
        push(3).await;
        for to in [0, 1, 2, 0] {
            move_slot(&cluster, "orders:0", to).await;
            push(1).await;
            push(3).await;
        }
        let client = ClusterClient::new(urls.clone()).unwrap();
        let mut link = client.get_async_connection().await.unwrap();
        let mut range = cmd("XRANGE");
        range.arg("orders:0").arg("-").arg("+");
        let entries: Vec<(String, Vec<(String, String)>)> =
            range.query_async(&mut link).await.unwrap();
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(_, fields)| fields[1].1.clone())
            .collect();
        assert_eq!(entries, pushed, "{kind}");
    }
}

/// A source whose streams move goes on there, without a loss and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_follows_its_streams() {
    show_log();
    for kind in RedisKind::ALL {
        let cluster = RedisCluster::start(kind, 3).await.unwrap();
        let urls = cluster.urls();
        let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
        let sink = StreamSink::new(&redis, "orders").unwrap();
        let source = StreamSource::builder(&redis, "g").stream("orders");
        let mut source = Driven::open(source.lease(20 * LEASE).build().unwrap()).await;
        for (round, to) in [0, 1, 2, 0].into_iter().enumerate() {
            let number = round as u64;
            sink.push(&RawMessage::new(format!("{number}")).key("a"))
                .await
                .unwrap();
            let handed = receive_or_again(&mut source, &number.to_string()).await;
            move_slot(&cluster, "orders", to).await;
            // Entries that were handed out are acked, or come again.
            source.settle(&handed).await;
            let _ = source.0.confirm().await;
        }
        let number = 9;
        sink.push(&RawMessage::new(format!("{number}")).key("a"))
            .await
            .unwrap();
        receive_or_again(&mut source, &number.to_string()).await;
    }
}

/// Receives until this payload comes, and opens the source again if it fails, as the driver does.
async fn receive_or_again(source: &mut Driven, payload: &str) -> crate::support::Handed {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        assert!(
            tokio::time::Instant::now() < until,
            "{payload} has not come"
        );
        let wait = tokio::time::Instant::now() + Duration::from_millis(500);
        let mut into = keylane::source::Deliveries::new(100, wait);
        if source.0.receive(&mut into).await.is_err() {
            source.0.open().await.unwrap();
        }
        let handed = into.take();
        if payloads(&handed).iter().any(|one| one == payload) {
            return handed;
        }
        source.settle(&handed).await;
    }
}

/// Half of the keys are on the other node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_under_a_plain_address_says_what_to_write() {
    show_log();
    let cluster = RedisCluster::start(RedisKind::Redis8, 3).await.unwrap();
    let redis = Redis::at(&cluster.urls()[0]).unwrap();
    let mut refused = 0;
    for number in 0..20 {
        let sink = StreamSink::new(&redis, format!("orders-{number}")).unwrap();
        if let Err(error) = sink.push(&RawMessage::new("payload")).await {
            let text = error.to_string();
            assert!(text.contains("`Redis::cluster`"), "{text}");
            refused += 1;
        }
    }
    assert!(refused > 0 && refused < 20, "{refused}");
}
