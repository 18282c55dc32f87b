//! Messages that are lost without having failed: the log says so, now and then.

use std::convert::Infallible;
use std::time::Duration;

use keylane::source::{Features, RawMessage};
use keylane::{Dispatcher, OnExhausted, Overflow};
use keylane_testkit::Gate;
use keylane_testkit::Lines;
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::scenario::{SECOND, until};

use super::origins::lines_of;

const FULL: &str = "a lane is full, and a message of it is dropped";
const EXPIRED: &str = "a message has expired before it was started";
const DROPPED: &str = "an intake is dropped, and stops";

fn messages(count: usize) -> impl Iterator<Item = RawMessage> {
    (0..count).map(|n| {
        let mut message = RawMessage::new("").key("user-7");
        message.id = Some(format!("order-{n}").into());
        message
    })
}

fn server() -> ReferenceServer {
    ReferenceServer::new(Features::new().survives_restart())
}

#[test]
fn messages_beyond_the_limit_of_their_lane_are_logged_now_and_then() {
    let lines = lines_of(async |lines| {
        let (server, gate) = (server(), Gate::new());
        let pass = gate.clone();
        let orders = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .trace_keys()
            .lane_capacity(3, Overflow::DropOldest)
            .on_exhausted(OnExhausted::Discard)
            .spawn(move |_: RawMessage| {
                let pass = pass.clone();
                async move {
                    pass.pass().await;
                    Ok::<_, Infallible>(())
                }
            })
            .unwrap();
        server.publish(messages(1));
        let intake = orders.consume(server.source()).unwrap();
        until(|| orders.stats().in_flight == 1).await;
        // Of four that wait, two are dropped.
        server.publish(messages(4));
        until(|| orders.stats().discarded == 2).await;
        assert_eq!(lines.with(FULL).len(), 1);
        tokio::time::sleep(11 * SECOND).await;
        server.publish(messages(1));
        until(|| lines.with(FULL).len() == 2).await;
        gate.open();
        intake.stop().await;
    });
    let about: Vec<_> = lines.iter().filter(|line| line.contains(FULL)).collect();
    for (line, suppressed) in about.into_iter().zip([0, 1]) {
        let told = line.contains("key=b\"user-7\" source=reference position=0:")
            && line.contains("id=order-")
            && line.contains(&format!("suppressed={suppressed}"));
        assert!(told, "{line}");
    }
}

#[test]
fn messages_that_expire_are_logged() {
    let lines = lines_of(async |_| {
        let (server, gate) = (server(), Gate::new());
        let pass = gate.clone();
        let orders = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .trace_keys()
            .expire_after(SECOND)
            .on_exhausted(OnExhausted::Discard)
            .spawn(move |_: RawMessage| {
                let pass = pass.clone();
                async move {
                    pass.pass().await;
                    Ok::<_, Infallible>(())
                }
            })
            .unwrap();
        server.publish(messages(2));
        let intake = orders.consume(server.source()).unwrap();
        until(|| orders.stats().in_flight == 1).await;
        tokio::time::sleep(2 * SECOND).await;
        gate.open();
        until(|| orders.stats().expired == 1).await;
        intake.stop().await;
    });
    let about: Vec<_> = lines.iter().filter(|line| line.contains(EXPIRED)).collect();
    let [line] = &about[..] else {
        panic!("one line: {lines:#?}");
    };
    assert!(
        line.contains("source=reference position=0:1#2 id=order-1"),
        "{line}"
    );
}

/// As with `let _ = orders.consume(source)`.
#[test]
fn an_intake_that_is_not_kept_is_logged() {
    let consume = |stops: bool| {
        lines_of(async |lines: &Lines| {
            let orders = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
                .on_exhausted(OnExhausted::Discard)
                .spawn(|_: RawMessage| async move { Ok::<_, Infallible>(()) })
                .unwrap();
            let intake = orders.consume(server().source()).unwrap();
            if stops {
                intake.stop().within(Duration::ZERO).await;
            }
            drop(intake);
            assert_eq!(lines.with(DROPPED).len(), usize::from(!stops));
            orders.drain().await;
        })
    };
    let lines = consume(false);
    assert!(
        lines.iter().any(|line| line.contains("source=reference")),
        "{lines:#?}"
    );
    consume(true);
}
