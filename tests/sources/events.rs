//! What the subscribers of a dispatcher hear of its sources.

use keylane::watching::{Event, Events, SourceEvent};
use keylane_testkit::scenario::{MS, SECOND, quiet};
use keylane_testkit::{Act, Gate};

use crate::support::{REVOKE_WITHIN, Rig, plain, settings, until};

/// The names of what was heard so far, one for each event.
fn heard<K: Clone>(events: &mut Events<K>) -> Vec<&'static str> {
    let mut names = Vec::new();
    while let Some(event) = events.try_recv() {
        if let Event::Source { source, what, .. } = event {
            assert_eq!(source, "reference");
            names.push(match what {
                SourceEvent::Opened => "opened",
                SourceEvent::Failed { .. } => "failed",
                SourceEvent::Stalled { .. } => "stalled",
                SourceEvent::Revoked { .. } => "revoked",
                SourceEvent::Overdue { .. } => "overdue",
                SourceEvent::Ended => "ended",
                _ => "other",
            });
        }
    }
    names
}

#[tokio::test(start_paused = true)]
async fn opened_revoked_failed_and_ended() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    let mut events = orders.events();
    let intake = rig.consume(&orders);
    quiet().await;
    assert_eq!(heard(&mut events), ["opened"]);
    rig.revoke();
    quiet().await;
    assert_eq!(heard(&mut events), ["revoked"]);
    rig.server.cut();
    tokio::time::sleep(SECOND).await;
    assert_eq!(heard(&mut events), ["failed", "revoked", "opened"]);
    let _ = intake.stop().await;
    assert_eq!(heard(&mut events), ["ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_stall_in_any_call() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let mut events = orders.events();
    let intake = rig.consume(&orders);
    quiet().await;
    rig.server.stall();
    tokio::time::sleep(11 * SECOND).await;
    let stalled = ["opened", "stalled", "failed", "revoked", "opened"];
    assert_eq!(heard(&mut events), stalled);
    // In `settle`.
    rig.publish([1]);
    gate.arrivals(1).await;
    rig.server.stall();
    rig.history.revoke(0);
    gate.open();
    tokio::time::sleep(11 * SECOND).await;
    assert_eq!(
        heard(&mut events),
        ["stalled", "failed", "revoked", "opened"]
    );
    rig.finish(&orders, intake).await;
}

/// How many messages were here when they were taken back.
#[tokio::test(start_paused = true)]
async fn a_revoke_says_how_many_messages_it_is_about() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let mut events = orders.events();
    let intake = orders
        .consume_with(rig.server.source(), settings().held(5))
        .unwrap();
    rig.publish([1, 1, 1, 2]);
    gate.arrivals(2).await;
    quiet().await;
    heard(&mut events);
    rig.revoke();
    quiet().await;
    let Some(Event::Source { what, .. }) = events.try_recv() else {
        panic!("nothing was heard");
    };
    let four = matches!(what, SourceEvent::Revoked { messages: 4, .. });
    assert!(four, "{what:?}");
    until(|| rig.history.records().len() > 10).await;
    tokio::time::sleep(REVOKE_WITHIN + 10 * MS).await;
    gate.open();
    rig.finish(&orders, intake).await;
}
