//! Sends one batch or letter, and survives its panics.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::core::{Flight, Landing};
use super::refused::DeadLetters;
use super::sink::{Fate, Fates, SinkError, SpoolSink};

/// The targets of batches and letters.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) sink: Arc<dyn SpoolSink>,
    pub(super) letters: Option<Arc<dyn DeadLetters>>,
    pub(super) timeout: Duration,
}

/// Sends a batch or letter, and returns the result. A panic and a timeout are errors.
pub(super) async fn fly(target: Target, flight: Flight) -> (u64, Landing) {
    let (id, len) = match &flight {
        Flight::Batch { id, batch } => (*id, batch.len()),
        Flight::Letter { id, .. } => (*id, 1),
    };
    let sending = async {
        match &flight {
            Flight::Batch { batch, .. } => target.sink.write(batch).await,
            Flight::Letter { letter, .. } => match &target.letters {
                Some(letters) => letters.accept(letter).await.map_err(SinkError::failed),
                None => Err(SinkError::failed("there is no sink for dead letters")),
            },
        }
    };
    let sending = AssertUnwindSafe(sending).catch_unwind();
    let answer = match tokio::time::timeout(target.timeout, sending).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(SinkError::failed(format_args!(
            "panicked: {}",
            text_of(panic)
        ))),
        Err(_) => Err(SinkError::failed(format_args!(
            "no answer within {:?}",
            target.timeout
        ))),
    };
    (id, landing(answer, len))
}

fn landing(answer: Result<(), SinkError>, len: usize) -> Landing {
    let Err(error) = answer else {
        return Landing::Written;
    };
    let Fates { fates, one_by_one } = error.fates(len);
    if fates.iter().all(|fate| *fate == Fate::Written) {
        return Landing::Written;
    }
    Landing::Failed {
        fates,
        one_by_one,
        error: cut(error.text()).into(),
    }
}

/// The most characters of an error that are kept and shown.
const LONGEST: usize = 200;

/// Escapes characters that could break a line of a log, and cuts.
fn cut(text: &str) -> String {
    let mut short = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == LONGEST {
            short.push('…');
            break;
        }
        match c.is_control() {
            true => short.extend(c.escape_default()),
            false => short.push(c),
        }
    }
    short
}

fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    };
    // The payload belongs to the user, and its drop may panic as well.
    let dropping = std::panic::catch_unwind(AssertUnwindSafe(move || drop(panic)));
    let _ = dropping.map_err(std::mem::forget);
    text
}
