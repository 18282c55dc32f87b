//! Dead letters.

use std::fmt;

use bytes::Bytes;
use keylane_source::{DeadLetter, LetterCause, RawLetter, SourceLetter};

/// The longest error text in a letter, in characters: the beginning of an error says the most.
const MOST_CHARS: usize = 2_000;

/// The reason of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// How many attempts its handler had.
    pub attempts: u32,
    /// The reason, in one word.
    pub cause: LetterCause,
    /// The text of the error.
    pub error: String,
}

impl Why {
    /// Returns the headers `keylane.attempts`, `keylane.cause` and `keylane.error`. The error is
    /// cut to 2,000 characters.
    pub fn headers(&self) -> Vec<(String, Bytes)> {
        let error: String = self.error.chars().take(MOST_CHARS).collect();
        let header = |name: &str, value: String| (format!("keylane.{name}"), value.into());
        vec![
            header("attempts", self.attempts.to_string()),
            header("cause", self.cause.to_string()),
            header("error", error),
        ]
    }
}

impl<P> From<SourceLetter<P>> for Why {
    fn from(letter: SourceLetter<P>) -> Self {
        Self {
            attempts: letter.attempts,
            cause: letter.cause,
            error: letter.why,
        }
    }
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

/// Makes a type a sink of both kinds of dead letters: of messages that cannot be decoded
/// ([`RawLetterSink`]), and of raw messages whose handler has failed (`DeadLetterSink`). The method
/// that is named writes the letter of a raw message.
///
/// ```
/// use keylane_connector::{Why, letter_sinks};
/// use keylane_source::{BoxError, RawMessage};
///
/// /// Prints letters.
/// struct Printer;
///
/// impl Printer {
///     async fn write(&self, message: &RawMessage, why: &Why) -> Result<(), BoxError> {
///         println!("{:?}: {}", message.payload, why.error);
///         Ok(())
///     }
/// }
///
/// letter_sinks!(Printer, write);
/// ```
///
/// [`RawLetterSink`]: keylane_source::RawLetterSink
#[macro_export]
macro_rules! letter_sinks {
    ($(#[$doc:meta])* $sink:ty, $write:ident) => {
        $(#[$doc])*
        #[$crate::__private::async_trait]
        impl $crate::__private::RawLetterSink for $sink {
            async fn accept(
                &self,
                letter: &$crate::__private::RawLetter,
            ) -> Result<(), $crate::__private::BoxError> {
                Ok(self.$write(&letter.raw, &letter.into()).await?)
            }
        }

        /// The same for raw messages whose handler has failed.
        #[$crate::__private::async_trait]
        impl<K, E> $crate::__private::DeadLetterSink<K, $crate::__private::RawMessage, E> for $sink
        where
            K: Send + Sync,
            E: ::std::fmt::Debug + Send + Sync,
        {
            async fn accept(
                &self,
                letter: &$crate::__private::DeadLetter<K, $crate::__private::RawMessage, E>,
            ) -> Result<(), $crate::__private::BoxError> {
                Ok(self.$write(&letter.message, &letter.into()).await?)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_are_text_and_a_long_error_is_cut() {
        let why = Why {
            attempts: 3,
            cause: LetterCause::TimedOut,
            error: "é".repeat(MOST_CHARS + 1),
        };
        let headers = why.headers();
        let value = |at: usize| std::str::from_utf8(&headers[at].1).expect("text");
        assert_eq!((value(0), value(1)), ("3", "timed out"));
        assert_eq!(value(2).chars().count(), MOST_CHARS);
        assert_eq!(headers[2].0, "keylane.error");
    }
}
