//! Servers and connections that fail.

use std::time::Duration;

use keylane::watching::{Event, SourceEvent};

use super::{Result, Stage};
use crate::check::Evidence;
use crate::conformance::broken::expect;
use crate::conformance::harness::{Fault, Site};
use crate::conformance::stage::spawn;
use crate::script::{Act, Script};

/// An ack is lost: its message comes again, and no other does.
pub(in super::super) async fn ack_lost<T: Site>(mut stage: Stage<T>) -> Result {
    let consumer = spawn(Script::new(&stage.history).otherwise(Act::ok().yields(1)))?;
    let sent = stage.publish_each(0..3, 5).await?;
    stage.inject(Fault::CutBeforeAck).await?;
    let intake = stage.consume(&consumer).await?;
    stage.handled(&sent).await?;
    stage.nothing_left().await?;
    let untold = stage.witness.untold();
    expect(!untold.is_empty(), || "no ack was lost".to_owned())?;
    let handled = stage.history.handled();
    for id in untold {
        let times = handled.iter().filter(|other| **other == id).count();
        expect(times > 1, || {
            format!("the ack of id {id} was lost, and it did not come again")
        })?;
    }
    stage.finish(intake, Evidence::new()).await
}

/// The server restarts while messages are handled.
pub(in super::super) async fn restart<T: Site>(stage: Stage<T>) -> Result {
    interrupted(stage, Fault::Restart).await
}

/// The server is killed while messages are handled.
pub(in super::super) async fn kill<T: Site>(stage: Stage<T>) -> Result {
    interrupted(stage, Fault::Kill).await
}

async fn interrupted<T: Site>(mut stage: Stage<T>, fault: Fault) -> Result {
    let script = Script::new(&stage.history).otherwise(Act::ok().sleeps(Duration::from_millis(5)));
    let consumer = spawn(script)?;
    let intake = stage.consume(&consumer).await?;
    let mut sent = stage.publish_each(0..6, 10).await?;
    // Some of them may be handled before the server reports that they are there.
    let mut before = 0;
    for _ in 0..2 {
        let some = || stage.history.handled().len() > before + 5;
        stage.until("some were handled", some).await?;
        before = stage.history.handled().len();
        stage.inject(fault).await?;
        sent.extend(stage.publish_each(0..6, 5).await?);
    }
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// Each message comes two to five times. It is handled at least once, at first in the order of its
/// key, and no two of a key at once.
pub(in super::super) async fn storm<T: Site>(mut stage: Stage<T>) -> Result {
    stage.inject(Fault::Storm).await?;
    let script = Script::new(&stage.history)
        .choose(|cue| Act::ok().sleeps(Duration::from_millis(cue.id % 4)));
    let consumer = spawn(script)?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish_each(0..5, 20).await?;
    stage.handled(&sent).await?;
    let twice = || stage.witness.seen().delivered >= 2 * sent.len() as u64;
    stage.until("all came twice at least", twice).await?;
    stage.finish(intake, Evidence::new().redelivers()).await
}

/// A stall without an error is detected, reported, and ended.
pub(in super::super) async fn stall<T: Site>(mut stage: Stage<T>) -> Result {
    let consumer = spawn(Script::new(&stage.history))?;
    let mut events = consumer.events();
    let intake = stage.consume(&consumer).await?;
    let mut sent = stage.publish_each(0..3, 2).await?;
    stage.handled(&sent).await?;
    stage.inject(Fault::Stall).await?;
    sent.extend(stage.publish_each(0..3, 2).await?);
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await?;
    let mut stalled = false;
    while let Some(event) = events.try_recv() {
        stalled |= matches!(
            event,
            Event::Source {
                what: SourceEvent::Stalled { .. },
                ..
            }
        );
    }
    expect(stalled, || "the stall was not reported".to_owned())
}
