//! The dead letters: to be looked at, and to be tried again.

use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use keylane_inbox::Letter;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::app::Shop;
use crate::order::Order;
use crate::refusal::Refusal;

/// How many letters one answer has.
const PAGE: usize = 500;

/// A dead letter, as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    sequence: u64,
    user: String,
    id: String,
    attempts: u32,
    kind: String,
    error: String,
    /// Milliseconds of the wall clock.
    at_ms: u64,
}

impl From<Letter> for Shown {
    fn from(letter: Letter) -> Self {
        let message = letter.message;
        let order = Order::from_payload(&message.payload).ok();
        let at = letter.dead_lettered_at.duration_since(UNIX_EPOCH);
        Self {
            sequence: message.sequence,
            user: String::from_utf8_lossy(&message.key).into_owned(),
            id: order.map(|order| order.id).unwrap_or_default(),
            attempts: letter.attempts,
            kind: letter.kind.to_string(),
            error: letter.error,
            at_ms: at.unwrap_or_default().as_millis() as u64,
        }
    }
}

impl Shop {
    pub(crate) async fn letters(&self, after: u64, most: usize) -> Result<Vec<Shown>, Refusal> {
        let letters = self.inbox.letters().list(after, most).await?;
        Ok(letters.into_iter().map(Shown::from).collect())
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct After {
    #[serde(default)]
    after: u64,
}

/// The letters after a sequence: one page of them.
pub(crate) async fn list(
    State(shop): State<Shop>,
    after: Result<Query<After>, QueryRejection>,
) -> Result<Json<Vec<Shown>>, Refusal> {
    let Query(After { after }) = after.map_err(|_| Refusal::NoSuchPage)?;
    Ok(Json(shop.letters(after, PAGE).await?))
}

/// Which letters to try again: these, or all that there are.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Redrive {
    Sequences(Vec<u64>),
    All(bool),
}

/// Lets letters wait again, each ahead of the later orders of its user.
pub(crate) async fn redrive(
    State(shop): State<Shop>,
    which: Result<Json<Redrive>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let Json(which) = which?;
    let letters = shop.inbox.letters();
    let mut redriven = 0;
    match which {
        Redrive::Sequences(sequences) => redriven = letters.redrive(sequences).await?.len(),
        Redrive::All(false) => {}
        // Those that come in meanwhile have higher sequences, or come back behind this walk: it ends.
        Redrive::All(true) => {
            let mut after = 0;
            loop {
                let page = letters.list(after, PAGE).await?;
                let Some(last) = page.last() else { break };
                after = last.message.sequence;
                let sequences = page.iter().map(|letter| letter.message.sequence);
                redriven += letters.redrive(sequences).await?.len();
            }
        }
    }
    Ok(Json(json!({ "redriven": redriven })))
}
