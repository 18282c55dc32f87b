//! The headers of a dead letter.

use std::fmt;

use bytes::Bytes;
use keylane_source::{DeadLetter, LetterCause, RawLetter};

/// The longest error text: an error may be long, and its beginning says the most.
const MOST_CHARS: usize = 2_000;

/// The attempts at a message, and why it became a dead letter.
#[derive(Clone, Debug)]
pub(crate) struct Why {
    pub(crate) attempts: u32,
    pub(crate) cause: LetterCause,
    pub(crate) error: String,
}

impl From<&RawLetter> for Why {
    fn from(letter: &RawLetter) -> Self {
        Self {
            attempts: 0,
            cause: LetterCause::Undecodable,
            error: letter.error.to_string(),
        }
    }
}

impl<K, M, E: fmt::Debug> From<&DeadLetter<K, M, E>> for Why {
    fn from(letter: &DeadLetter<K, M, E>) -> Self {
        Self {
            attempts: letter.attempts,
            cause: letter.failure.cause(),
            error: letter.failure.to_string(),
        }
    }
}

impl Why {
    /// Returns the headers: `keylane.attempts`, `keylane.cause` and `keylane.error`.
    pub(crate) fn headers(&self) -> Vec<(String, Bytes)> {
        let error: String = self.error.chars().take(MOST_CHARS).collect();
        let header = |name: &str, value: String| (format!("keylane.{name}"), value.into());
        vec![
            header("attempts", self.attempts.to_string()),
            header("cause", cause(self.cause).to_owned()),
            header("error", error),
        ]
    }
}

fn cause(cause: LetterCause) -> &'static str {
    match cause {
        LetterCause::Failed => "failed",
        LetterCause::Panicked => "panicked",
        LetterCause::TimedOut => "timed out",
        LetterCause::Crashed => "crashed",
        LetterCause::Undecodable => "undecodable",
        LetterCause::Gap => "gap",
        LetterCause::LaneFull => "lane full",
        LetterCause::Skipped => "skipped",
        _ => "other",
    }
}
