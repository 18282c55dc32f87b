//! Hostile conditions for a list: requests that come late or twice, elements that only look like
//! ours, keys of another type, and numbers that are too large.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::OnExhausted;
use keylane::consume::{Intake, IntakeSettings};
use keylane::source::{Deliveries, Outcome, RawMessage, Settlement, Source};
use keylane_redis::{ErrorKind, ListBuilder, ListKey, ListQueue};
use keylane_testkit::scenario::{boxed, by_key};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use testkit_servers::RedisKind;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::direct::Direct;
use crate::late::Late;
use crate::state::{beside, check, check_idle};
use crate::support::{builder, connect, new_name, own, shared, until};

/// A list of its own on a server that other tests use as well.
struct List {
    server: Arc<testkit_servers::Redis>,
    raw: MultiplexedConnection,
    name: String,
}

impl List {
    async fn new(what: &str) -> Self {
        Self::on(shared(RedisKind::Redis7).await, what).await
    }

    async fn on(server: Arc<testkit_servers::Redis>, what: &str) -> Self {
        Self {
            raw: connect(&server.url()).await,
            server,
            name: new_name(what),
        }
    }

    fn builder(&self) -> ListBuilder {
        let builder = builder(&self.server.url(), &self.name);
        builder.key(ListKey::before(b":"))
    }

    async fn push(&mut self, elements: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let mut push = cmd("LPUSH");
        push.arg(&self.name);
        for element in elements {
            push.arg(element.as_ref());
        }
        push.exec_async(&mut self.raw).await.unwrap();
    }

    /// The elements, from the end to which producers push.
    async fn elements(&mut self) -> Vec<Vec<u8>> {
        let mut range = cmd("LRANGE");
        range.arg(&self.name).arg(0).arg(-1);
        range.query_async(&mut self.raw).await.unwrap()
    }

    /// How many scripts its server has run.
    async fn turns(&mut self) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]).await;
        let (_, after) = stats.split_once("cmdstat_evalsha:calls=").unwrap();
        after.split_once(',').unwrap().0.parse().unwrap()
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut ask = cmd(words[0]);
        ask.arg(&words[1..]);
        ask.query_async(&mut self.raw).await.unwrap()
    }
}

/// A worker whose handlers wait for permission, and its handled elements.
struct Worker {
    intake: Intake,
    may: Arc<Semaphore>,
    started: Arc<Mutex<Vec<Bytes>>>,
    handled: Arc<Mutex<Vec<Bytes>>>,
}

impl Worker {
    fn new(queue: &ListQueue, may: usize) -> Self {
        Self::with(queue, may, settings())
    }

    fn with(queue: &ListQueue, may: usize, settings: IntakeSettings) -> Self {
        let may = Arc::new(Semaphore::new(may));
        let (started, handled) = (
            Arc::<Mutex<Vec<Bytes>>>::default(),
            Arc::<Mutex<Vec<Bytes>>>::default(),
        );
        let (permits, starts, ends) =
            (Arc::clone(&may), Arc::clone(&started), Arc::clone(&handled));
        let dispatcher = by_key()
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(move |message: RawMessage| {
                let (permits, starts, ends) = (permits.clone(), starts.clone(), ends.clone());
                async move {
                    starts.lock().unwrap().push(message.payload.clone());
                    permits.acquire().await.unwrap().forget();
                    ends.lock().unwrap().push(message.payload);
                    Ok(())
                }
            }))
            .unwrap();
        let intake = dispatcher.consume_with(queue.source(), settings).unwrap();
        Self {
            intake,
            may,
            started,
            handled,
        }
    }

    fn started(&self) -> Vec<Bytes> {
        self.started.lock().unwrap().clone()
    }

    fn handled(&self) -> Vec<Bytes> {
        self.handled.lock().unwrap().clone()
    }

    async fn handles(&self, count: usize) {
        until("all are handled", async || self.handled().len() >= count).await;
    }
}

