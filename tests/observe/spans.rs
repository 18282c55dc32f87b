//! `keylane.message`: key or hash, attempt, wait; and what is logged.

use std::fmt;
use std::time::Duration;

use keylane::error::BoxError;
use keylane::{Builder, DeadLetter, DeadLetterSink, Dispatcher, OnExhausted, Retry};
use keylane_testkit::scenario::paused;
use tracing::Instrument;

use crate::recorder::{Record, Recorder};

/// A key and a payload that must not be seen.
const SECRET: &str = "ada@example.org";
const PAYLOAD: &str = "four hundred euros";

#[derive(Clone)]
struct Order {
    user: String,
    text: String,
}

fn order() -> Order {
    Order {
        user: SECRET.to_owned(),
        text: PAYLOAD.to_owned(),
    }
}

/// A dispatcher whose keys are users.
fn by_user()
-> Builder<String, Order, &'static str, impl Fn(&Order) -> Option<String> + Send + Sync + 'static> {
    Dispatcher::builder(|order: &Order| order.user.clone())
}

/// Sends two orders that fail twice, with an inner span of the handler's own.
async fn fail_twice(
    builder: Builder<
        String,
        Order,
        &'static str,
        impl Fn(&Order) -> Option<String> + Send + Sync + 'static,
    >,
) {
    let orders = builder
        .retry(Retry::fixed(Duration::from_secs(1)).max_attempts(3))
        .spawn(|ctx: keylane::Context<String>, order: Order| async move {
            let work = async {
                tokio::task::yield_now().await;
                assert_eq!(order.text, PAYLOAD);
                if ctx.attempt() < 3 {
                    Err("no")
                } else {
                    Ok(order.text)
                }
            };
            let inner = tracing::info_span!(target: "keylane", "inner");
            work.instrument(inner).await
        })
        .unwrap();
    orders.send(order()).await.unwrap();
    orders.send(order()).await.unwrap();
    orders.drain().await;
}

#[test]
fn a_span_for_each_attempt_with_the_hash_of_the_key() {
    paused().block_on(async {
        let (recorder, _recording) = Recorder::start();
        fail_twice(by_user()).await;
        let spans = recorder.spans();
        let messages: Vec<_> = spans
            .iter()
            .filter(|span| span.name == "keylane.message")
            .collect();
        let attempts: Vec<_> = messages.iter().map(|span| span.field("attempt")).collect();
        assert_eq!(attempts, ["1", "2", "3", "1", "2", "3"].map(Some));

        // The same hash for the same key, and a hash it is.
        let key = messages[0].field("key").unwrap();
        assert!(key.len() == 17 && key.starts_with('#'), "{key}");
        assert!(key[1..].chars().all(|c| c.is_ascii_hexdigit()), "{key}");
        assert!(messages.iter().all(|span| span.field("key") == Some(key)));

        // The wait is the time since the message was accepted.
        let waits: Vec<u64> = messages
            .iter()
            .map(|span| span.field("wait_us").unwrap().parse().unwrap())
            .collect();
        assert!(waits[0] < 1_000, "{waits:?}");
        assert!((999_000..1_100_000).contains(&waits[1]), "{waits:?}");
        assert!((1_999_000..2_100_000).contains(&waits[3]), "{waits:?}");

        // Entered for each poll and for nothing else, and left each time.
        let polled_twice = |span: &&Record| (span.entered, span.exited) == (2, 2);
        assert!(messages.iter().all(polled_twice), "{messages:?}");

        // So what the handler does is inside.
        let inner: Vec<_> = spans.iter().filter(|span| span.name == "inner").collect();
        assert_eq!(inner.len(), messages.len());
        let parents = inner.iter().map(|span| span.parent.as_deref());
        assert!(parents.eq(vec![Some("keylane.message"); 6]), "{inner:?}");

        // Nothing keeps one for longer than its attempt.
        assert!(spans.iter().all(|span| span.closed), "{spans:?}");

        let text = recorder.text();
        assert!(!text.contains(SECRET) && !text.contains(PAYLOAD), "{text}");
    });
}

#[test]
fn the_key_itself_by_choice() {
    paused().block_on(async {
        let (recorder, _recording) = Recorder::start();
        fail_twice(by_user().trace_keys()).await;
        let spans = recorder.spans();
        let span = spans
            .iter()
            .find(|span| span.name == "keylane.message")
            .unwrap();
        assert_eq!(span.field("key"), Some(&*format!("{SECRET:?}")));
        let failed = recorder.events();
        assert!(
            failed
                .iter()
                .all(|event| event.field("key") == span.field("key")),
            "{failed:?}"
        );
        assert!(!recorder.text().contains(PAYLOAD));
    });
}

/// A key of any length and content is one short line.
#[test]
fn a_key_is_escaped_and_cut() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Raw(String);
    impl fmt::Debug for Raw {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }
    paused().block_on(async {
        let (recorder, _recording) = Recorder::start();
        let orders = Dispatcher::builder(|raw: &Raw| raw.clone())
            .trace_keys()
            .spawn(|_: Raw| async move { Ok::<(), ()>(()) })
            .unwrap();
        orders
            .send(Raw(format!("a\nb\u{1b}[31m{}", "x".repeat(1_000))))
            .await
            .unwrap();
        orders.drain().await;
        let spans = recorder.spans();
        let key = spans[0].field("key").unwrap();
        assert!(key.starts_with("a\\nb\\u{1b}[31mxxx"), "{key}");
        assert!(key.chars().count() < 80 && key.ends_with('…'), "{key}");
    });
}

