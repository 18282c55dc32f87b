//! Letters that are put back while their key is being worked on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_inbox::NewMessage;
use keylane_sql::SourceSettings;
use keylane_testkit::Gate;
use keylane_testkit::scenario::{boxed, by_key};
use tokio::time::sleep;

use crate::rig::decoded;
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
