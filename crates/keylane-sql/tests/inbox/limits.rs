//! Calls that fail at once, or hang.

use std::time::Duration;

use keylane::source::{Deliveries, Received, Source};
use keylane_sql::{Settings, SourceSettings, SqlInbox, Tables};
use tokio::time::{Instant, timeout};

use crate::rig::{Lock, TTL, message};
use crate::support::{Kind, Place};

const SOON: Duration = Duration::from_secs(120);

/// Each renewal fails at once, and so none is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_whose_pool_is_closed_loses_its_claims() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        let inbox = place.inbox().await;
        inbox.inbox().accept_message(message(1, 1)).await.unwrap();
        let mut source = inbox.source_with(SourceSettings::new().lease(TTL));
        source.open().await.unwrap();
        let mut held = Vec::new();
        while held.is_empty() {
            let mut into = Deliveries::new(1, Instant::now() + SOON);
            source.receive(&mut into).await.unwrap();
            held = into.take();
        }
        let closed_at = Instant::now();
        let closes = tokio::spawn(async move { place.database.close().await });
        let lost = async {
            loop {
                let mut into = Deliveries::new(1, Instant::now() + SOON);
                match source.receive(&mut into).await {
                    Ok(Received::Lost(_)) => break,
                    Ok(_) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        // It renews them after a third of the time, before the pool is closed for good.
        let lost = timeout(TTL * 3, lost).await;
        lost.expect("another worker may have the key");
        println!("{kind:?}: lost after {:?}", closed_at.elapsed());
        closes.abort();
    }
}

/// A source would look for no dead workers until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_ids_that_cannot_be_removed_are_left_alone() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        let settings = Settings::new().call_limit(Duration::from_secs(3));
        let inbox = SqlInbox::open(&place.database, &Tables::new(), settings).await;
        let inbox = inbox.unwrap();
        let lock = Lock::of(&place, "known").await;
        let removed = timeout(SOON, inbox.remove_old()).await;
        let refused = removed.expect("it has a limit").unwrap_err();
        assert!(refused.is_retryable(), "{refused}");
        lock.end().await;
        inbox.remove_old().await.unwrap();
    }
}
