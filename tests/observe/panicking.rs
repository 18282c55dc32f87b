//! A subscriber of logs that panics.

use std::panic::resume_unwind;

use keylane::consume::IntakeState;
use keylane::source::{Features, RawMessage};
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::scenario::{paused, until};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Panics at a failed attempt.
struct Panics;

impl<S: Subscriber> Layer<S> for Panics {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Finds);
    }
}

struct Finds;

impl Visit for Finds {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" && format!("{value:?}").contains("attempt failed") {
            // Without the hook: what is expected need not be printed.
            resume_unwind(Box::new("the layer panics"));
        }
    }
}

/// It ends the dispatcher, and the intake. Both say so, and nothing is lost.
#[test]
fn it_ends_the_dispatcher_which_says_why() {
    let _on = tracing::subscriber::set_default(tracing_subscriber::registry().with(Panics));
    paused().block_on(async {
        let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
            .retry(Retry::fixed(std::time::Duration::from_secs(1)).max_attempts(2))
            .on_exhausted(OnExhausted::Halt)
            .spawn(|order: RawMessage| async move {
                match &order.payload[..] {
                    b"bad" => Err("no"),
                    _ => Ok(()),
                }
            })
            .unwrap();
        let server = ReferenceServer::new(Features::new());
        let intake = orders.consume(server.source()).unwrap();
        server.publish([RawMessage::new("good").key("a")]);
        until(|| intake.stats().acked == 1).await;
        server.publish(["bad", "good"].map(|payload| RawMessage::new(payload).key("b")));
        let ended = intake.ended().await;
        // One went back when it was lost, and the other at the end.
        let back = ended.nacked + ended.given_back;
        assert_eq!((ended.received, ended.acked, back), (3, 1, 2));
        let stats = intake.stats();
        assert_eq!(stats.state, IntakeState::Ended);
        let why = stats.last_error.expect("the reason");
        assert!(why.contains("a panic outside the handlers"), "{why}");
        assert_eq!(server.left(), 2);

        let report = orders.drain().await;
        assert!(report.panicked);
        assert!(
            report
                .to_string()
                .ends_with("(ended by a panic outside the handlers)"),
            "{report}"
        );
        assert_eq!(report.accepted, report.done + report.handed_back);
    });
}
