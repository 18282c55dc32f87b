//! Commands that a server cannot execute, or refuses to some users, while the rest goes on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_leases::Leases;
use keylane_leases::error::AcquireError;
use keylane_redis::{Redis, RedisLeases, StreamSource};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{boxed, by_key};
use redis::Value;
use testkit_servers::{Fsync, RedisCluster, RedisKind};

use crate::parts::{acked, add, allow, consume, consume_behind, source, url};
use crate::support::{Client, Driven, LEASE, builder, new_name, shared, until};

/// Takes a right from a user, for example `-xack`.
async fn forbid(client: &Client, user: &str, what: &str) {
    client.run::<()>(&["ACL", "SETUSER", user, what]).await;
}

/// Its acks are refused, so it releases the stream. Other members must not start entries that it
/// still handles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_takes_no_acks_is_not_given_to_others_meanwhile() {
    let server = shared(RedisKind::Redis8).await;
    let (client, user) = (Client::to(&server).await, new_name("user"));
    let name = new_name("unacked");
    allow(&client, &user, &[&name]).await;
    forbid(&client, &user, "-xack").await;
    let stream = builder(&url(&server, &user), "g").stream(name.clone());
    let one = consume(stream.build().unwrap());
    add(&client, &name, 0..1).await;
    until("it fails", async || !one.failed().is_empty()).await;
    let redis = Redis::at(&server.url()).unwrap();
    let leases = RedisLeases::open(&redis, "keylane-streams:g").unwrap();
    let leases = Leases::open(Arc::new(leases)).unwrap();
    let lease = Bytes::from(format!("keylane-stream:1:g:{name}"));
    let restarts = one.intake.stats().restarts;
    until("it is let go of again and again", async || {
        let taken = leases.try_acquire(lease.clone(), LEASE).await;
        let is_held = matches!(taken, Err(AcquireError::Taken { .. }));
        assert!(is_held, "{taken:?}");
        one.intake.stats().restarts >= restarts + 3
    })
    .await;
    allow(&client, &user, &[&name]).await;
    acked(&client, &[name]).await;
    one.recovers().await;
}

/// The streams of a dead member are free, whether the others may read the list of members or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_the_dead_are_taken_though_the_members_are_unknown() {
    let server = shared(RedisKind::Valkey9).await;
    let client = Client::to(&server).await;
    let names = ["first", "second", "third"].map(new_name);
    let one = consume(source(&server.url(), &names));
    for name in &names {
        add(&client, name, 0..1).await;
    }
    acked(&client, &names).await;
    let mut other = Driven::open(source(&server.url(), &names)).await;
    let watch = other.0.watch();
    until("both have a share", async || {
        other.receive_for(Duration::from_millis(20)).await;
        watch.counts().owned > 0
    })
    .await;
    // The key of the members is beside the first stream.
    let members = format!("{{{}}}:keylane:members:g", names[0]);
    client.run::<()>(&["DEL", &members]).await;
    client.run::<()>(&["SET", &members, "no members"]).await;
    until("it is said", async || {
        let failed = one.failed();
        failed.iter().any(|part| part.part == "the members of g")
    })
    .await;
    drop(other);
    for name in &names {
        add(&client, name, 1..2).await;
        one.handles(name, 0..2).await;
    }
    client.run::<()>(&["DEL", &members]).await;
    one.recovers().await;
    acked(&client, &names).await;
}

/// A take-over after a failed one has the same knowledge as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_removed_consumer_had_comes_again_after_a_take_over_that_has_failed() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, user) = (Client::to(&server).await, new_name("user"));
        let name = new_name("removed");
        allow(&client, &user, &[&name]).await;
        let gate = Gate::new();
        let of_user = builder(&url(&server, &user), "g").stream(name.clone());
        let consumed = consume_behind(of_user.build().unwrap(), &gate);
        add(&client, &name, 0..3).await;
        acked(&client, std::slice::from_ref(&name)).await;
        client.add(&name, "slow", "slow").await;
        until("it is under way", async || gate.waiting() == 1).await;
        forbid(&client, &user, "-xgroup|setid").await;
        let groups: Vec<Vec<Value>> = client.run(&["XINFO", "CONSUMERS", &name, "g"]).await;
        for consumer in groups {
            let Value::BulkString(consumer) = &consumer[1] else {
                panic!("{consumer:?}");
            };
            let consumer = String::from_utf8_lossy(consumer);
            let words = ["XGROUP", "DELCONSUMER", &name, "g", &consumer];
            client.run::<u64>(&words).await;
        }
        consumed.has_failed(&name).await;
        gate.open();
        allow(&client, &user, &[&name]).await;
        consumed.recovers().await;
        add(&client, &name, 3..4).await;
        consumed.handles(&name, 0..4).await;
        acked(&client, std::slice::from_ref(&name)).await;
        let stats = consumed.intake.stop().await;
        // The pending entries have come once more.
        assert_eq!(stats.received, 6, "{kind}: {stats}");
    }
}

/// A transaction that is refused at its first word: the connection goes on, and the error says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_whose_transactions_are_refused_fails_alone() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, user) = (Client::to(&server).await, new_name("user"));
        let name = new_name("multi");
        allow(&client, &user, &[&name]).await;
        forbid(&client, &user, "-multi").await;
        let of_user = builder(&url(&server, &user), "g").stream(name.clone());
        let consumed = consume(of_user.build().unwrap());
        add(&client, &name, 0..3).await;
        let part = consumed.has_failed(&name).await;
        assert!(part.why.contains("NOPERM"), "{kind}: {part:?}");
        allow(&client, &user, &[&name]).await;
        consumed.handles(&name, 0..3).await;
        consumed.recovers().await;
        acked(&client, &[name]).await;
        assert_eq!(consumed.intake.stop().await.restarts, 0, "{kind}");
    }
}

