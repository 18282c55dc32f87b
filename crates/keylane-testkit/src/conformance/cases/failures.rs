//! Handlers that fail.

use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};

use super::{Result, Stage};
use crate::check::Evidence;
use crate::conformance::broken::expect;
use crate::conformance::harness::Site;
use crate::conformance::message::id_of;
use crate::conformance::stage::{built, consumer, handler};
use crate::letters::LetterBox;
use crate::script::{Act, Cue, Script};

const BACKOFF: Duration = Duration::from_millis(5);

/// Each message fails twice, and is tried again before the next of its key.
pub(in super::super) async fn retry<T: Site>(mut stage: Stage<T>) -> Result {
    let script = Script::new(&stage.history).choose(|cue| match cue.attempt {
        1 | 2 => Act::error(),
        _ => Act::ok(),
    });
    let consumer = consumer().retry(Retry::fixed(BACKOFF).max_attempts(3));
    let consumer = built(consumer.spawn(handler(script)))?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish_each(0..4, 5).await?;
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new().max_attempts(3)).await
}

/// Every third message fails for ever.
fn every_third_fails(cue: Cue) -> Act {
    match cue.id % 3 {
        0 => Act::error(),
        _ => Act::ok(),
    }
}

/// A message that is given up has its dead letter, which a sink refuses once, before its key goes
/// on.
pub(in super::super) async fn dead_letter<T: Site>(mut stage: Stage<T>) -> Result {
    let letters = LetterBox::new(&stage.history).refuses(1);
    let script = Script::new(&stage.history).choose(every_third_fails);
    let sink = letters.sink(|raw: &RawMessage| id_of(raw).unwrap_or_default());
    let consumer = consumer()
        .retry(Retry::fixed(BACKOFF).max_attempts(2))
        .on_exhausted(OnExhausted::dead_letter(sink));
    let consumer = built(consumer.spawn(handler(script)))?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish_each(0..4, 6).await?;
    let (dead, well): (Vec<_>, Vec<_>) = sent.into_iter().partition(|id| id % 3 == 0);
    stage.handled(&well).await?;
    stage
        .until("the letters are kept", || {
            letters.letters().len() >= dead.len()
        })
        .await?;
    stage.finish(intake, Evidence::new().max_attempts(2)).await
}

/// The same, and the source keeps the letters.
pub(in super::super) async fn dead_letter_at_source<T: Site>(mut stage: Stage<T>) -> Result {
    let script = Script::new(&stage.history).choose(every_third_fails);
    let consumer = consumer()
        .retry(Retry::fixed(BACKOFF).max_attempts(2))
        .on_exhausted(OnExhausted::AtSource);
    let consumer = built(consumer.spawn(handler(script)))?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish_each(0..4, 6).await?;
    let (mut dead, well): (Vec<_>, Vec<_>) = sent.into_iter().partition(|id| id % 3 == 0);
    stage.handled(&well).await?;
    stage.nothing_left().await?;
    let letters = stage.site.letters().await?;
    let mut kept: Vec<_> = letters.iter().filter_map(id_of).collect();
    kept.sort_unstable();
    dead.sort_unstable();
    expect(kept == dead, || {
        format!("the letters of {dead:?} were to be kept, and {kept:?} were")
    })?;
    stage.finish(intake, Evidence::new().max_attempts(2)).await
}
