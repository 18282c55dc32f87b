//! Handlers that fail.

use std::collections::BTreeMap;
use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::{RawLetter, RawLetterSink, RawMessage, Source};
use keylane::{OnExhausted, Retry};

use super::{Result, Stage};
use crate::check::Evidence;
use crate::conformance::broken::expect;
use crate::conformance::harness::Site;
use crate::conformance::message::id_of;
use crate::conformance::stage::{built, consumer, handler, settings, spawn};
use crate::events::{Event, Id, Key};
use crate::history::History;
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

/// A message that fails for good has its dead letter, which a sink refuses once, before its key
/// goes on.
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

/// Keeps the letters of messages that cannot be decoded.
struct Shelf(LetterBox);

#[keylane::async_trait]
impl RawLetterSink for Shelf {
    async fn accept(&self, letter: &RawLetter) -> std::result::Result<(), BoxError> {
        let id = id_of(&letter.raw).unwrap_or_default();
        let error = letter.error.to_string();
        Ok(self.0.accept(id, 0, error).await?)
    }
}

/// Every third message cannot be decoded: its letter goes to a sink, which refuses the first, and
/// then to the source, if it keeps letters.
pub(in super::super) async fn undecodable<T: Site>(mut stage: Stage<T>) -> Result {
    let decode = |raw: &RawMessage| match id_of(raw) {
        Some(id) if id % 3 == 0 => Err(BoxError::from("scripted error of a decoder")),
        _ => Ok(raw.clone()),
    };
    let letters = LetterBox::new(&stage.history).refuses(1);
    let consumer = spawn(Script::new(&stage.history).otherwise(Act::ok().yields(2)))?;
    let shelf = Shelf(letters.clone());
    let source = stage.watched().await?.decode(decode).letters(shelf);
    let intake = stage.intake_of(&consumer, source, settings())?;
    let sent = stage.publish_each(0..4, 6).await?;
    stage.nothing_left().await?;
    stage.stop(intake).await?;
    let mut kept: Vec<_> = letters.letters().iter().map(|letter| letter.id).collect();
    kept.sort_unstable();
    let dead: Vec<_> = sent.into_iter().filter(|id| id % 3 == 0).collect();
    expect(kept == dead, || {
        format!("the letters of {dead:?} were to be kept, and {kept:?} were")
    })?;
    if stage.features.keeps_dead_letters() {
        let source = stage.watched().await?.decode(decode);
        let intake = stage.intake_of(&consumer, source, settings())?;
        let sent = stage.publish_each(0..4, 6).await?;
        stage.nothing_left().await?;
        stage.stop(intake).await?;
        let letters = stage.site.letters().await?;
        let mut kept: Vec<_> = letters.iter().filter_map(id_of).collect();
        kept.sort_unstable();
        let dead: Vec<_> = sent.into_iter().filter(|id| id % 3 == 0).collect();
        expect(kept == dead, || {
            format!("the source was to keep the letters of {dead:?}, and kept {kept:?}")
        })?;
    }
    letters_in_order(&stage.history, |id| (id - 1) % 4)?;
    // A letter without an attempt.
    stage.judge(Evidence::new().overflow_letters())
}

/// Checks that the letters of a key are durable before later messages of the key start, and after
/// earlier ones have ended. The ids of a key grow.
fn letters_in_order(history: &History, key: impl Fn(Id) -> Key) -> Result {
    let mut last: BTreeMap<Key, Id> = BTreeMap::new();
    for record in history.records() {
        let (Event::Start { id, .. } | Event::End { id, .. } | Event::Dead { id }) = record.event
        else {
            continue;
        };
        let last = last.entry(key(id)).or_default();
        expect(*last <= id, || {
            format!("id {id} came after id {last}, which is behind it in its key")
        })?;
        *last = id;
    }
    Ok(())
}
