//! What errors show.

use std::fmt::{Debug, Display};

/// Asserts that errors show one text both ways: `Debug` is the text of `Display`, and at most the
/// name of the variant behind it.
///
/// Each line names a type and values of it. `tests/types/errors.rs` reads these tables, and demands
/// that each public error is in one.
///
/// # Panics
///
/// If an error shows its fields, or its text is not a lower-case fragment of one line.
///
/// # Examples
///
/// ```
/// use keylane::error::{ReserveError, ResizeError};
///
/// keylane_testkit::error_texts! {
///     ReserveError => ReserveError;
///     ResizeError => ResizeError::Zero, ResizeError::Closed;
/// }
/// ```
#[macro_export]
macro_rules! error_texts {
    ($($error:ty => $($value:expr),+ $(,)?;)+) => {
        $({
            let values: ::std::vec::Vec<$error> = ::std::vec![$($value),+];
            for value in &values {
                $crate::assert_text(value);
            }
        })+
    };
}

/// Asserts that one error shows one text both ways: see [`error_texts!`](crate::error_texts).
///
/// # Panics
///
/// If it does not.
#[track_caller]
pub fn assert_text<E: Display + Debug>(error: &E) {
    if let Err(wrong) = judge(&error.to_string(), &format!("{error:?}")) {
        panic!("{wrong}: {error}: `Debug` shows {error:?}");
    }
}

/// A text may begin with the name of a system.
const SYSTEMS: [&str; 5] = ["Kafka ", "MySQL ", "PostgreSQL ", "Redis ", "ZooKeeper "];

fn judge(text: &str, debug: &str) -> Result<(), &'static str> {
    let Some(behind) = debug.strip_prefix(text) else {
        return Err("an error needs `text_in_debug!`");
    };
    let is_variant = behind.starts_with(" (") && behind.ends_with(')');
    if !(behind.is_empty() || is_variant) || debug.contains(['{', '\n']) {
        return Err("an error shows its fields, or several lines");
    }
    let is_name = SYSTEMS.iter().any(|system| text.starts_with(system));
    let is_sentence = text.starts_with(char::is_uppercase) && !is_name;
    if text.is_empty() || is_sentence || text.ends_with('.') {
        return Err("the text of an error is a lower-case fragment without a full stop");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_show_something_else_are_found() {
        assert_eq!(judge("it is full", "it is full (Full)"), Ok(()));
        assert_eq!(judge("it is full", "it is full"), Ok(()));
        for debug in [
            "Full",
            "Full { by: 3 }",
            "it is full { by: 3 }",
            "it is fuller",
        ] {
            assert!(judge("it is full", debug).is_err(), "{debug}");
        }
        for text in ["It is full", "it is full.", "it is\nfull", ""] {
            assert!(judge(text, text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_errors_of_scripts_show_their_text() {
        use crate::{LetterRefused, ScriptError};
        crate::error_texts! {
            ScriptError => ScriptError::Error(7), ScriptError::Fatal(7);
            LetterRefused => LetterRefused(7);
        }
    }
}
