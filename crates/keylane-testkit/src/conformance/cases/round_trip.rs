//! Messages of all forms, as dead letters, and after their way back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keylane::source::RawMessage;
use keylane::{Context, OnExhausted, Retry};

use super::{Result, Stage};
use crate::conformance::broken::{Broken, expect};
use crate::conformance::harness::Site;
use crate::conformance::stage::{built, consumer, settings};
use crate::scenario::Random;
use crate::script::ScriptError;

/// How many messages go round.
const MESSAGES: u64 = 40;

/// The headers of a letter that are not those of its message.
const OURS: &str = "keylane.";

/// The parts of a message that have to stay as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Form {
    /// `None` for a tombstone.
    payload: Option<Bytes>,
    headers: Vec<(String, Option<Bytes>)>,
}

/// The forms of messages, by their keys.
type Forms = BTreeMap<Bytes, Form>;

/// Random messages are handled once and fail, and the source keeps their letters, which then go
/// back, if the site can do that. Every byte of them is compared.
pub(in super::super) async fn round_trip<T: Site>(stage: Stage<T>) -> Result {
    let mut random = Random::new(0x1e77e2);
    let messages = (0..MESSAGES).map(|number| message(&mut random, number));
    let messages: Vec<_> = messages.map(|one| stage.site.sayable(one)).collect();
    let sent = forms(&messages);
    stage.site.publish(messages).await?;

    let handled = handle_all(&stage, OnExhausted::AtSource, false).await?;
    compare("handled", &sent, &handled)?;
    compare("a dead letter", &sent, &forms(&stage.site.letters().await?))?;
    if stage.site.redrive().await? {
        let again = handle_all(&stage, OnExhausted::Halt, true).await?;
        compare("handled after its redrive", &sent, &again)?;
    }
    Ok(())
}

/// Handles everything once, and returns what the handler has seen.
async fn handle_all<T: Site>(
    stage: &Stage<T>,
    on_exhausted: OnExhausted<Bytes, RawMessage, ScriptError>,
    succeeds: bool,
) -> std::result::Result<Forms, Broken> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&seen);
    let handler = move |_: Context<Bytes>, message: RawMessage| {
        let mut seen = theirs.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(message);
        std::future::ready(match succeeds {
            true => Ok(0),
            false => Err(ScriptError::Error(0)),
        })
    };
    let consumer = consumer()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(1))
        .on_exhausted(on_exhausted);
    let consumer = built(consumer.spawn(handler))?;
    // The messages have no ids of the suite, so the source is not watched.
    let source = stage.site.source().await?;
    let intake = stage.intake_of(&consumer, source, settings())?;
    let settled = || {
        let stats = intake.stats();
        stats.acked + stats.dead_lettered >= MESSAGES
    };
    stage.until("all messages were settled", settled).await?;
    stage.nothing_left().await?;
    stage.stop(intake).await?;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(forms(&seen))
}

/// Returns a message with a key of its own.
fn message(random: &mut Random, number: u64) -> RawMessage {
    let mut key = number.to_be_bytes().to_vec();
    key.extend(bytes(random, 12));
    let mut message = RawMessage::new(bytes(random, 64)).key(key);
    if random.one_in(5) {
        message.payload = Bytes::new();
        message.is_tombstone = random.one_in(2);
    }
    for _ in 0..random.below(5) {
        let names = [
            "trace", "trace", "key", "payload", "id", "version", "é", "a b",
        ];
        let name = names[random.below(names.len() as u64) as usize];
        let value = (!random.one_in(4)).then(|| bytes(random, 20).into());
        message.headers.push((name.to_owned(), value));
    }
    message
}

/// Returns at most so many random bytes, or none.
fn bytes(random: &mut Random, most: u64) -> Vec<u8> {
    let count = random.below(most + 1);
    (0..count).map(|_| random.below(256) as u8).collect()
}

fn forms(messages: &[RawMessage]) -> Forms {
    let form = |message: &RawMessage| {
        let headers = message.headers.iter();
        let theirs = headers.filter(|(name, _)| !name.starts_with(OURS));
        Form {
            payload: (!message.is_tombstone).then(|| message.payload.clone()),
            headers: theirs.cloned().collect(),
        }
    };
    let of = |message: &RawMessage| (message.key.clone().unwrap_or_default(), form(message));
    messages.iter().map(of).collect()
}

fn compare(how: &str, sent: &Forms, came: &Forms) -> Result {
    for (key, sent) in sent {
        let came = came.get(key);
        expect(came == Some(sent), || {
            format!("{key:?} was sent as {sent:?}, and {how} as {came:?}")
        })?;
    }
    let all = sent.len();
    expect(came.len() == all, || {
        format!("{all} messages were sent, and {} {how}", came.len())
    })
}