fn settings() -> IntakeSettings {
    IntakeSettings::new()
        .revoke_within(Duration::ZERO)
        .longest_pause(Duration::from_millis(200))
        .confirm_every(Duration::from_millis(20))
}

fn numbered(key: &str, numbers: std::ops::RangeInclusive<u32>) -> Vec<String> {
    numbers.map(|n| format!("{key}:{n}")).collect()
}

/// A request of a connection that was given up reaches the server when the worker goes on with
/// another connection. No worker receives the elements that it takes.
#[tokio::test]
async fn a_request_that_comes_late_takes_nothing() {
    let mut list = List::new("late").await;
    let late = Late::to(list.server.port()).await;
    let url = format!("redis://127.0.0.1:{}", late.port);
    let builder = builder(&url, &list.name).key(ListKey::before(b":"));
    let queue = builder.lease(Duration::from_secs(60)).build().unwrap();
    let mut worker = Direct::open(&queue).await;
    late.hold();
    list.push(numbered("a", 1..=20)).await;
    let mut into = Deliveries::new(4, Instant::now() + Duration::from_secs(60));
    tokio::select! {
        _ = worker.0.receive(&mut into) => panic!("it hears nothing"),
        () = late.holds() => {}
    }
    worker.0.open().await.unwrap();
    let first = worker.receive_all(4).await;
    late.release().await;
    // The released requests are executed before those of a new connection.
    check(&mut connect(&list.server.url()).await, &list.name).await;
    worker.ack(&first).await;
    let rest = worker.receive_all(16).await;
    let handed = first.iter().chain(&rest);
    let payloads: Vec<_> = handed.map(|(message, _)| message.payload.clone()).collect();
    assert_eq!(payloads, numbered("a", 1..=20));
    worker.ack(&rest).await;
    worker.0.close().await.unwrap();
    check_idle(&mut list.raw, &list.name).await;
}

/// A client of a cluster repeats a request whose answer it has not received.
#[tokio::test]
async fn a_turn_that_is_executed_twice_strands_nothing() {
    let mut list = List::on(own(RedisKind::Redis7).await, "twice").await;
    let queue = list.builder().build().unwrap();
    let client = redis::Client::open(list.server.url()).unwrap();
    let monitor = client.get_async_monitor().await.unwrap();
    let mut monitor = monitor.into_on_message::<String>();
    let worker = Worker::with(&queue, 0, settings().held(4));
    list.push(numbered("a", 1..=20)).await;
    until("it starts the first", async || !worker.started().is_empty()).await;
    // The turn that has taken an element, as the server has logged it.
    let mut turn = None;
    while turn.is_none() {
        use futures::StreamExt;
        let line = monitor.next().await.unwrap();
        let words: Vec<_> = line.split('"').skip(1).step_by(2).collect();
        // Behind nine keys, the worker, its lease and the rule.
        if words[0].eq_ignore_ascii_case("evalsha") && words.len() > 16 && words[15] == "4" {
            turn = Some(
                words
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect::<Vec<_>>(),
            );
        }
    }
    let turn = turn.unwrap();
    let turn: Vec<_> = turn.iter().map(String::as_str).collect();
    let _: redis::Value = list.ask(&turn).await;
    worker.may.add_permits(1_000);
    worker.handles(20).await;
    assert_eq!(worker.handled(), numbered("a", 1..=20));
    worker.intake.stop().await;
    check_idle(&mut list.raw, &list.name).await;
}

