//! The attempts at an element.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_testkit::scenario::{boxed, by_key};
use redis::cmd;
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;

use crate::state::beside;
use crate::support::{builder, connect, new_name, shared, until};

/// Each start is counted by the server, and the connection breaks before the answer is there. The
/// start is noted again and counts once: the message has all its attempts before it is a letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_noted_again_counts_once() {
    const ATTEMPTS: u32 = 4;
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (name, mut raw) = (new_name("again"), connect(&server.url()).await);
        let proxy = Proxy::to((Ipv4Addr::LOCALHOST, server.port()).into());
        let proxy = Arc::new(proxy.await.unwrap());
        let (runs, cuts) = (Arc::new(AtomicU32::new(0)), Arc::clone(&proxy));
        let counts = Arc::clone(&runs);
        let consumer = by_key()
            .retry(Retry::fixed(Duration::from_millis(20)).max_attempts(ATTEMPTS))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(move |_: RawMessage| {
                if counts.fetch_add(1, Ordering::SeqCst) + 1 < ATTEMPTS {
                    cuts.cut_to_client();
                }
                futures::future::ready(Err("no".into()))
            }))
            .unwrap();
        let build = |url: &str| {
            let queue = builder(url, &name).lease(Duration::from_secs(60));
            queue.dead_letters().build().unwrap()
        };
        let behind = build(&format!("redis://127.0.0.1:{}", proxy.port()));
        let queue = build(&server.url());
        let settings = IntakeSettings::new().longest_pause(Duration::from_millis(50));
        let intake = consumer.consume_with(behind.source(), settings).unwrap();
        queue.push(&RawMessage::new("0").key("a")).await.unwrap();
        for attempt in 2..=ATTEMPTS {
            until("the server has counted it", async || {
                let status = queue.status().await.unwrap();
                let Some(worker) = status.workers.first() else {
                    return false;
                };
                let mut noted = cmd("HVALS");
                noted.arg(beside(&name, &format!("attempts:{}", worker.worker)));
                let noted: Vec<u32> = noted.query_async(&mut raw.clone()).await.unwrap();
                noted == [attempt]
            })
            .await;
            assert_eq!(runs.load(Ordering::SeqCst), attempt - 1, "{kind}");
            proxy.reset();
            proxy.heal();
            until("it is tried again", async || {
                runs.load(Ordering::SeqCst) == attempt
            })
            .await;
        }
        let mut letters = Vec::new();
        until("there is a letter", async || {
            letters = queue.letters(1).await.unwrap();
            !letters.is_empty()
        })
        .await;
        let attempts = letters[0].header("keylane.attempts").unwrap();
        assert_eq!(*attempts, ATTEMPTS.to_string(), "{kind}");
        assert_eq!(runs.load(Ordering::SeqCst), ATTEMPTS, "{kind}");
        intake.stop().await;
        crate::state::check(&mut raw, &name).await;
    }
}
