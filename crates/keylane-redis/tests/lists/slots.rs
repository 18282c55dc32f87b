//! A cluster whose slots move while they are in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_leases::Leases;
use keylane_redis::{ListQueue, Quota, Redis, RedisLeases, SharedRate, StreamSource};
use keylane_testkit::scenario::{boxed, by_key};
use redis::cmd;
use testkit_servers::{RedisCluster, RedisKind};

use crate::crew::{Crew, read};
use crate::state::check;
use crate::support::{connect, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_under_a_list() {
    for kind in [RedisKind::Redis7, RedisKind::Valkey9] {
        let cluster = RedisCluster::start(kind, 3).await.unwrap();
        let urls = cluster.urls();
        let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
        let list = "{shop}orders";
        let builder = ListQueue::builder(&redis, list).lease(Duration::from_secs(5));
        let queue = builder.build().unwrap();
        let mut crew = Crew::new(list, queue.clone(), 20).await;
        for _ in 0..3 {
            crew.join(&queue);
        }
        let mut at = cluster.place_of(list).await.unwrap();
        for _ in 0..3 {
            crew.progress(100).await;
            let next = (at + 1) % 3;
            cluster.move_slot(list, next).await.unwrap();
            at = next;
            crew.progress(50).await;
            check(&mut connect(&cluster.node(at).url()).await, list).await;
        }
        let mut story = crew.finish(&cluster.node(at).url()).await;
        story.may_repeat = true;
        println!("{kind}: a slot that moves under a list: {}", story.judge());
    }
}

/// All in one slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_under_a_stream_leases_and_a_rate() {
    let cluster = RedisCluster::start(RedisKind::Redis8, 3).await.unwrap();
    let urls = cluster.urls();
    let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
    let stream = "{shop}stream";
    let ends = Arc::new(AtomicBool::new(false));
    let counts: Arc<[AtomicU64; 4]> = Arc::default();
    let [pushed, handled, leased, permitted] = [0, 1, 2, 3].map(|at| (Arc::clone(&counts), at));
    let count =
        |(counts, at): &(Arc<[AtomicU64; 4]>, usize)| counts[*at].fetch_add(1, Ordering::Relaxed);

    let producer = redis::cluster::ClusterClient::new(urls.clone()).unwrap();
    let mut producer = producer.get_async_connection().await.unwrap();
    let is_over = Arc::clone(&ends);
    let pushes = tokio::spawn(async move {
        let mut id = 0_u64;
        while !is_over.load(Ordering::Relaxed) {
            let mut add = cmd("XADD");
            add.arg(stream)
                .arg("*")
                .arg("key")
                .arg((id % 7).to_string());
            add.arg("payload").arg(&id.to_be_bytes());
            if add.exec_async(&mut producer).await.is_ok() {
                count(&pushed);
                id += 1;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let leases = RedisLeases::open(&redis, "{shop}").unwrap();
    let leases = Leases::open(Arc::new(leases)).unwrap();
    let source = StreamSource::builder(&redis, "g").stream(stream);
    let source = source
        .leases(leases.clone())
        .lease(Duration::from_secs(5))
        .build()
        .unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let dispatcher = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)))
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |message: RawMessage| {
            count(&handled);
            sees.lock().unwrap().push(read(&message));
            std::future::ready(Ok(()))
        }))
        .unwrap();
    let settings = IntakeSettings::new().longest_pause(Duration::from_millis(200));
    let intake = dispatcher.consume_with(source, settings).unwrap();
    let is_over = Arc::clone(&ends);
    let locks = tokio::spawn(async move {
        while !is_over.load(Ordering::Relaxed) {
            let lease = leases.try_acquire("a key", Duration::from_secs(5)).await;
            if let Ok(lease) = lease {
                count(&leased);
                let _ = lease.release().await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let rate = SharedRate::builder(&redis, "{shop}").total(Quota::per_second(200));
    let rate = rate.build().unwrap();
    let is_over = Arc::clone(&ends);
    let permits = tokio::spawn(async move {
        while !is_over.load(Ordering::Relaxed) {
            if rate.acquire("a key").await.is_ok() {
                count(&permitted);
            }
        }
    });
    let progress = async || {
        let before = [0, 1, 2, 3].map(|at| counts[at].load(Ordering::Relaxed));
        until("all go on", async || {
            (0..4).all(|at| counts[at].load(Ordering::Relaxed) >= before[at] + 20)
        })
        .await;
    };
    let mut at = cluster.place_of(stream).await.unwrap();
    for _ in 0..3 {
        progress().await;
        let next = (at + 1) % 3;
        cluster.move_slot(stream, next).await.unwrap();
        at = next;
    }
    progress().await;
    ends.store(true, Ordering::Relaxed);
    for task in [pushes, locks, permits] {
        task.await.unwrap();
    }
    let pushed = counts[0].load(Ordering::Relaxed);
    let firsts = || {
        let (mut firsts, mut known) = (Vec::new(), std::collections::HashSet::new());
        for (key, id) in seen.lock().unwrap().iter() {
            if known.insert(*id) {
                firsts.push((*key, *id));
            }
        }
        firsts
    };
    until("all is handled", async || firsts().len() as u64 >= pushed).await;
    for key in 0..7 {
        let of_key = firsts().into_iter().filter(|(other, _)| *other == key);
        let ids: Vec<u64> = of_key.map(|(_, id)| id).collect();
        assert!(ids.is_sorted(), "{key}: {ids:?}");
    }
    intake.stop().await;
}
