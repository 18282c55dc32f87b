//! A subscriber of logs that panics.

use std::panic::resume_unwind;

use keylane::consume::IntakeState;
use keylane::discipline::Sequence;
use keylane::error::BoxError;
use keylane::source::{Features, RawMessage, VersionStore};
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::scenario::{paused, until, within};
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Panics at an event with this text.
struct Panics(&'static str);

impl<S: Subscriber> Layer<S> for Panics {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Finds(self.0));
    }
}

struct Finds(&'static str);

impl Visit for Finds {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" && format!("{value:?}").contains(self.0) {
            // Without the hook: what is expected need not be printed.
            resume_unwind(Box::new("the layer panics"));
        }
    }
}

fn panics_at(text: &'static str) -> DefaultGuard {
    keylane_testkit::set_subscriber(tracing_subscriber::registry().with(Panics(text)))
}

/// It ends the dispatcher, and the intake. Both say so, and nothing is lost.
#[test]
fn it_ends_the_dispatcher_which_says_why() {
    let _on = panics_at("attempt failed");
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
        // A restart mends it, and nothing else does.
        for health in [intake.health(), orders.health()] {
            assert!(!health.ready && !health.live, "{health}");
            assert!(health.reasons[0].needs_restart(), "{health}");
        }

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

/// A store that cannot be reached.
struct Away;

#[keylane::async_trait]
impl VersionStore<u64> for Away {
    async fn last(&self, _: &u64) -> Result<Option<u64>, BoxError> {
        Err("away".into())
    }

    async fn record(&self, _: &u64, _: u64) -> Result<(), BoxError> {
        Err("away".into())
    }
}

/// It panics in the task that asks the store. No other one would, and the message would wait for
/// ever.
#[test]
fn it_ends_the_dispatcher_whose_store_is_away() {
    let _on = panics_at("the version store failed");
    paused().block_on(async {
        let sequence = Sequence::contiguous(|n: &u64| *n).store(Away);
        let orders = Dispatcher::builder(|n: &u64| *n)
            .sequence(sequence)
            .spawn(|_: u64| async { Ok::<_, BoxError>(()) })
            .unwrap();
        let receipt = orders.submit(1).await.unwrap();
        assert!(within(receipt).await.is_err());
        let report = within(orders.drain().into_future()).await;
        assert!(report.panicked, "{report}");
        assert_eq!(report.accepted, report.done + report.handed_back);
    });
}