/// The connection is given up before the server has received it: it is sent on the next one.
#[tokio::test]
async fn what_was_acked_in_vain_is_told_again() {
    let mut list = List::new("untold").await;
    let late = Late::to(list.server.port()).await;
    let url = format!("redis://127.0.0.1:{}", late.port);
    let builder = builder(&url, &list.name).key(ListKey::before(b":"));
    let queue = builder.lease(Duration::from_secs(60)).build().unwrap();
    let mut worker = Direct::open(&queue).await;
    list.push(numbered("a", 1..=3)).await;
    let handed = worker.receive_all(3).await;
    late.hold();
    let settled = |at: usize, outcome| Settlement::new(handed[at].1.clone(), outcome);
    let told = [settled(0, Outcome::Done), settled(1, Outcome::Discarded)];
    worker.0.settle(&told).await.unwrap();
    late.holds().await;
    worker.0.open().await.unwrap();
    let again = worker.receive_all(1).await;
    assert_eq!(again[0].0.payload, "a:3");
    late.release().await;
    worker.ack(&again).await;
    worker.0.close().await.unwrap();
    check_idle(&mut list.raw, &list.name).await;
}

/// The elements of a dead worker may have killed it. From then on each attempt is noted before it
/// starts.
#[tokio::test]
async fn attempts_at_what_a_dead_worker_had_are_noted() {
    let mut list = List::new("suspect").await;
    let queue = list
        .builder()
        .lease(Duration::from_secs(60))
        .build()
        .unwrap();
    let workers = beside(&list.name, "workers");
    list.push(["a:1"]).await;
    for attempts in 0..=3 {
        let mut worker = Direct::open(&queue).await;
        let handed = worker.receive(1).await;
        let name: Vec<String> = list.ask(&["ZRANGE", &workers, "0", "-1"]).await;
        if attempts > 0 {
            let guard = worker.0.start_guard().unwrap();
            let starts = || guard.starts(0, &handed[0].1, attempts);
            assert!(starts().is_err(), "not before it is noted");
            until("it may start", async || starts().is_ok()).await;
        }
        let noted = beside(&list.name, &format!("attempts:{}", name[0]));
        let noted: Vec<u32> = list.ask(&["HVALS", &noted]).await;
        assert_eq!(noted, Vec::from_iter((attempts > 0).then_some(attempts)));
        check(&mut list.raw, &list.name).await;
        // It dies, and sends nothing more.
        list.ask::<u64>(&["ZADD", &workers, "0", &name[0]]).await;
        assert_eq!(queue.return_expired().await.unwrap(), 1);
    }
    let elements = list.elements().await;
    // Its head: three attempts, a key, the flag of a worker that died, and the flag of plain bytes.
    assert!(
        elements[0].starts_with(b"\0kl1\0\0\0\x03\x07"),
        "{elements:?}"
    );
    list.ask::<u64>(&["DEL", &list.name.clone()]).await;
    check_idle(&mut list.raw, &list.name).await;
}

/// The head of an envelope has the key, and the rest of it cannot be read.
#[tokio::test]
async fn an_element_in_a_broken_envelope_lets_its_key_go() {
    let mut list = List::new("broken").await;
    let queue = list.builder().build().unwrap();
    let worker = Worker::new(&queue, 1_000);
    let broken: [&[u8]; 6] = [
        b"\0kl1",
        b"\0kl1\0\0\0\0\x01\0\0\0",
        b"\0kl1\0\0\0\0\x01\0\0\0\x01k",
        b"\0kl1\0\0\0\0\x01\0\0\0\x01k\x02\0\0\0\xff",
        b"\0kl1\0\0\0\0\x01\0\0\0\xffk",
        // A letter, whose element has another key.
        b"\0kl1\0\0\0\0\x09\0\0\0\x01k\0\0\0\x04\0\0\0\0\0kl1\0\0\0\0\x05\0\0\0\x01jbody",
    ];
    list.push(broken).await;
    list.push(["k:1"]).await;
    worker.handles(7).await;
    let handled = worker.handled();
    for element in &broken[..5] {
        assert!(
            handled.contains(&Bytes::copy_from_slice(element)),
            "{element:?}"
        );
    }
    until("all is acked", async || worker.intake.stats().acked == 7).await;
    check(&mut list.raw, &list.name).await;
    let owners: u64 = list.ask(&["HLEN", &beside(&list.name, "owners")]).await;
    assert_eq!(owners, 0, "keys that no worker handles have no owner");
    worker.intake.stop().await;
    check_idle(&mut list.raw, &list.name).await;
}

