//! Delivery: batches, order, and sinks that fail.

use std::time::Duration;

use keylane_spool::{MessageId, Persist, SinkError, Spool, Spooled};
use proptest::prelude::*;
use tokio::time::Instant;

use crate::support::{Act, Scripted, check_sums, on_disk};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_batch_goes_when_it_is_full_or_has_waited() {
    let sink = Scripted::new([]);
    let spool = Spool::builder(sink.clone())
        .batch(3, 1 << 20, 10 * MS)
        .open()
        .await
        .unwrap();
    let started = Instant::now();
    for n in 0..4 {
        spool.push("a", n.to_string()).await.unwrap();
    }
    spool.flush().await.unwrap();
    assert_eq!(sink.batches(), [3, 1]);
    assert!(
        started.elapsed() < MS,
        "a flush does not wait for a batch to fill"
    );
    spool.push("a", "4").await.unwrap();
    tokio::time::sleep(9 * MS).await;
    assert_eq!(sink.calls(), 2);
    tokio::time::sleep(2 * MS).await;
    assert_eq!(sink.calls(), 3);
    check_sums(&spool.close().await);
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_its_bytes() {
    let sink = Scripted::new([]);
    let spool = Spool::builder(sink.clone())
        .batch(100, 1_000, MS)
        .open()
        .await
        .unwrap();
    for _ in 0..4 {
        spool.push("a", vec![0; 300]).await.unwrap();
    }
    spool.push("a", vec![0; 5_000]).await.unwrap();
    let report = spool.close().await;
    assert_eq!(sink.batches(), [2, 2, 1]);
    assert_eq!(report.delivered, 5);
}

#[tokio::test(start_paused = true)]
async fn headers_and_bytes_arrive_as_they_were_pushed() {
    let (to, mut from) = tokio::sync::mpsc::unbounded_channel();
    let sink = move |batch: Vec<Spooled>| {
        let to = to.clone();
        async move {
            for message in batch {
                to.send(message).map_err(SinkError::failed)?;
            }
            Ok::<(), SinkError>(())
        }
    };
    let spool = Spool::builder(sink).open().await.unwrap();
    let message = keylane_spool::Message::new("", vec![0, 255]).header("name", "value");
    spool.push_message(message.clone()).await.unwrap();
    spool.close().await;
    assert_eq!(from.recv().await.unwrap().into_message(), message);
}

/// The sink is down for five minutes: it is tried with growing waits, and not in a loop.
#[tokio::test(start_paused = true)]
async fn a_sink_that_is_down_for_five_minutes() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Scripted::down();
    let memory = 64 * 1024;
    let spool = Spool::builder(sink.clone())
        .dir(dir.path())
        .persist(Persist::EveryMessages(64))
        .memory(memory)
        .disk(4 << 20)
        .open()
        .await
        .unwrap();
    let started = Instant::now();
    let pushed = on_disk(async {
        let mut pushed = 0;
        while started.elapsed() < Duration::from_secs(300) {
            for key in 0..10 {
                let payload = (pushed / 10).to_string();
                spool.push(format!("key-{key}"), payload).await.unwrap();
                pushed += 1;
            }
            let stats = spool.stats();
            assert!(stats.memory_bytes <= memory, "{stats:?}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        pushed
    })
    .await;
    let stats = spool.stats();
    assert!(stats.on_disk_only > 1_000, "{stats:?}");
    let failing = stats.failing.unwrap();
    assert_eq!(failing.error, "connection refused");
    assert_eq!(u64::from(failing.attempts), stats.failures);
    // Nine attempts until the wait is at its cap of 30 seconds, half of it at least.
    assert!(
        (15..=30).contains(&sink.calls()),
        "{} attempts",
        sink.calls()
    );
    let file = dir.path().join("spool.redb").metadata().unwrap().len();
    assert!(file < 8 << 20, "the file has {file} bytes");

    sink.then(Act::Write);
    on_disk(async {
        // From here the clock stands, and the last wait is not over.
        tokio::time::advance(Duration::from_secs(30)).await;
        spool.flush().await.unwrap();
    })
    .await;
    assert!(spool.stats().failing.is_none());
    sink.check_order(pushed);
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!(report.delivered as usize, pushed);
}

#[tokio::test(start_paused = true)]
async fn panics_and_silence_are_failures() {
    let sink = Scripted::new([Act::Panic, Act::Hang, Act::WriteFirst(1), Act::Lose]);
    let spool = Spool::builder(sink.clone())
        .timeout(Duration::from_secs(7))
        .batch(10, 1 << 20, MS)
        .open()
        .await
        .unwrap();
    let started = Instant::now();
    for n in 0..3 {
        spool.push("a", n.to_string()).await.unwrap();
    }
    tokio::time::sleep(5 * MS).await;
    assert_eq!(spool.stats().failing.unwrap().error, "panicked: planned");
    spool.flush().await.unwrap();
    assert!(started.elapsed() > Duration::from_secs(7));
    assert_eq!(sink.written(), ["a=0", "a=1", "a=2", "a=1", "a=2"]);
    let stats = spool.stats();
    assert_eq!(
        (stats.failures, stats.delivered, stats.out_of_order),
        (4, 3, 0)
    );
    assert!(stats.failing.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_reorders_is_counted() {
    let sink = |batch: Vec<Spooled>| async move {
        match batch.len() {
            1 => Ok(()),
            _ => Err(SinkError::failed("in part").with_written([1])),
        }
    };
    let spool = Spool::builder(sink)
        .batch(2, 1 << 20, MS)
        .open()
        .await
        .unwrap();
    spool.push("a", "0").await.unwrap();
    spool.push("a", "1").await.unwrap();
    spool.flush().await.unwrap();
    assert_eq!(spool.stats().out_of_order, 1);
}

#[tokio::test(start_paused = true)]
async fn several_batches_at_once_share_no_key() {
    let sink = Scripted::new([]);
    sink.latency(10 * MS);
    let spool = Spool::builder(sink.clone())
        .batch(10, 1 << 20, Duration::ZERO)
        .in_flight(4)
        .open()
        .await
        .unwrap();
    let started = Instant::now();
    // Ten of a key behind each other: each batch is one key.
    for key in 0..4 {
        for n in 0..10 {
            spool
                .push(format!("key-{key}"), n.to_string())
                .await
                .unwrap();
        }
    }
    tokio::time::sleep(MS).await;
    let most = spool.stats().in_flight;
    spool.flush().await.unwrap();
    sink.check_order(40);
    assert_eq!(most, 4);
    assert!(started.elapsed() < 40 * MS, "{:?}", started.elapsed());
}

#[test]
fn ids_are_stable_and_sort_as_they_were_accepted() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let sink = Scripted::new([Act::Lose]);
        let spool = Spool::builder(sink.clone())
            .batch(3, 1 << 20, MS)
            .open()
            .await
            .unwrap();
        for n in 0..3 {
            spool.push("a", n.to_string()).await.unwrap();
        }
        spool.close().await;
        let ids = sink.ids();
        assert_eq!(ids[..3], ids[3..]);
        assert!(ids[..3].is_sorted_by(|a, b| a < b));
        let bytes: Vec<_> = ids[..3].iter().map(|id| MessageId::to_bytes(*id)).collect();
        assert!(bytes.is_sorted());
    });
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::Write),
        2 => Just(Act::Fail),
        2 => (0_usize..8).prop_map(Act::WriteFirst),
        1 => Just(Act::Lose),
        1 => Just(Act::Panic),
        1 => Just(Act::Hang),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: keylane_testkit::scenario::cases(100), ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_a_key_survives_any_failure(
        script in proptest::collection::vec(any_act(), 0..40),
        keys in proptest::collection::vec(0_u8..5, 1..120),
        in_flight in 1_usize..4,
        count in 1_usize..10,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let sink = Scripted::new(script);
            sink.latency(MS);
            let spool = Spool::builder(sink.clone())
                .batch(count, 1 << 20, 2 * MS)
                .in_flight(in_flight)
                .open()
                .await
                .unwrap();
            let mut next = [0; 5];
            for key in &keys {
                let n: &mut u64 = &mut next[usize::from(*key)];
                spool.push(vec![*key], n.to_string()).await.unwrap();
                *n += 1;
                tokio::time::sleep(MS / 4).await;
            }
            let report = spool.close().await;
            check_sums(&report);
            assert_eq!(report.delivered as usize, keys.len());
            sink.check_order(keys.len());
        });
    }
}