/// The node that has this key.
async fn node_of(cluster: &RedisCluster, key: &str) -> usize {
    for node in 0..cluster.nodes().len() {
        // The other nodes answer that it has moved.
        if cluster.node(node).execute(&["EXISTS", key]).await.is_ok() {
            return node;
        }
    }
    panic!("no node has {key}");
}

/// One node of a cluster is down: the streams of the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_node_that_is_away_fail_alone() {
    let nodes = testkit_servers::Redis::builder(RedisKind::Redis8);
    let nodes = nodes.argument("cluster-require-full-coverage", "no");
    let nodes = nodes.appendfsync(Fsync::Always);
    let cluster = nodes.start_cluster(3).await.unwrap();
    let urls = cluster.urls();
    let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
    // The node with the members and the leases stays up.
    let leases = node_of(&cluster, "{keylane-streams:g}").await;
    let away = (leases + 1) % 3;
    let (mut there, mut gone) = (Vec::new(), Vec::new());
    for number in 0..40 {
        let name = format!("orders-{number}");
        let names = match node_of(&cluster, &name).await == away {
            true => &mut gone,
            false => &mut there,
        };
        if names.len() < 2 {
            names.push(name);
        }
    }
    let names: Vec<String> = there.iter().chain(&gone).cloned().collect();
    let source = StreamSource::builder(&redis, "g").lease(Duration::from_secs(10));
    let source = names
        .iter()
        .fold(source, |source, name| source.stream(name.clone()));
    let consumed = consume(source.build().unwrap());
    let sink = |name: &str| keylane_redis::StreamSink::new(&redis, name.to_owned()).unwrap();
    let push = async |name: &str, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let message = RawMessage::new(format!("{name}/{number}")).key(name.to_owned());
            sink(name).push(&message).await.unwrap();
        }
    };
    for name in &names {
        push(name, 0..5).await;
        consumed.handles(name, 0..5).await;
    }
    until("all have settled", async || {
        consumed.intake.stats().acked == 20
    })
    .await;
    // Until the source has received the answers too: an ack without one opens it again.
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.node(away).kill().await.unwrap();
    until("its streams fail", async || {
        let failed = consumed.failed();
        let failed: BTreeSet<_> = failed.iter().map(|part| part.part.clone()).collect();
        failed == gone.iter().cloned().collect()
    })
    .await;
    for name in &there {
        push(name, 5..10).await;
        consumed.handles(name, 0..10).await;
    }
    cluster.node(away).start_again().await.unwrap();
    consumed.recovers().await;
    for name in &gone {
        push(name, 5..10).await;
        consumed.handles(name, 0..10).await;
    }
    let report = consumed.intake.stop().await;
    assert_eq!((report.restarts, report.acked), (0, 40), "{report}");
}

/// A node of its own has no memory for a letter: only its key waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_for_which_there_is_no_memory_holds_up_its_key_alone() {
    let cluster = RedisCluster::start(RedisKind::Redis7, 3).await.unwrap();
    let urls = cluster.urls();
    let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
    let leases = node_of(&cluster, "{keylane-streams:g}").await;
    let full = (leases + 1) % 3;
    let (mut stream, mut letters) = (None, None);
    for number in 0..40 {
        let name = format!("orders-{number}");
        match node_of(&cluster, &name).await == full {
            true => letters = Some(name),
            false => stream = Some(name),
        }
    }
    let (stream, letters) = (stream.unwrap(), letters.unwrap());
    let handled = Arc::<Mutex<Vec<String>>>::default();
    let theirs = Arc::clone(&handled);
    let consumer = by_key()
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(move |raw: RawMessage| {
            let payload = String::from_utf8(raw.payload.to_vec()).unwrap();
            let theirs = Arc::clone(&theirs);
            async move {
                theirs.lock().unwrap().push(payload.clone());
                match &payload[..] {
                    "bad" => Err("bad".into()),
                    _ => Ok(()),
                }
            }
        }))
        .unwrap();
    let source = StreamSource::builder(&redis, "g").stream(stream.clone());
    let source = source.dead_letters(letters.clone()).build().unwrap();
    let intake = consumer.consume(source).unwrap();
    let node = cluster.node(full);
    node.execute(&["CONFIG", "SET", "maxmemory", "1"])
        .await
        .unwrap();
    let sink = keylane_redis::StreamSink::new(&redis, stream).unwrap();
    sink.push(&RawMessage::new("bad").key("bad")).await.unwrap();
    until("it is given up", async || {
        !handled.lock().unwrap().is_empty()
    })
    .await;
    // The letter is written now, or in a moment.
    tokio::time::sleep(Duration::from_millis(200)).await;
    for number in 0..20 {
        let message = RawMessage::new(number.to_string()).key("good");
        sink.push(&message).await.unwrap();
    }
    until("the others are acked", async || intake.stats().acked == 20).await;
    assert_eq!(intake.stats().dead_lettered, 0);
    node.execute(&["CONFIG", "SET", "maxmemory", "0"])
        .await
        .unwrap();
    until("the letter is there", async || {
        intake.stats().dead_lettered == 1
    })
    .await;
    let length = node.execute(&["XLEN", &letters]).await.unwrap();
    assert_eq!(length.trim(), "1");
    let report = intake.stop().await;
    assert_eq!(report.restarts, 0, "{report}");
    assert_eq!(handled.lock().unwrap().len(), 21);
}
