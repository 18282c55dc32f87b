//! What the subscribers of a dispatcher hear of its sources.

use keylane::consume::IntakeState;
use keylane::error::BoxError;
use keylane::source::{RawLetter, RawLetterSink, Source};
use keylane::watching::{Event, Events, SourceEvent};
use keylane_testkit::scenario::{MS, SECOND, quiet};
use keylane_testkit::{Act, Gate};

use crate::support::{REVOKE_WITHIN, Rig, plain, settings, until};

/// Every message can be decoded.
struct NoLetters;

#[keylane::async_trait]
impl RawLetterSink for NoLetters {
    async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError> {
        panic!("{letter:?}");
    }
}

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
                SourceEvent::PartFailed { .. } => "part failed",
                SourceEvent::PartRecovered { .. } => "part recovered",
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

/// Of a part that fails the state, the events and the log speak; the others go on.
#[tokio::test(start_paused = true)]
async fn a_part_that_fails_stands_in_the_stats_until_it_works_again() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    let mut events = orders.events();
    let intake = rig.consume(&orders);
    quiet().await;
    heard(&mut events);
    for _ in 0..3 {
        rig.server.faults().fail_part("orders/1", "no leader");
        tokio::time::sleep(SECOND).await;
    }
    rig.publish([1, 2]);
    rig.handled(2).await;
    let stats = intake.stats();
    assert_eq!(stats.state, IntakeState::Running);
    assert_eq!((stats.restarts, &stats.last_error), (0, &None));
    let [failed] = &stats.failed_parts[..] else {
        panic!("one part fails: {stats:?}");
    };
    assert_eq!((&*failed.part, &*failed.why), ("orders/1", "no leader"));
    assert_eq!((failed.times, failed.last - failed.since), (3, 2 * SECOND));
    assert_eq!(heard(&mut events), ["part failed"]);
    rig.server.faults().recover_part("orders/1");
    until(|| intake.stats().failed_parts.is_empty()).await;
    assert_eq!(heard(&mut events), ["part recovered"]);
    // A source that is opened again finds its parts anew.
    rig.server.faults().fail_part("orders/2", "no codec");
    until(|| !intake.stats().failed_parts.is_empty()).await;
    rig.server.cut();
    until(|| intake.stats().failed_parts.is_empty()).await;
    rig.finish(&orders, intake).await;
}

/// A source around another one hands on what that one says.
#[tokio::test(start_paused = true)]
async fn a_part_of_a_decoded_source() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    let source = rig.server.source().decode(|raw| Ok(raw.clone()));
    let intake = orders
        .consume_with(source.letters(NoLetters), settings())
        .unwrap();
    quiet().await;
    rig.server.faults().fail_part("orders/1", "no leader");
    until(|| intake.stats().failed_parts.len() == 1).await;
    rig.server.faults().recover_part("orders/1");
    until(|| intake.stats().failed_parts.is_empty()).await;
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
