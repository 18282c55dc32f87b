//! The order of entries.

use std::time::Duration;

use keylane::source::{Outcome, Received, Settlement, Source as _};
use redis::pipe;
use testkit_servers::RedisKind;

use crate::support::{Client, Driven, builder, new_name, payloads, shared, texts, until};

/// A process dies, with some of its entries acked out of order. The pending entries come first, in
/// order, and then the new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_pending_comes_first_and_in_order() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("crash"));
        client.add_all(&name, 0..10).await;
        let source = || {
            builder(&server.url(), "g")
                .stream(name.clone())
                .build()
                .unwrap()
        };
        let mut first = Driven::open(source()).await;
        let handed = first.receive(8).await;
        assert_eq!(payloads(&handed), texts(0..8));
        let acked = [&handed[1..2], &handed[4..6]].concat();
        first.ack(&acked).await;
        drop(first);
        client.add_all(&name, 10..12).await;
        let mut second = Driven::open(source()).await;
        let handed = second.receive(9).await;
        assert_eq!(payloads(&handed), texts([0, 2, 3, 6, 7, 8, 9, 10, 11]));
        second.ack(&handed).await;
        second.0.close().await.unwrap();
        assert_eq!(client.pending(&name, "g").await, []);
        let consumers: Vec<redis::Value> = client.run(&["XINFO", "CONSUMERS", &name, "g"]).await;
        assert_eq!(consumers.len(), 0, "consumers without entries are removed");
    }
}

/// Entries that another consumer of the group takes in between are taken back, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_former_owner_takes_comes_in_order() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("stolen"));
        let source = builder(&server.url(), "g").stream(name.clone());
        let mut source = Driven::open(source.build().unwrap()).await;
        let watch = source.0.watch();
        client.add_all(&name, 0..3).await;
        let mut handed = source.receive(3).await;
        // In one step, so that the owner reads nothing in between.
        let mut steps = pipe();
        steps.atomic();
        for number in 3..9 {
            steps.cmd("XADD").arg(&name).arg("*").arg("key").arg("a");
            steps.arg("payload").arg(number);
            if number == 6 {
                steps.cmd("XREADGROUP").arg("GROUP").arg("g").arg("former");
                steps.arg("COUNT").arg(3).arg("STREAMS").arg(&name).arg(">");
            }
        }
        client.steps(&steps).await;
        handed.extend(source.receive(6).await);
        assert_eq!(payloads(&handed), texts(0..9));
        assert!(watch.counts().strays > 0);
        assert!(handed.iter().all(|one| one.attempts == 0));
        source.ack(&handed).await;
        assert_eq!(client.pending(&name, "g").await, []);
    }
}

/// Entries that are taken behind the last one come as well, even if no entry is added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_former_owner_takes_at_the_end_comes() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("stolen-end"));
    let source = builder(&server.url(), "g").stream(name.clone());
    let mut source = Driven::open(source.build().unwrap()).await;
    client.add_all(&name, 0..1).await;
    let mut handed = source.receive(1).await;
    let mut steps = pipe();
    steps.atomic();
    steps
        .cmd("XADD")
        .arg(&name)
        .arg("*")
        .arg("payload")
        .arg("1");
    steps.cmd("XREADGROUP").arg("GROUP").arg("g").arg("former");
    steps.arg("STREAMS").arg(&name).arg(">");
    client.steps(&steps).await;
    handed.extend(source.receive(1).await);
    assert_eq!(payloads(&handed), texts(0..2));
}

/// A consumer takes entries all the time, and the order still holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thief_at_full_speed_changes_nothing() {
    let server = shared(RedisKind::Redis8).await;
    let (client, name) = (Client::to(&server).await, new_name("thief"));
    let source = builder(&server.url(), "g")
        .stream(name.clone())
        .read_ahead(7);
    let mut source = Driven::open(source.build().unwrap()).await;
    let watch = source.0.watch();
    client.add_all(&name, 0..1).await;
    let mut handed = source.receive(1).await;
    let thief = tokio::spawn({
        let (client, name) = (Client::to(&server).await, name.clone());
        async move {
            loop {
                let steal = ["XREADGROUP", "GROUP", "g", "thief", "COUNT", "2", "STREAMS"];
                let steal = [&steal[..], &[&name, ">"]].concat();
                let _: redis::Value = client.run(&steal).await;
                tokio::task::yield_now().await;
            }
        }
    });
    let adding = tokio::spawn({
        let (client, name) = (Client::to(&server).await, name.clone());
        async move { client.add_all(&name, 1..2_000).await }
    });
    handed.extend(source.receive(1_999).await);
    thief.abort();
    adding.await.unwrap();
    assert_eq!(payloads(&handed), texts(0..2_000));
    assert!(watch.counts().strays > 10, "{:?}", watch.counts());
}

