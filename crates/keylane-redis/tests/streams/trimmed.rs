//! Entries that an operator or a producer cuts off before they are handled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Overflow};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::RedisKind;
use tracing::Level;

use crate::logs::Logs;
use crate::support::{Client, builder, new_name, shared, until};

/// They are counted and said once, and the source goes on.
#[tokio::test]
async fn pending_entries_that_are_trimmed_are_counted_and_the_source_goes_on() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("trimmed"));
        let logs = Logs::record();
        let (gate, handled) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let (waits, counts) = (gate.clone(), Arc::clone(&handled));
        let consumer = by_key()
            .on_exhausted(OnExhausted::Halt)
            .lane_capacity(10, Overflow::Wait)
            .spawn(boxed(move |_: RawMessage| {
                let (waits, counts) = (waits.clone(), Arc::clone(&counts));
                async move {
                    waits.pass().await;
                    counts.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }
            }))
            .unwrap();
        let source = builder(&server.url(), "g").stream(name.clone());
        let source = source.build().unwrap();
        let watch = source.watch();
        let settings = IntakeSettings::new().held(100);
        let intake = consumer.consume_with(source, settings).unwrap();
        let mut steps = redis::pipe();
        for number in 0..1_000 {
            let add = steps.cmd("XADD").arg(&name).arg("*").arg("key").arg("a");
            add.arg("payload").arg(number);
        }
        client.steps(&steps).await;
        // Only the positions of most of them are kept.
        until("all are here", async || intake.stats().held == 1_000).await;
        client.run::<u64>(&["XTRIM", &name, "MAXLEN", "5"]).await;
        gate.open();
        until("all are settled", async || {
            client.left(&name, "g").await == 0
        })
        .await;
        let gone = usize::try_from(watch.counts().bodiless).unwrap();
        assert!(gone > 100, "{kind}: {gone}");
        assert_eq!(gone + handled.load(Ordering::Relaxed), 1_000, "{kind}");
        client.add(&name, "a", "1000").await;
        until("it goes on", async || {
            handled.load(Ordering::Relaxed) + gone == 1_001
        })
        .await;
        assert_eq!(logs.at(Level::ERROR), [""; 0], "{kind}");
        let warnings = logs.at(Level::WARN);
        let trimmed = warnings.iter().filter(|line| line.contains("trimmed"));
        let trimmed: Vec<_> = trimmed.collect();
        assert_eq!(trimmed.len(), 1, "{kind}: {warnings:?}");
        assert!(
            trimmed[0].contains(&format!("entries={gone}")),
            "{trimmed:?}"
        );
        let stats = intake.stats();
        assert_eq!(
            (stats.last_error.as_deref(), stats.restarts),
            (None, 0),
            "{kind}"
        );
    }
}
