//! Letters that are put back while their key is being worked on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_inbox::NewMessage;
use keylane_sql::{Settings, SourceSettings, SqlInbox, Tables};
use keylane_testkit::scenario::{boxed, by_key, until, until_async};
use keylane_testkit::{Gate, Lines};
use tokio::time::sleep;

use crate::rig::{Lock, decoded, log_to, message};
use crate::support::{Kind, Place};

const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

/// It goes ahead of what waits, also of what is handed over and has not started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_is_put_back_goes_ahead_of_what_waits() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let inbox = place.inbox().await;
        let messages = ["refused", "slow", "third", "fourth"];
        let messages = messages.map(|payload| NewMessage::new("key", payload));
        inbox.inbox().accept_many(messages).await.unwrap();

        let (gate, refuses) = (Gate::new(), Arc::new(AtomicBool::new(true)));
        let handled = Arc::new(Mutex::new(Vec::new()));
        let handler = {
            let (gate, refuses, handled) =
                (gate.clone(), Arc::clone(&refuses), Arc::clone(&handled));
            move |raw: RawMessage| {
                let (gate, refuses, handled) =
                    (gate.clone(), Arc::clone(&refuses), Arc::clone(&handled));
                async move {
                    let payload = String::from_utf8(raw.payload.to_vec()).unwrap();
                    if payload == "refused" && refuses.load(Ordering::Relaxed) {
                        return Err("as told".into());
                    }
                    if payload == "slow" {
                        gate.pass().await;
                    }
                    handled.lock().unwrap().push(payload);
                    Ok(())
                }
            }
        };
        let dispatcher = by_key()
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(handler))
            .unwrap();
        let settings = SourceSettings::new().poll(Duration::from_millis(100));
        let source = decoded(inbox.source_with(settings));
        let intake = dispatcher.consume(source).unwrap();
        while gate.waiting() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        let letters = inbox.inbox().letters();
        assert_eq!(letters.list(0, 10).await.unwrap().len(), 1);
        refuses.store(false, Ordering::Relaxed);
        assert_eq!(letters.redrive([1]).await.unwrap(), [1]);
        while intake.stats().given_back + intake.stats().nacked < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        gate.open();
        while handled.lock().unwrap().len() < 4 {
            sleep(Duration::from_millis(5)).await;
        }
        let order = handled.lock().unwrap().clone();
        assert_eq!(order, ["slow", "refused", "third", "fourth"], "{kind:?}");
        let report = intake.stop().await;
        assert_eq!((report.acked, report.dead_lettered), (4, 1), "{report}");
        assert_eq!(inbox.inbox().stats().await.unwrap().waiting, 0);
    }
}

/// Its table is locked for a while: shorter than a call may take, and longer. Then the call is given
/// up and made again, and it is not known whether the first one has written the letter.
#[tokio::test]
async fn a_letter_that_is_slow_is_no_error() {
    for kind in KINDS {
        for is_in_time in [true, false] {
            let place = Place::new(kind).await;
            let limit = Duration::from_secs(if is_in_time { 120 } else { 2 });
            let (lines, settings) = (Lines::new(), Settings::new().call_limit(limit));
            let logs = log_to(&lines);
            let inbox = SqlInbox::open(&place.database, &Tables::new(), settings).await;
            let inbox = inbox.unwrap();
            let dispatcher = by_key()
                .on_exhausted(OnExhausted::AtSource)
                .spawn(boxed(|_: RawMessage| async {
                    Err::<(), _>("as told".into())
                }))
                .unwrap();
            let settings = SourceSettings::new().lease(Duration::from_secs(120));
            let source = decoded(inbox.source_with(settings));
            let intake = dispatcher.consume(source).unwrap();
            let lock = Lock::of(&place, "letters").await;
            let direct = place.inbox().await.inbox();
            direct.accept_message(message(1, 1)).await.unwrap();
            match is_in_time {
                true => until_async("it waits", async || waits(&place).await).await,
                false => until(|| !lines.with("did not accept").is_empty()).await,
            }
            lock.end().await;
            until(|| intake.stats().dead_lettered == 1).await;
            let letters = direct.letters().list(0, 10).await.unwrap();
            assert_eq!(letters.len(), 1, "{kind:?}");
            let report = intake.stop().await;
            assert_eq!((report.dead_lettered, report.restarts), (1, 0), "{report}");
            drop(logs);
            assert_eq!(lines.with("did not accept").is_empty(), is_in_time);
            let errors = lines.with("ERROR");
            assert!(errors.is_empty(), "{kind:?}: {errors:#?}");
        }
    }
}

/// Whether a session waits for a lock.
async fn waits(place: &Place) -> bool {
    let count = match place.kind {
        Kind::Postgres => {
            "select count(*) from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'"
        }
        Kind::MariaDb => {
            "select count(*) from information_schema.processlist
             where db = database() and state like 'Waiting for table%'"
        }
    };
    place.number(count).await > 0
}
