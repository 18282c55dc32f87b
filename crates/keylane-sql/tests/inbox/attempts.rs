//! An attempt that was noted and then lost with its claims has not failed: it does not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::source::RawMessage;
use keylane::{Context, OnExhausted, Retry};
use keylane_sql::{Database, Settings, SourceSettings, SqlInbox, Tables};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{by_key, until, until_async};

use crate::faults::by_proxy;
use crate::rig::{TTL, decoded, message};
use crate::support::{Kind, Place};

const ATTEMPTS: u32 = 4;

/// How often the claims are lost under an attempt.
const LOSSES: u32 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_postgres_has_noted_and_that_were_lost_do_not_count() {
    lost(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_mariadb_has_noted_and_that_were_lost_do_not_count() {
    lost(Kind::MariaDb).await;
}

/// The second attempt is noted, and is under way when the claims of its worker end.
async fn lost(kind: Kind) {
    let place = Place::new(kind).await;
    let (proxy, address) = by_proxy(&place).await;
    let database = Database::connect(&address).await.unwrap();
    let settings = Settings::new().call_limit(Duration::from_secs(2));
    let inbox = SqlInbox::open(&database, &Tables::new(), settings).await;
    let inbox = inbox.unwrap();
    let (gate, failed) = (Gate::new(), Arc::new(AtomicU32::new(0)));
    let handler = {
        let (gate, failed) = (gate.clone(), Arc::clone(&failed));
        move |context: Context<Bytes>, _: RawMessage| {
            let (gate, failed) = (gate.clone(), Arc::clone(&failed));
            async move {
                if context.attempt() > 1 {
                    gate.pass().await;
                }
                failed.fetch_add(1, Ordering::SeqCst);
                Err::<(), _>("as told".into())
            }
        }
    };
    let dispatcher = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(ATTEMPTS))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(handler)
        .unwrap();
    let source = SourceSettings::new().lease(TTL);
    let source = decoded(inbox.source_with(source.poll(Duration::from_millis(250))));
    let intake = dispatcher.consume(source).unwrap();
    let direct = place.inbox().await.inbox();
    direct.accept_message(message(1, 1)).await.unwrap();
    for _ in 0..LOSSES {
        until(|| gate.waiting() == 1).await;
        proxy.cut();
        until(|| gate.waiting() == 0).await;
        proxy.heal();
    }
    until(|| gate.waiting() == 1).await;
    gate.open();
    until_async("it is a letter", async || {
        let letters = direct.letters().list(0, 10).await.unwrap();
        letters.iter().any(|letter| letter.attempts == ATTEMPTS)
    })
    .await;
    assert_eq!(failed.load(Ordering::SeqCst), ATTEMPTS, "{kind:?}");
    intake.stop().await;
}
