//! Streams that are created again, and servers whose history branches: the same ids come a second
//! time.

use std::net::Ipv4Addr;
use std::time::Duration;

use keylane::source::{LetterCause, RawMessage, Received, Source as _, SourceLetter};
use keylane::{OnExhausted, Retry};
use keylane_testkit::scenario::{boxed, by_key};
use redis::Value;
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;

use crate::support::{
    Client, Driven, Handed, LEASE, builder, new_name, own, payloads, shared, texts, until,
};

/// Entries with these payloads, under the ids `1-1`, `1-2` and so on.
fn entries(name: &str, payloads: std::ops::Range<u64>) -> redis::Pipeline {
    let mut steps = redis::pipe();
    steps.atomic();
    for (place, payload) in payloads.enumerate() {
        steps.cmd("XADD").arg(name).arg(format!("1-{}", place + 1));
        steps.arg("key").arg("a").arg("payload").arg(payload);
    }
    steps
}

/// The event of the stream while its source was at work.
#[derive(Clone, Copy, Debug)]
enum Again {
    /// It was deleted, and created again with its ids.
    Stream,
    /// So was its group, before the source could notice.
    StreamAndGroup,
    /// The server was emptied, and another member of the group was first.
    Server,
}

impl Again {
    async fn make(self, client: &Client, name: &str, payloads: std::ops::Range<u64>) {
        let mut steps = redis::pipe();
        steps.atomic();
        match self {
            Self::Server => steps.cmd("FLUSHALL"),
            Self::Stream | Self::StreamAndGroup => steps.cmd("DEL").arg(name),
        };
        for (place, payload) in payloads.enumerate() {
            steps.cmd("XADD").arg(name).arg(format!("1-{}", place + 1));
            steps.arg("key").arg("a").arg("payload").arg(payload);
        }
        if let Self::StreamAndGroup = self {
            steps.cmd("XGROUP").arg("CREATE").arg(name).arg("g").arg(0);
        }
        client.steps(&steps).await;
    }
}

/// Receives this many entries while earlier ones settle one by one, as late as possible. If the
/// server refuses one before the source knows, opens the source again, as the driver does.
async fn settle_late(source: &mut Driven, old: &Handed, count: usize) -> Handed {
    let mut handed = Vec::new();
    for one in old {
        let (more, _) = source.once(100, Duration::from_millis(300)).await;
        handed.extend(more);
        source.settle(std::slice::from_ref(one)).await;
        if source.0.confirm().await.is_err() {
            // What has come so far comes again.
            handed.clear();
            source.0.open().await.unwrap();
        }
    }
    let left = count - handed.len().min(count);
    handed.extend(source.receive(left).await);
    handed
}

/// Settlements of the old stream ack no entry of the new one with its name, and hide none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_made_again_is_a_new_one() {
    for kind in RedisKind::ALL {
        for again in [Again::Stream, Again::StreamAndGroup, Again::Server] {
            let server = own(kind).await;
            let (client, name) = (Client::to(&server).await, new_name("again"));
            client.steps(&entries(&name, 0..6)).await;
            // A server that was emptied has no leases: none is renewed in the time of the test.
            let source = || builder(&server.url(), "g").lease(60 * LEASE);
            let source = || source().stream(name.clone()).build();
            let mut running = Driven::open(source().unwrap()).await;
            let old = running.receive(6).await;
            running.ack(&old[..2]).await;
            again.make(&client, &name, 100..109).await;

            let new = settle_late(&mut running, &old[2..].to_vec(), 9).await;
            assert_eq!(payloads(&new), texts(100..109), "{kind}, {again:?}");
            assert_eq!(
                client.left(&name, "g").await,
                9,
                "{kind}, {again:?}: none is acked"
            );
            running.ack(&new[..4]).await;
            assert_eq!(client.left(&name, "g").await, 5, "{kind}, {again:?}");

            // The same for a later process, with the open entries of the stream.
            running.0.close().await.unwrap();
            let mut later = Driven::open(source().unwrap()).await;
            let rest = later.receive(5).await;
            assert_eq!(payloads(&rest), texts(104..109), "{kind}, {again:?}");
            later.ack(&rest).await;
            later.0.close().await.unwrap();
            again.make(&client, &name, 200..203).await;
            let mut last = Driven::open(source().unwrap()).await;
            let all = last.receive(3).await;
            assert_eq!(payloads(&all), texts(200..203), "{kind}, {again:?}");
        }
    }
}

/// All entries had settled, and the new stream has more than the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_made_again_is_read_from_its_beginning() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("overtakes"));
        client.steps(&entries(&name, 0..6)).await;
        let source = builder(&server.url(), "g").stream(name.clone());
        let mut source = Driven::open(source.build().unwrap()).await;
        let old = source.receive(6).await;
        source.ack(&old).await;
        Again::Stream.make(&client, &name, 100..120).await;
        let new = source.receive(20).await;
        assert_eq!(payloads(&new), texts(100..120), "{kind}");
        source.ack(&new).await;
        assert_eq!(client.left(&name, "g").await, 0);
    }
}