/// A line in a log is no reason to lose a message, or to stop a lane.
#[test]
fn a_key_whose_debug_panics_stops_nothing() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Unspeakable(u32);
    impl fmt::Debug for Unspeakable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            std::panic::resume_unwind(Box::new("the key has no words"))
        }
    }
    paused().block_on(async {
        let (recorder, _recording) = Recorder::start();
        let orders = Dispatcher::builder(|n: &u32| Unspeakable(n % 2))
            .trace_keys()
            .spawn(|n: u32| async move { if n < 4 { Err("no") } else { Ok(n) } })
            .unwrap();
        let mut receipts = Vec::new();
        for n in 0..8 {
            receipts.push(orders.submit(n).await.unwrap());
        }
        for (n, receipt) in receipts.into_iter().enumerate() {
            assert_eq!(receipt.await.is_ok(), n >= 4);
        }
        let report = orders.drain().await;
        assert_eq!((report.done, report.discarded), (4, 4));
        assert_eq!(
            recorder.spans()[0].field("key"),
            Some("a key whose `Debug` panics")
        );
    });
}

#[test]
fn a_keyless_message_is_shown_as_such() {
    paused().block_on(async {
        let (recorder, _recording) = Recorder::start();
        let orders = Dispatcher::key_by_opt(|_: &u32| None::<u32>)
            .spawn(|_: u32| async move { Ok::<(), &'static str>(()) })
            .unwrap();
        orders.send(1).await.unwrap();
        orders.drain().await;
        assert_eq!(recorder.spans()[0].field("key"), Some("-"));
    });
}

/// Failures, refused letters and halted lanes are told, each with its key's hash.
#[test]
fn trouble_is_logged_without_keys_and_payloads() {
    struct Refuses;
    #[keylane::async_trait]
    impl DeadLetterSink<String, Order, &'static str> for Refuses {
        async fn accept(
            &self,
            _: &DeadLetter<String, Order, &'static str>,
        ) -> Result<(), BoxError> {
            Err(format!("no room\n{}", "for it ".repeat(100)).into())
        }
    }
    paused().block_on(async {
        let (recorder, _recording) = Recorder::start();
        for policy in [
            OnExhausted::dead_letter(Refuses),
            OnExhausted::Halt,
            OnExhausted::Discard,
        ] {
            let orders = by_user()
                .on_exhausted(policy)
                .spawn(|_: Order| async move { Err::<String, _>("broke") })
                .unwrap();
            orders.send(order()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            orders.close().await;
        }
        let events = recorder.events();
        let names: Vec<_> = events.iter().map(|event| &event.name[..]).collect();
        let expected = [
            "an attempt failed",
            "gave up on the message: it becomes a dead letter",
            "the dead-letter sink did not accept the message, will retry; its key waits",
            "an attempt failed",
            "gave up on the message: its lane halts",
            "a lane is halted: resume, skip or replace its head",
            "an attempt failed",
            "gave up on the message: it is discarded",
        ];
        assert_eq!(names, expected);
        assert!(
            events
                .iter()
                .all(|event| event.field("key").unwrap().starts_with('#'))
        );
        assert_eq!(
            events[0].field("error"),
            Some("the handler failed: \"broke\"")
        );
        // One line, of bounded length, whatever a sink has to say.
        let error = events[2].field("error").unwrap();
        assert!(
            error.starts_with("no room\\nfor it") && error.chars().count() < 300,
            "{error}"
        );
        let text = recorder.text();
        assert!(!text.contains(SECRET) && !text.contains(PAYLOAD), "{text}");
    });
}

/// What is printed of handles, messages and errors says nothing about keys and payloads either.
#[test]
fn debug_shows_no_keys_and_no_payloads() {
    paused().block_on(async {
        let builder = by_user();
        let mut shown = format!("{builder:?}");
        let orders = builder
            .capacity(2)
            .spawn(|ctx: keylane::Context<String>, _: Order| async move { Ok(format!("{ctx:?}")) })
            .unwrap();
        let receipt = orders.submit(order()).await.unwrap();
        shown += &format!(
            "{orders:?} {receipt:?} {:?}",
            orders.lane(&SECRET.to_owned())
        );
        shown += &format!("{:?}", orders.reserve().await);
        shown += &receipt.await.unwrap();
        let one = orders.reserve().await.unwrap();
        let two = orders.reserve().await.unwrap();
        let full = orders.try_send(order()).unwrap_err();
        shown += &format!("{full:?} {full}");
        drop((one, two));
        shown += &format!("{:?}", orders.drain());
        let report = orders.drain().await;
        shown += &format!("{report:?} {report}");
        let closed = orders.send(order()).await.unwrap_err();
        shown += &format!("{closed:?} {closed}");
        assert!(
            !shown.contains(SECRET) && !shown.contains(PAYLOAD),
            "{shown}"
        );
    });
}
