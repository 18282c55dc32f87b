//! What the metrics show of the tables.

use std::time::Duration;

use keylane_inbox::store::Settled;
use keylane_inbox::{InboxStore as _, LetterKind, NewMessage};
use keylane_sql::{SourceSettings, SqlInbox};
use keylane_testkit::scenario::{boxed, by_key, until_async as until};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::rig::message;
use crate::support::{Kind, Place};

const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

/// Consumes this inbox with handlers that never end.
fn hold(inbox: &SqlInbox) -> (impl Sized, keylane::consume::Intake) {
    let never = boxed(|_: keylane::source::RawMessage| std::future::pending());
    let dispatcher = by_key()
        .on_exhausted(keylane::OnExhausted::AtSource)
        .spawn(never)
        .unwrap();
    let settings = SourceSettings::new().keys(1).window(1);
    let intake = dispatcher.consume(inbox.source_with(settings)).unwrap();
    (dispatcher, intake)
}

/// Returns what is published of an inbox, or nothing.
fn value(handle: &PrometheusHandle, inbox: &str, what: &str) -> Option<u64> {
    let series = format!("keylane_source_inbox_{what}{{source=\"inbox {inbox}\"}} ");
    let text = handle.render();
    let line = text.lines().find(|line| line.starts_with(&series))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Two sources of a process see the same tables.
#[tokio::test]
async fn what_waits_is_published_and_two_sources_do_not_add_up() {
    for kind in KINDS {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let _here = metrics::set_default_local_recorder(&recorder);
        let place = Place::new(kind).await;
        let inbox = place.inbox().await;
        let value = |what: &str| value(&handle, "keylane_messages", what);
        let bad = inbox.inbox().accept_message(message(1, 1)).await.unwrap();
        let letter = Settled::DeadLetter {
            sequence: bad.sequence(),
            attempts: 1,
            kind: LetterKind::Failed,
            error: "it is bad".to_owned(),
        };
        inbox.settle(vec![letter]).await.unwrap();
        for id in 2..5 {
            inbox.inbox().accept_message(message(1, id)).await.unwrap();
        }
        let days = match kind {
            Kind::Postgres => "interval '2 days'",
            Kind::MariaDb => "interval 2 day",
        };
        let age = format!("update keylane_messages set accepted_at = accepted_at - {days}");
        place.execute(age).await;
        let (first, second) = (hold(&inbox), hold(&inbox));
        until("it is shown", async || value("waiting") == Some(3)).await;
        assert_eq!(value("letters"), Some(1));
        let oldest = value("oldest_seconds").unwrap();
        assert!((172_800..180_000).contains(&oldest), "{oldest}");
        inbox.inbox().accept_message(message(1, 5)).await.unwrap();
        until("one more is shown", async || value("waiting") == Some(4)).await;
        // The question fails, and nothing else.
        let away = "alter table keylane_letters rename to keylane_letters_away";
        place.execute(away).await;
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(value("waiting"), Some(4), "the last number stays");
        for (_, intake) in [&first, &second] {
            let stats = intake.stats();
            assert_eq!((stats.last_error, stats.restarts), (None, 0));
            assert_eq!(stats.failed_parts, []);
        }
        for (_, intake) in [&first, &second] {
            intake.stop().within(Duration::ZERO).await;
        }
        drop((first, second));
        until("nothing is shown", async || value("waiting") == Some(0)).await;
    }
}

/// Above 10,000 messages the number is that of the database.
#[tokio::test]
async fn a_large_backlog_is_estimated() {
    for kind in KINDS {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let _here = metrics::set_default_local_recorder(&recorder);
        let place = Place::new(kind).await;
        let inbox = place.inbox().await.named("returns");
        let messages = (0..14_000).map(|n| NewMessage::new("a", n.to_string()));
        inbox.inbox().accept_many(messages).await.unwrap();
        place
            .execute(match kind {
                Kind::Postgres => "analyze keylane_messages",
                Kind::MariaDb => "analyze table keylane_messages",
            })
            .await;
        let held = hold(&inbox);
        let value = || value(&handle, "returns", "waiting");
        until("it is shown", async || {
            value().is_some_and(|value| value > 0)
        })
        .await;
        let shown = value().unwrap();
        assert!((10_001..28_000).contains(&shown), "{kind:?}: {shown}");
        assert_ne!(shown, 10_001, "{kind:?}: it is not estimated");
        held.1.stop().within(Duration::ZERO).await;
    }
}
