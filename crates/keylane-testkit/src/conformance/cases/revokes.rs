//! The end of a generation while its work is here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane::Retry;
use keylane::error::Failure;
use keylane::watching::{Event, SourceEvent};

use super::{Result, Stage};
use crate::check::Evidence;
use crate::conformance::broken::expect;
use crate::conformance::harness::{Fault, Site};
use crate::conformance::stage::{built, consumer, handler, spawn};
use crate::gate::Gate;
use crate::history::History;
use crate::script::{Act, Script};

/// A script in which every attempt fails until the flag changes.
fn failing(history: &History) -> (Script, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&fails);
    let script = Script::new(history).choose(move |_| match still.load(Ordering::Relaxed) {
        true => Act::error(),
        false => Act::ok(),
    });
    (script, fails)
}

/// Parked messages are given back without an attempt; messages in flight may finish.
pub(in super::super) async fn revoke_parked<T: Site>(mut stage: Stage<T>) -> Result {
    let gate = Gate::new();
    let script = Script::new(&stage.history).otherwise(Act::ok().waits(&gate));
    let consumer = spawn(script)?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish(vec![1; 6]).await?;
    stage
        .until("all were received", || intake.stats().held == sent.len())
        .await?;
    stage
        .until("the first one runs", || gate.waiting() == 1)
        .await?;
    stage.inject(Fault::Revoke).await?;
    let only_first = || intake.stats().given_back >= 5;
    stage.until("what was parked went back", only_first).await?;
    expect(stage.history.started() == sent[..1], || {
        "a parked message of a revoked generation was started".to_owned()
    })?;
    gate.open();
    let seen = || stage.witness.seen().released > 0;
    stage.until("the generation was released", seen).await?;
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// Messages in flight are dropped at the deadline, before they start again.
pub(in super::super) async fn revoke_in_flight<T: Site>(mut stage: Stage<T>) -> Result {
    let gate = Gate::new();
    let script = Script::new(&stage.history).otherwise(Act::ok().waits(&gate));
    let consumer = spawn(script)?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish([1, 2, 3]).await?;
    stage.until("all run", || gate.waiting() == 3).await?;
    stage.inject(Fault::Revoke).await?;
    let seen = || stage.witness.seen().released > 0;
    stage.until("the generation was released", seen).await?;
    gate.open();
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// Messages that back off are given back, and do not start again here before they come again.
pub(in super::super) async fn revoke_backing_off<T: Site>(mut stage: Stage<T>) -> Result {
    let (script, fails) = failing(&stage.history);
    let long = Duration::from_secs(24 * 3600);
    let consumer = consumer().retry(Retry::fixed(long).max_attempts(3));
    let consumer = built(consumer.spawn(handler(script)))?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish([1, 1, 2]).await?;
    let backs_off = || consumer.stats().backing_off == 2;
    stage.until("two keys back off", backs_off).await?;
    fails.store(false, Ordering::Relaxed);
    stage.inject(Fault::Revoke).await?;
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// Halted messages are given back, and their lane is not halted when they come again.
pub(in super::super) async fn revoke_halted<T: Site>(mut stage: Stage<T>) -> Result {
    let (script, fails) = failing(&stage.history);
    // An error halts at once. If attempts are counted, the one before the revoke counts, and so
    // there is a second one.
    let crashed = |failure: &Failure<_>| matches!(failure, Failure::Crashed);
    let retry = Retry::fixed(Duration::from_millis(1)).max_attempts(2);
    let consumer = consumer().retry(retry.retry_if(crashed));
    let consumer = built(consumer.spawn(handler(script)))?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish([1, 1, 2]).await?;
    let halted = || consumer.stats().halted == 2;
    stage.until("two keys are halted", halted).await?;
    fails.store(false, Ordering::Relaxed);
    stage.inject(Fault::Revoke).await?;
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// Ownership is lost with work parked, in flight, and backing off.
pub(in super::super) async fn lost<T: Site>(mut stage: Stage<T>) -> Result {
    let gate = Gate::new();
    let (script, fails) = failing(&stage.history);
    let script = script.key(1, Act::ok().waits(&gate));
    let long = Duration::from_secs(24 * 3600);
    let consumer = consumer().retry(Retry::fixed(long).max_attempts(3));
    let consumer = built(consumer.spawn(handler(script)))?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish([1, 1, 1, 2, 2]).await?;
    stage.until("one runs", || gate.waiting() == 1).await?;
    let backs_off = || consumer.stats().backing_off == 1;
    stage.until("one backs off", backs_off).await?;
    fails.store(false, Ordering::Relaxed);
    stage.inject(Fault::Lose).await?;
    let back = || intake.stats().given_back >= 4;
    stage.until("what had not started went back", back).await?;
    gate.open();
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// A message that settles after its generation was lost is counted, and not reported to the source.
pub(in super::super) async fn late_ack<T: Site>(mut stage: Stage<T>) -> Result {
    let gate = Gate::new();
    let script = Script::new(&stage.history).otherwise(Act::ok().waits(&gate));
    let consumer = spawn(script)?;
    let mut events = consumer.events();
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish([1, 2]).await?;
    stage.until("both run", || gate.waiting() == 2).await?;
    stage.inject(Fault::Lose).await?;
    let parted = || stage.witness.seen().lost + stage.witness.seen().failures > 0;
    stage.until("the source has said so", parted).await?;
    // The witness gets it right before the intake does. They may belong to two parts of the source,
    // which are lost one after the other.
    let mut taken_back = 0;
    let heard = || {
        for event in std::iter::from_fn(|| events.try_recv()) {
            if let Event::Source {
                what: SourceEvent::Revoked { messages, .. },
                ..
            } = event
            {
                taken_back += messages;
            }
        }
        taken_back >= sent.len()
    };
    stage.until("the intake has heard it", heard).await?;
    gate.release(2);
    // After a loss they are dropped. A source that fails may still have its lease, and they end in
    // their time.
    let back = || intake.stats().given_back == 2;
    stage.until("both went back", back).await?;
    gate.open();
    let late = usize::try_from(intake.stats().stale).unwrap_or(usize::MAX);
    let all = || stage.history.handled().len() >= late + sent.len();
    stage.until("both were handled again", all).await?;
    expect(stage.history.handled().len() == late + sent.len(), || {
        "they were handled more than twice".to_owned()
    })?;
    stage.finish(intake, Evidence::new()).await
}