/// The letter of a key, put into the list by hand, belongs to the key in its own head.
#[tokio::test]
async fn an_element_never_counts_for_another_key() {
    let mut list = List::new("other-key").await;
    let queue = list.builder().build().unwrap();
    let worker = Worker::new(&queue, 0);
    // No key in the head, and one inside.
    let letter = b"\0kl1\0\0\0\0\x08\0\0\0\0\0\0\0\x04\0\0\0\0\0kl1\0\0\0\0\x05\0\0\0\x01abody";
    list.push([letter]).await;
    list.push(["a:1", "a:2"]).await;
    until("the first and the letter are here", async || {
        worker.intake.stats().received == 3
    })
    .await;
    worker.may.add_permits(1);
    until("it is acked", async || worker.intake.stats().acked == 1).await;
    check(&mut list.raw, &list.name).await;
    worker.may.add_permits(1_000);
    worker.handles(3).await;
    worker.intake.stop().await;
    check_idle(&mut list.raw, &list.name).await;
}

/// The cause does not matter: an operator that deletes keys, or another program.
#[tokio::test]
async fn an_owner_that_has_nothing_blocks_nothing() {
    let mut list = List::new("ghost").await;
    let queue = list.builder().build().unwrap();
    let _: u64 = list
        .ask(&["HSET", &beside(&list.name, "owners"), "a", "3:none"])
        .await;
    list.push(["a:1", "b:1", "a:2"]).await;
    let worker = Worker::new(&queue, 1_000);
    worker.handles(3).await;
    worker.intake.stop().await;
    check_idle(&mut list.raw, &list.name).await;
}

/// An attempt that a stop has dropped is not the message's fault.
#[tokio::test]
async fn a_dropped_attempt_that_was_noted_is_not_counted() {
    let mut list = List::new("dropped").await;
    let queue = list.builder().exact_starts().build().unwrap();
    for _ in 0..3 {
        if list.elements().await.is_empty() {
            list.push(["a:1"]).await;
        }
        let worker = Worker::new(&queue, 0);
        until("it starts", async || worker.started().len() == 1).await;
        let report = worker.intake.stop().within(Duration::ZERO).await;
        assert_eq!(report.given_back, 1, "{report}");
        assert_eq!(list.elements().await, [b"a:1"], "as it was pushed");
    }
    list.ask::<u64>(&["DEL", &list.name.clone()]).await;
    check_idle(&mut list.raw, &list.name).await;
}

/// One round trip returns no more bytes than its limit, also out of an inbox.
#[tokio::test]
async fn an_inbox_is_taken_in_parts() {
    let mut list = List::on(own(RedisKind::Redis7).await, "parts").await;
    let builder = list.builder().lease(Duration::from_secs(60));
    let queue = builder.most_bytes(1_000_000).build().unwrap();
    let mut owner = Direct::open(&queue).await;
    list.push(["a:0"]).await;
    let first = owner.receive(1).await;
    let large = |n: u32| format!("a:{n}:{}", "x".repeat(if n < 21 { 10 } else { 300_000 }));
    list.push((1..=40).map(large)).await;
    // Another worker sends them there.
    let mut other = Direct::open(&queue).await;
    list.push(["b:0"]).await;
    let others = other.receive(1).await;
    assert_eq!(others[0].0.payload, "b:0");
    other.ack(&others).await;
    owner.ack(&first).await;
    let before = list.turns().await;
    let handed = owner.receive_all(40).await;
    let turns = list.turns().await - before;
    assert!(turns >= 5, "6 MB in {turns} round trips");
    for (n, (message, _)) in (1..).zip(&handed) {
        assert_eq!(message.payload, large(n));
    }
    owner.ack(&handed).await;
    owner.0.close().await.unwrap();
    other.0.close().await.unwrap();
    check_idle(&mut list.raw, &list.name).await;
}

