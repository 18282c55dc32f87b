//! Sends one letter back.

use keylane_rt::text_in_debug;
use keylane_source::RawMessage;
use thiserror::Error;

use super::headers::{TOPIC, original};
use crate::error::REFUSES;
use crate::link::REFUSALS;
use crate::producer::{Producer, SendError};

/// Why a letter did not go back.
#[derive(Error, Clone)]
pub(super) enum Failed {
    #[error("the dead letter {0} does not name its topic: set one with `to`")]
    NoTopic(String),
    #[error(transparent)]
    Send(#[from] SendError),
}

// The log of a redrive shows it so.
text_in_debug! { Failed: NoTopic, Send }

impl Failed {
    /// Whether the letter may go back if it is tried again.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::NoTopic(_) => false,
            Self::Send(error) => error.is_retryable(),
        }
    }
}

/// Sends a letter to this topic, or to the one that it names, and waits until it is written.
pub(super) async fn send_back(
    producer: &Producer,
    to: Option<&str>,
    letter: &RawMessage,
) -> Result<(), Failed> {
    let topic = letter.header(TOPIC);
    let topic = topic.and_then(|topic| std::str::from_utf8(topic).ok());
    let Some(topic) = to.or(topic) else {
        let id = letter.id.clone().unwrap_or_default();
        let id = String::from_utf8_lossy(&id).into_owned();
        return Err(Failed::NoTopic(id));
    };
    producer.send(topic, &original(letter)).await?;
    Ok(())
}

/// Whether this is the message of a broker that refuses a user. The source returns only the text of
/// the client's error, which contains the name of the code, or its own.
pub(super) fn is_refusal(why: &str) -> bool {
    why.contains(REFUSES) || REFUSALS.iter().any(|code| why.contains(&code.to_string()))
}