/// An entry of the old stream is given up. The new entry with that id has no letter and is not
/// acked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_of_a_former_stream_is_not_that_of_a_new_entry() {
    for letters in ["dead", "elsewhere"] {
        let server = shared(RedisKind::Redis7).await;
        let (client, name) = (Client::to(&server).await, new_name("letter-again"));
        let dead = format!("{name}.{letters}");
        client.steps(&entries(&name, 0..2)).await;
        let source = builder(&server.url(), "g").stream(name.clone());
        let source = source.dead_letters(dead.clone()).build().unwrap();
        let mut source = Driven::open(source).await;
        let old = source.receive(2).await;
        Again::StreamAndGroup.make(&client, &name, 100..102).await;
        let (_, _) = source.once(100, Duration::from_millis(300)).await;
        let letter = SourceLetter::new(
            old[0].position,
            3,
            LetterCause::Failed,
            "no funds".to_owned(),
        );
        source.0.dead_letter(letter).await.unwrap_err();
        assert_eq!(client.run::<u64>(&["XLEN", &dead]).await, 0);
        let new = source.receive(2).await;
        assert_eq!(payloads(&new), texts(100..102));
    }
}

/// A group that an operator has created again begins where the operator has set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_made_again_begins_where_it_says() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("group-again"));
        client.steps(&entries(&name, 0..6)).await;
        let source = builder(&server.url(), "g").stream(name.clone());
        let mut source = Driven::open(source.build().unwrap()).await;
        let old = source.receive(6).await;
        source.ack(&old[..2]).await;
        let mut steps = redis::pipe();
        steps.atomic();
        steps.cmd("XGROUP").arg("DESTROY").arg(&name).arg("g");
        steps
            .cmd("XGROUP")
            .arg("CREATE")
            .arg(&name)
            .arg("g")
            .arg("1-1");
        client.steps(&steps).await;
        let new = settle_late(&mut source, &old[2..].to_vec(), 5).await;
        assert_eq!(payloads(&new), texts(1..6), "{kind}");
        assert_eq!(client.left(&name, "g").await, 5, "{kind}: none is acked");
    }
}

/// An operator removes the consumer, and with it its pending entries: they come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_removed_consumer_had_comes_again() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("consumer"));
        client.add_all(&name, 0..6).await;
        let source = builder(&server.url(), "g").stream(name.clone());
        let mut source = Driven::open(source.build().unwrap()).await;
        let old = source.receive(6).await;
        source.ack(&old[..2]).await;
        remove_consumers(&client, &name).await;
        // An entry that was being handled does not come again, although its ack is refused. The
        // source cannot know of the removal before the next call.
        source.settle(&old[2..3]).await;
        let confirmed = source.0.confirm().await;
        assert!(confirmed.is_err(), "{kind}: it was acked");
        let again = source.receive(3).await;
        assert_eq!(payloads(&again), texts(3..6), "{kind}");
        assert_eq!(client.left(&name, "g").await, 3, "{kind}: none is acked");
        source.settle(&again).await;
        until("all are acked", async || client.left(&name, "g").await == 0).await;
    }
}

pub(crate) async fn remove_consumers(client: &Client, name: &str) {
    let consumers: Vec<std::collections::HashMap<String, Value>> =
        client.run(&["XINFO", "CONSUMERS", name, "g"]).await;
    for consumer in consumers {
        let consumer: String =
            redis::FromRedisValue::from_redis_value(consumer["name"].clone()).unwrap();
        let _: u64 = client
            .run(&["XGROUP", "DELCONSUMER", name, "g", &consumer])
            .await;
    }
}