/// Each of the keys gets another type while work is in progress, and its old type again.
#[tokio::test]
async fn keys_of_another_type_lose_nothing() {
    for what in [
        "", "owners", "work", "inbox", "attempts", "told", "workers", "token",
    ] {
        for is_cyclic in [false, true] {
            of_another_type(what, is_cyclic).await;
        }
    }
}

async fn of_another_type(what: &str, is_cyclic: bool) {
    let mut list = List::new("type").await;
    let builder = list.builder().exact_starts().lease(Duration::from_secs(60));
    let queue = match is_cyclic {
        true => builder.cyclic().build().unwrap(),
        false => builder.build().unwrap(),
    };
    let mut worker = Direct::open(&queue).await;
    list.push(["a:1", "b:1", "a:2"]).await;
    let handed = worker.receive_all(3).await;
    let workers: Vec<String> = list
        .ask(&["ZRANGE", &beside(&list.name, "workers"), "0", "-1"])
        .await;
    let name = match what {
        "" => list.name.clone(),
        "work" | "inbox" | "attempts" => beside(&list.name, &format!("{what}:{}", workers[0])),
        _ => beside(&list.name, what),
    };
    let kept = format!("{name}-kept");
    let was_there: bool = list.ask(&["EXISTS", &name]).await;
    if was_there {
        list.ask::<()>(&["RENAME", &name, &kept]).await;
    }
    list.ask::<()>(&["XADD", &name, "1-1", "a", "b"]).await;

    let done = Settlement::new(handed[0].1.clone(), Outcome::Done);
    worker.0.settle(&[done]).await.unwrap();
    let confirmed = worker.0.confirm().await;
    // A token is drawn, and an element pushed, when one is needed.
    if !["token"].contains(&what) {
        let error = confirmed.unwrap_err().to_string();
        assert!(error.contains("a key has another type"), "{what}: {error}");
        let again = worker.0.open().await.unwrap_err().to_string();
        assert!(again.contains("a key has another type"), "{what}: {again}");
    }
    if what.is_empty() {
        let error = queue.push(&RawMessage::new("c")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
    }

    list.ask::<u64>(&["DEL", &name]).await;
    if was_there {
        list.ask::<()>(&["RENAME", &kept, &name]).await;
    }
    worker.0.open().await.unwrap();
    check(&mut list.raw, &list.name).await;
    let left = worker.receive_all(2).await;
    let payloads: Vec<_> = left.iter().map(|(message, _)| &*message.payload).collect();
    assert_eq!(payloads[..2], [&b"b:1"[..], b"a:2"], "{what}");
    let mut left = left;
    if is_cyclic {
        if left.len() == 2 {
            left.extend(worker.receive_all(1).await);
        }
        assert_eq!(left[2].0.payload, "a:1", "{what}: it goes round");
    }
    if !is_cyclic {
        worker.ack(&left).await;
    }
    worker.0.close().await.unwrap();
    if is_cyclic {
        assert_eq!(list.elements().await.len(), 3, "{what}");
        list.ask::<u64>(&["DEL", &list.name.clone()]).await;
    }
    check_idle(&mut list.raw, &list.name).await;
}

/// A very long lease acts as one without end.
#[tokio::test]
async fn a_lease_may_be_as_long_as_there_are_numbers() {
    let mut list = List::new("ever").await;
    let queue = list.builder().lease(Duration::MAX).build().unwrap();
    let worker = Worker::new(&queue, 1_000);
    list.push(["a:1"]).await;
    worker.handles(1).await;
    worker.intake.stop().await;
    check_idle(&mut list.raw, &list.name).await;
}