/// A returned entry comes again, with all entries behind it, in a new generation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_comes_again_in_order() {
    let server = shared(RedisKind::Valkey9).await;
    let (client, name) = (Client::to(&server).await, new_name("returned"));
    let source = builder(&server.url(), "g").stream(name.clone());
    let mut source = Driven::open(source.build().unwrap()).await;
    client.add_all(&name, 0..6).await;
    let handed = source.receive(4).await;
    let returned = Settlement::new(handed[1].position, Outcome::returned(1));
    source.0.settle(&[returned]).await.unwrap();
    source.ack(&handed[..1]).await;
    let (none, received) = source.once(10, Duration::from_secs(5)).await;
    assert!(
        none.is_empty(),
        "nothing more until its generation has ended"
    );
    let generation = handed[0].generation;
    assert_eq!(received, Received::Revoked(vec![generation]));
    // One of them was in flight, and has ended.
    source.ack(&handed[3..4]).await;
    source.0.release(&[generation]).await.unwrap();
    let again = source.receive(4).await;
    assert_eq!(payloads(&again), texts([1, 2, 4, 5]));
    assert_eq!(again[0].attempts, 1, "the one that has ended counts");
    assert_eq!(again[1].attempts, 0);
    assert!(again.iter().all(|one| one.generation > generation));
}

/// A stream is read again only after earlier settlements are sent, in any number of steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_settled_does_not_come_again() {
    const COUNT: usize = 20_000;
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("settled"));
    let mut steps = pipe();
    for number in 0..COUNT {
        steps.cmd("XADD").arg(&name).arg("*");
        steps.arg("payload").arg(number);
    }
    client.steps(&steps).await;
    let source = builder(&server.url(), "g").stream(name.clone());
    let mut source = Driven::open(source.build().unwrap()).await;
    let handed = source.receive(COUNT).await;
    let returned = Settlement::new(handed[COUNT - 1].position, Outcome::returned(0));
    source.0.settle(&[returned]).await.unwrap();
    let generation = handed[0].generation;
    let (_, received) = source.once(10, Duration::from_secs(5)).await;
    assert_eq!(received, Received::Revoked(vec![generation]));
    // All of them were in flight, and end now.
    source.settle(&handed[..COUNT - 1]).await;
    source.0.release(&[generation]).await.unwrap();
    let again = source.receive(1).await;
    assert_eq!(payloads(&again), texts([COUNT as u64 - 1]));
}

/// Several streams are read in turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_stream_does_not_hold_up_a_short_one() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("several"));
    let names = [format!("{name}-long"), format!("{name}-short")];
    client.add_all(&names[0], 0..400).await;
    client.add_all(&names[1], 1_000..1_003).await;
    let source = builder(&server.url(), "g").streams(names.clone());
    let mut source = Driven::open(source.build().unwrap()).await;
    let watch = source.0.watch();
    // The first entry is from either stream.
    let mut handed = source.receive(1).await;
    until("all of the short one are here", async || {
        source.once(0, Duration::from_millis(600)).await;
        let mut parts = watch.parts().into_iter();
        let short = parts.find(|part| part.stream == names[1]);
        short.is_some_and(|part| part.open + part.waiting == 3)
    })
    .await;
    handed.extend(source.receive(200).await);
    let short = handed
        .iter()
        .filter(|one| one.position.stream() == 1)
        .count();
    assert_eq!(short, 3, "of the short one");
}

/// An idle source receives a new entry at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_entry_comes_at_once() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("idle"));
    let source = builder(&server.url(), "g").stream(name.clone());
    let mut source = Driven::open(source.build().unwrap()).await;
    client.add_all(&name, 0..1).await;
    source.receive(1).await;
    let mut waits = Vec::new();
    for number in 1..6 {
        source.receive_for(Duration::from_millis(100)).await;
        let began = tokio::time::Instant::now();
        client.add_all(&name, number..number + 1).await;
        source.receive(1).await;
        waits.push(began.elapsed());
    }
    // A source that polls takes more than a second each time.
    waits.sort_unstable();
    assert!(waits[1] < Duration::from_millis(300), "{waits:?}");
}