/// A replica is promoted that lacks the last entries, and has others under their ids. The address
/// stays the same, and so do the connections: as with a load balancer, or in a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_promoted_has_another_history() {
    for kind in RedisKind::ALL {
        let (server, replica) = (own(kind).await, own(kind).await);
        let (client, name) = (Client::to(&server).await, new_name("promoted"));
        let behind = Client::to(&replica).await;
        let cable = Proxy::to((Ipv4Addr::LOCALHOST, server.port()).into())
            .await
            .unwrap();
        client.steps(&entries(&name, 0..3)).await;
        let source = || {
            let builder = builder(&server.url(), "g").stream(name.clone());
            builder.lease(Duration::from_secs(60)).build().unwrap()
        };
        let mut source = Driven::open(source()).await;
        let first = source.receive(3).await;
        source.ack(&first).await;
        let port = cable.port().to_string();
        let _: Value = behind.run(&["REPLICAOF", "127.0.0.1", &port]).await;
        until("the replica follows", async || {
            let owner = format!("{{{name}}}:keylane:owner:g");
            behind.run::<u64>(&["EXISTS", &owner]).await == 1
        })
        .await;
        cable.cut();
        let add = async |to: &Client, payloads: std::ops::Range<u64>| {
            for (place, payload) in payloads.enumerate() {
                let (id, payload) = (format!("1-{}", place + 4), payload.to_string());
                let words = ["XADD", &name, &id, "key", "a", "payload", &payload];
                let _: String = to.run(&words).await;
            }
        };
        add(&client, 3..6).await;
        let lost = source.receive(3).await;

        let _: Value = behind.run(&["REPLICAOF", "NO", "ONE"]).await;
        add(&behind, 103..106).await;
        // From here on the server has the data of the replica. It takes writes meanwhile.
        let _: Value = client
            .run(&["CONFIG", "SET", "replica-read-only", "no"])
            .await;
        let port = replica.port().to_string();
        let _: Value = client.run(&["REPLICAOF", "127.0.0.1", &port]).await;
        until("it has the other history", async || {
            let words = ["XRANGE", &name, "1-4", "1-4"];
            let found: Vec<(String, Vec<String>)> = client.run(&words).await;
            found.iter().any(|(_, fields)| fields[3] == "103")
        })
        .await;
        let _: Value = client.run(&["REPLICAOF", "NO", "ONE"]).await;

        let new = settle_late_or_again(&mut source, &lost, 3).await;
        assert_eq!(payloads(&new), texts(103..106), "{kind}");
        assert_eq!(client.left(&name, "g").await, 3, "{kind}: none is acked");
        source.ack(&new).await;
        assert_eq!(client.left(&name, "g").await, 0, "{kind}");
    }
}

/// Does the same as the driver does it: opens a source that fails again.
async fn settle_late_or_again(source: &mut Driven, old: &Handed, count: usize) -> Handed {
    let (mut handed, mut late) = (Vec::new(), old.iter());
    for _ in 0..200 {
        let mut into = keylane::source::Deliveries::new(
            100,
            tokio::time::Instant::now() + Duration::from_millis(300),
        );
        match source.0.receive(&mut into).await {
            Ok(Received::Messages | Received::Idle | Received::Lost(_)) => {
                handed.extend(into.take())
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => {
                handed.clear();
                source.0.open().await.unwrap();
            }
        }
        match late.next() {
            Some(one) => {
                source.settle(std::slice::from_ref(one)).await;
                if source.0.confirm().await.is_err() {
                    handed.clear();
                    source.0.open().await.unwrap();
                }
            }
            None if handed.len() >= count => return handed,
            None => {}
        }
    }
    panic!("only {:?} came", payloads(&handed));
}

/// Consumers are removed again and again while attempts fail. Letters that are counted were
/// written, and the other entries come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_are_counted_were_written() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("counted"));
        let dead = format!("{name}.dead");
        let failing = by_key()
            .retry(Retry::fixed(Duration::from_millis(40)).max_attempts(6))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(|_: RawMessage| async { Err("no funds".into()) }))
            .unwrap();
        let source = builder(&server.url(), "g").stream(name.clone());
        let source = source.dead_letters(dead.clone()).build().unwrap();
        let intake = failing.consume(source).unwrap();
        for number in 0..5_u64 {
            client
                .add(&name, &format!("key-{number}"), &number.to_string())
                .await;
        }
        for _ in 0..3 {
            until("all are pending", async || {
                client.left(&name, "g").await == 5 && intake.stats().held == 5
            })
            .await;
            tokio::time::sleep(Duration::from_millis(60)).await;
            remove_consumers(&client, &name).await;
        }
        until("all have letters", async || {
            client.run::<u64>(&["XLEN", &dead]).await >= 5
        })
        .await;
        until("nothing is left", async || {
            client.left(&name, "g").await == 0
        })
        .await;
        let report = intake.stop().await;
        let letters: Vec<(String, Vec<String>)> = client.run(&["XRANGE", &dead, "-", "+"]).await;
        assert_eq!(
            report.dead_lettered,
            letters.len() as u64,
            "{kind}: {report}"
        );
        let mut keys: Vec<_> = letters
            .iter()
            .map(|(_, fields)| fields[1].clone())
            .collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            texts(0..5)
                .iter()
                .map(|n| format!("key-{n}"))
                .collect::<Vec<_>>()
        );
    }
}

/// An entry that an operator has acked has no letter, is not acked again, and is not counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_is_no_longer_ours_has_no_letter() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("acked"));
        let dead = format!("{name}.dead");
        let ids = client.add_all(&name, 0..2).await;
        let source = builder(&server.url(), "g").stream(name.clone());
        let source = source.dead_letters(dead.clone()).build().unwrap();
        let mut source = Driven::open(source).await;
        let handed = source.receive(2).await;
        let _: u64 = client.run(&["XACK", &name, "g", &ids[0]]).await;
        let letter = SourceLetter::new(
            handed[0].position,
            3,
            LetterCause::Failed,
            "no funds".to_owned(),
        );
        source.0.dead_letter(letter).await.unwrap_err();
        assert_eq!(client.run::<u64>(&["XLEN", &dead]).await, 0, "{kind}");
        let again = source.receive(1).await;
        assert_eq!(payloads(&again), texts([1]), "{kind}");
    }
}
