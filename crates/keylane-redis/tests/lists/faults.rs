//! Faults of servers and networks while a list is in use: no confirmed element is lost, each key
//! keeps its order, and the fenced sink accepts only correct writes.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::consume::{Intake, IntakeSettings, IntakeState};
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_redis::{ErrorKind, ListBuilder, ListQueue};
use keylane_testkit::scenario::{Random, boxed, by_key};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use testkit_servers::proxy::{Direction, Proxy};
use testkit_servers::{Fsync, Redis, RedisKind};
use tokio::time::{sleep, timeout};

use crate::crew::{Crew, message, read};
use crate::late::Late;
use crate::state::{beside, check};
use crate::support::{builder, connect, new_name, own, until};

async fn say(server: &mut MultiplexedConnection, words: &[&str]) {
    let mut say = cmd(words[0]);
    say.arg(&words[1..]);
    let _: redis::Value = say.query_async(server).await.unwrap();
}

fn queue(url: &str, list: &str) -> ListQueue {
    builder(url, list).build().unwrap()
}

/// How often each of six connections is reset: 35 times by default.
fn resets() -> u64 {
    std::env::var("KEYLANE_REDIS_RESETS").map_or(35, |count| count.parse().unwrap())
}

/// Requests and answers end in their middle, or are slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_answers_are_cut_in_their_middle() {
    let server = own(RedisKind::Redis7).await;
    let list = new_name("cut");
    let mut crew = Crew::new(&list, queue(&server.url(), &list), 30).await;
    let mut proxies = Vec::new();
    for seed in 0..6 {
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let proxy = Proxy::to(target).await.unwrap();
        crew.join(&queue(
            &format!("redis://127.0.0.1:{}", proxy.port()),
            &list,
        ));
        proxies.push(tokio::spawn(reset(proxy, Random::new(seed), resets())));
    }
    let mut raw = connect(&server.url()).await;
    while proxies.iter().any(|proxy| !proxy.is_finished()) {
        crew.progress(20).await;
        check(&mut raw, &list).await;
    }
    let mut kept = Vec::new();
    for proxy in proxies {
        kept.push(proxy.await.unwrap());
    }
    let mut story = crew.finish(&server.url()).await;
    story.may_repeat = true;
    println!("{} resets: {}", 6 * resets(), story.judge());
    drop(kept);
}

async fn reset(proxy: Proxy, mut random: Random, times: u64) -> Proxy {
    for _ in 0..times {
        let direction = match random.one_in(2) {
            true => Direction::ToServer,
            false => Direction::ToClient,
        };
        match random.below(4) {
            0 => proxy.delay(direction, Duration::from_millis(random.below(20))),
            1 => proxy.throttle(direction, NonZeroU64::new(50_000 + random.below(100_000))),
            _ => {
                proxy.delay(direction, Duration::ZERO);
                proxy.throttle(direction, None);
            }
        }
        let before = proxy.traffic().accepted;
        proxy.reset_after(direction, random.below(4_000));
        let made_anew = async {
            while proxy.traffic().accepted <= before {
                sleep(Duration::from_millis(2)).await;
            }
        };
        let made_anew = timeout(Duration::from_secs(60), made_anew).await;
        made_anew.expect("a connection is made anew");
    }
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.delay(direction, Duration::ZERO);
        proxy.throttle(direction, None);
    }
    proxy
}

/// The connections include those of the producer. The scripts are forgotten at intervals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_killed_and_scripts_are_forgotten() {
    let server = own(RedisKind::Valkey9).await;
    let list = new_name("killed");
    let queue = queue(&server.url(), &list);
    let mut crew = Crew::new(&list, queue.clone(), 30).await;
    for _ in 0..4 {
        crew.join(&queue);
    }
    let mut raw = connect(&server.url()).await;
    let mut random = Random::new(4);
    for _ in 0..40 {
        crew.progress(random.below(30) as usize).await;
        match random.one_in(3) {
            true => say(&mut raw, &["SCRIPT", "FLUSH"]).await,
            false => {
                say(
                    &mut raw,
                    &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
                )
                .await
            }
        }
        check(&mut raw, &list).await;
    }
    let mut story = crew.finish(&server.url()).await;
    story.may_repeat = true;
    println!("connections killed: {}", story.judge());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_waited_for() {
    let server = Redis::builder(RedisKind::Redis8).argument("busy-reply-threshold", "100");
    let server = server.start().await.unwrap();
    let list = new_name("busy");
    // Longer than the server is busy.
    let queue = builder(&server.url(), &list)
        .lease(Duration::from_secs(60))
        .build()
        .unwrap();
    let mut crew = Crew::new(&list, queue.clone(), 30).await;
    crew.join(&queue);
    crew.progress(50).await;
    for _ in 0..3 {
        let mut spins = connect(&server.url()).await;
        let script = tokio::spawn(async move {
            let mut spin = cmd("EVAL");
            spin.arg("while true do end").arg(0);
            spin.query_async::<redis::Value>(&mut spins).await
        });
        until("the server is busy", async || {
            let ping = server.execute(&["PING"]).await;
            ping.is_err_and(|error| error.to_string().contains("BUSY"))
        })
        .await;
        let error = queue.push(&message(1, u64::MAX)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unable, "{error}");
        assert!(error.is_retryable());
        server.execute(&["SCRIPT", "KILL"]).await.unwrap();
        script.await.unwrap().unwrap_err();
        crew.progress(50).await;
    }
    assert_eq!(
        crew.workers[0].stats().restarts,
        0,
        "nothing was done, and it goes on"
    );
    let story = crew.finish(&server.url()).await;
    println!("busy: {}", story.judge());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_worked_off() {
    let server = own(RedisKind::Redis7).await;
    let list = new_name("full");
    let queue = builder(&server.url(), &list).lease(Duration::from_secs(60));
    let queue = queue.build().unwrap();
    let messages: Vec<_> = (1..=5_000).map(|id| message(id % 30, id)).collect();
    queue.push_all(&messages).await.unwrap();
    let mut raw = connect(&server.url()).await;
    say(&mut raw, &["CONFIG", "SET", "maxmemory", "500kb"]).await;
    let error = queue.push(&message(1, 0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unable, "{error}");
    // The server refuses its pushes until there is room.
    let mut crew = Crew::new(&list, queue.clone(), 30).await;
    crew.known((1..=5_000).map(|id| (id, id % 30)));
    crew.join(&queue);
    crew.join(&queue);
    until("all is handled", async || crew.done() >= 5_000).await;
    check(&mut raw, &list).await;
    let error = queue.push(&message(1, 0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unable, "{error}");
    say(&mut raw, &["CONFIG", "SET", "maxmemory", "0"]).await;
    crew.progress(100).await;
    let story = crew.finish(&server.url()).await;
    println!("full: {}", story.judge());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_a_replica_is_waited_for() {
    let server = own(RedisKind::Redis7).await;
    let list = new_name("replica");
    let queue = queue(&server.url(), &list);
    let mut crew = Crew::new(&list, queue.clone(), 30).await;
    crew.join(&queue);
    crew.join(&queue);
    let mut raw = connect(&server.url()).await;
    for _ in 0..3 {
        crew.progress(100).await;
        crew.all_work().await;
        let restarts = crew.restarts();
        // A replica of a primary that does not answer: it keeps its data.
        say(&mut raw, &["REPLICAOF", "127.0.0.1", "1"]).await;
        let error = queue.push(&message(1, u64::MAX)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unable, "{error}");
        until("the workers have seen it", async || {
            crew.restarts() >= restarts + 2
        })
        .await;
        say(&mut raw, &["REPLICAOF", "NO", "ONE"]).await;
    }
    crew.progress(100).await;
    check(&mut raw, &list).await;
    let mut story = crew.finish(&server.url()).await;
    story.may_repeat = true;
    println!("read only: {}", story.judge());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stands_still_for_longer_than_the_leases() {
    let server = own(RedisKind::Redis8).await;
    let list = new_name("still");
    let builder = builder(&server.url(), &list).lease(Duration::from_secs(1));
    let queue = builder.build().unwrap();
    let mut crew = Crew::new(&list, queue.clone(), 30).await;
    for _ in 0..3 {
        crew.join(&queue);
    }
    for _ in 0..3 {
        crew.progress(100).await;
        crew.all_work().await;
        let restarts = crew.restarts();
        server.pause().await.unwrap();
        until("the leases are over", async || {
            crew.restarts() >= restarts + 3
        })
        .await;
        server.resume().await.unwrap();
    }
    crew.progress(100).await;
    check(&mut connect(&server.url()).await, &list).await;
    let mut story = crew.finish(&server.url()).await;
    story.may_repeat = true;
    println!("stood still: {}", story.judge());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_killed_that_writes_each_time() {
    killed(Fsync::Always).await;
}

/// The data that was not on the disk is lost with the machine. The system keeps the server's
/// writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_killed_that_writes_each_second() {
    killed(Fsync::EverySecond).await;
}

async fn killed(fsync: Fsync) {
    let server = Redis::builder(RedisKind::Redis7).appendfsync(fsync);
    let server = server.start().await.unwrap();
    let list = new_name("killed");
    let queue = queue(&server.url(), &list);
    let mut crew = Crew::new(&list, queue.clone(), 30).await;
    for _ in 0..3 {
        crew.join(&queue);
    }
    let mut random = Random::new(9);
    for _ in 0..6 {
        crew.progress(50 + random.below(100) as usize).await;
        server.kill().await.unwrap();
        server.start_again().await.unwrap();
        check(&mut connect(&server.url()).await, &list).await;
    }
    crew.progress(100).await;
    let mut story = crew.finish(&server.url()).await;
    story.may_repeat = true;
    if fsync != Fsync::Always {
        story.may_be_lost.extend(story.pushed.keys().copied());
    }
    println!("{fsync:?}, 6 kills: {}", story.judge());
}

/// A replica takes over without the last writes of its primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over_that_was_behind() {
    let primary = own(RedisKind::Redis7).await;
    let replica = Redis::builder(RedisKind::Redis7).replica_of(&primary);
    let replica = replica.start().await.unwrap();
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, primary.port()));
    let replication = Proxy::to(target).await.unwrap();
    let port = replication.port().to_string();
    replica
        .execute(&["REPLICAOF", "127.0.0.1", &port])
        .await
        .unwrap();
    let clients = Late::to(primary.port()).await;
    let url = format!("redis://127.0.0.1:{}", clients.port);
    let list = new_name("failover");
    let queue = queue(&url, &list);
    let mut crew = Crew::new(&list, queue.clone(), 30).await;
    for _ in 0..3 {
        crew.join(&queue);
    }
    crew.progress(200).await;
    until("the replica follows", async || {
        let info = replica.execute(&["INFO", "replication"]).await.unwrap();
        info.contains("master_link_status:up")
    })
    .await;
    let known = crew.last();
    primary.replicated().await.unwrap();
    replication.cut();
    crew.progress(150).await;
    primary.kill().await.unwrap();
    replica.execute(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    clients.lead_to(replica.port());
    check(&mut connect(&replica.url()).await, &list).await;
    crew.progress(200).await;
    let mut story = crew.finish(&replica.url()).await;
    story.may_repeat = true;
    let later: Vec<_> = story.pushed.range(known + 1..).map(|(id, _)| *id).collect();
    story.may_be_lost.extend(later);
    println!("failover: {}", story.judge());
}

/// A worker behind a proxy, whose connections are reset at any moment.
struct Reset {
    intake: Intake,
    handled: Arc<Mutex<HashMap<u64, u64>>>,
}

impl Reset {
    /// Handlers fail for each fifth id, if `fails`.
    fn new(builder: ListBuilder, fails: bool) -> Self {
        let handled = Arc::<Mutex<HashMap<u64, u64>>>::default();
        let counts = Arc::clone(&handled);
        let dispatcher = by_key()
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(2))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(move |message: RawMessage| {
                let (_, id) = read(&message);
                if fails && id.is_multiple_of(5) {
                    return std::future::ready(Err("it never works".into()));
                }
                *counts.lock().unwrap().entry(id).or_default() += 1;
                std::future::ready(Ok(()))
            }))
            .unwrap();
        let settings = IntakeSettings::new()
            .held(16)
            .longest_pause(Duration::from_millis(200))
            .confirm_every(Duration::from_millis(20));
        let queue = builder.dead_letters().build().unwrap();
        let intake = dispatcher.consume_with(queue.source(), settings).unwrap();
        Self { intake, handled }
    }

    async fn stop(self) {
        self.intake.stop().within(Duration::from_secs(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_whose_answer_is_lost_is_kept_once() {
    let server = own(RedisKind::Redis7).await;
    let list = new_name("letters");
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let proxy = Proxy::to(target).await.unwrap();
    let behind = format!("redis://127.0.0.1:{}", proxy.port());
    let queue = queue(&server.url(), &list);
    let worker = Reset::new(builder(&behind, &list), true);
    let reset = tokio::spawn(reset(proxy, Random::new(21), resets()));
    let mut raw = connect(&server.url()).await;
    let mut last = 0;
    while !reset.is_finished() {
        let messages: Vec<_> = (last + 1..=last + 20)
            .map(|id| message(id % 7, id))
            .collect();
        queue.push_all(&messages).await.unwrap();
        last += 20;
        until("they are settled", async || {
            let letters: u64 = count(&mut raw, "LLEN", &beside(&list, "letters")).await;
            letters == last / 5 && worker.handled.lock().unwrap().len() as u64 == last - last / 5
        })
        .await;
        check(&mut raw, &list).await;
    }
    let proxy = reset.await.unwrap();
    worker.stop().await;
    let letters = queue.letters(10_000).await.unwrap();
    let letters: Vec<_> = letters.iter().map(|letter| read(letter).1).collect();
    let mut sorted = letters.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, Vec::from_iter((1..=last / 5).map(|n| 5 * n)));
    assert_eq!(queue.redrive(10_000).await.unwrap(), last / 5);
    drop(proxy);
}

async fn count(server: &mut MultiplexedConnection, command: &str, key: &str) -> u64 {
    let mut count = cmd(command);
    count.arg(key);
    count.query_async(server).await.unwrap()
}

/// However often an answer is lost, each element goes round, once, in the order of its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cyclic_list_keeps_what_goes_round() {
    let server = own(RedisKind::Redis7).await;
    let list = new_name("round");
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let proxy = Proxy::to(target).await.unwrap();
    let behind = format!("redis://127.0.0.1:{}", proxy.port());
    let queue = queue(&server.url(), &list);
    let messages: Vec<_> = (1..=40).map(|id| message(id % 8, id)).collect();
    queue.push_all(&messages).await.unwrap();
    let worker = Reset::new(builder(&behind, &list).cyclic(), false);
    let reset = tokio::spawn(reset(proxy, Random::new(22), resets()));
    let mut raw = connect(&server.url()).await;
    until("it was reset, and all have gone round", async || {
        check(&mut raw, &list).await;
        let rounds = worker.handled.lock().unwrap();
        reset.is_finished() && rounds.len() == 40 && rounds.values().all(|times| *times >= 10)
    })
    .await;
    let proxy = reset.await.unwrap();
    // A worker without a connection gives nothing back: other workers get its elements when its
    // lease has run out.
    until("it is connected", async || {
        worker.intake.stats().state == IntakeState::Running
    })
    .await;
    let rounds = || worker.handled.lock().unwrap().values().sum::<u64>();
    let before = rounds();
    until("all have gone round again", async || {
        rounds() >= before + 3 * 40
    })
    .await;
    worker.stop().await;
    let mut left = cmd("LRANGE");
    left.arg(&list).arg(0).arg(-1);
    let left: Vec<Vec<u8>> = left.query_async(&mut raw).await.unwrap();
    let ids = left
        .iter()
        .rev()
        .map(|element| u64::from_be_bytes(*element.last_chunk().unwrap()));
    let ids: Vec<u64> = ids.collect();
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, Vec::from_iter(1..=40));
    for key in 0..8 {
        let mut own: Vec<_> = ids.iter().filter(|id| *id % 8 == key).collect();
        // From the first one on.
        let first = own
            .iter()
            .position(|id| Some(id) == own.iter().min())
            .unwrap();
        own.rotate_left(first);
        assert!(own.is_sorted(), "{key}: {ids:?}");
    }
    drop(proxy);
}
