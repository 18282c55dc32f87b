//! Dead letters.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use keylane_source::LetterCause;

use crate::message::StoredMessage;
use crate::record::{self, DecodeError, Reader, Writer, from_millis};

/// A dead letter: a message whose handling failed for good, with the reason.
///
/// It keeps the sequence with which it was accepted: after a redrive it is ahead of all waiting
/// messages of its key.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The message as it was accepted.
    pub message: StoredMessage,
    /// How often its handler was started; 0 if it never was.
    pub attempts: u32,
    /// How the last attempt ended.
    pub kind: LetterKind,
    /// The error; cut to [`Letter::MAX_ERROR_BYTES`].
    pub error: String,
    /// When it became a letter, by the wall clock of that moment, in whole milliseconds.
    pub dead_lettered_at: SystemTime,
}

impl Letter {
    /// The most bytes of an error that a letter keeps.
    pub const MAX_ERROR_BYTES: usize = 4_096;

    /// Creates a letter, for a store of your own.
    pub fn new(
        message: StoredMessage,
        attempts: u32,
        kind: LetterKind,
        error: String,
        dead_lettered_at: SystemTime,
    ) -> Self {
        Self {
            message,
            attempts,
            kind,
            error,
            dead_lettered_at,
        }
    }

    /// Returns the start of an error, cut at a boundary of a character.
    pub fn cut_error(error: &str) -> &str {
        &error[..error.floor_char_boundary(Self::MAX_ERROR_BYTES)]
    }
}

/// The reason why a message became a dead letter.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LetterKind {
    /// The handler returned an error.
    Failed,
    /// The handler panicked.
    Panicked,
    /// The attempt took too long.
    TimedOut,
    /// The process died during the attempts.
    Crashed,
    /// The payload could not be decoded; there was no attempt.
    Undecodable,
    /// Versions before this one did not arrive in time; there was no attempt.
    Gap,
    /// The message was too old to be started, or to be tried again.
    Expired,
    /// An operator removed it.
    Operator,
    /// Another reason, or one of a newer version of this crate.
    Other,
}

impl LetterKind {
    const ALL: [(Self, u8, &'static str); 9] = [
        (Self::Other, 0, "other"),
        (Self::Failed, 1, "failed"),
        (Self::Panicked, 2, "panicked"),
        (Self::TimedOut, 3, "timed out"),
        (Self::Crashed, 4, "crashed"),
        (Self::Undecodable, 5, "undecodable"),
        (Self::Gap, 6, "gap"),
        (Self::Expired, 7, "expired"),
        (Self::Operator, 8, "operator"),
    ];

    fn row(self) -> (Self, u8, &'static str) {
        let row = Self::ALL.into_iter().find(|(kind, ..)| *kind == self);
        row.expect("every kind has a row")
    }

    /// Returns its number in a store, which never changes.
    pub fn code(self) -> u8 {
        self.row().1
    }

    /// Returns the kind of a number; [`Other`](Self::Other) if this version does not know it.
    pub fn from_code(code: u8) -> Self {
        let row = Self::ALL.into_iter().find(|(_, known, _)| *known == code);
        row.map_or(Self::Other, |(kind, ..)| kind)
    }
}

impl From<LetterCause> for LetterKind {
    fn from(cause: LetterCause) -> Self {
        match cause {
            LetterCause::Failed => Self::Failed,
            LetterCause::Panicked => Self::Panicked,
            LetterCause::TimedOut => Self::TimedOut,
            LetterCause::Crashed => Self::Crashed,
            LetterCause::Undecodable => Self::Undecodable,
            LetterCause::Gap => Self::Gap,
            LetterCause::Skipped => Self::Operator,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for LetterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().2)
    }
}

/// The details of a message that becomes a letter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending<'a> {
    pub(crate) attempts: u32,
    pub(crate) kind: LetterKind,
    pub(crate) error: &'a str,
    pub(crate) at_ms: u64,
}

// letter := version:u8=1 · kind:u8 · attempts:u32 · dead_lettered_at_ms:u64
//           · error_len:u32 · error · record_len:u32 · record · crc32:u32

/// Encodes a letter around the record of its message.
pub(crate) fn encode(sequence: u64, ending: Ending<'_>, record: &[u8]) -> Vec<u8> {
    let error = Letter::cut_error(ending.error);
    let mut letter = vec![0; 14 + 4 + error.len() + 4 + record.len() + 4];
    let mut writer = Writer { rest: &mut letter };
    writer.put(&[record::VERSION, ending.kind.code()]);
    writer.put(&ending.attempts.to_le_bytes());
    writer.put(&ending.at_ms.to_le_bytes());
    writer.long(error.as_bytes());
    writer.long(record);
    record::seal(sequence, &mut letter);
    letter
}

/// Decodes a letter. Never panics, like the decoder of records.
pub(crate) fn decode(sequence: u64, letter: Bytes) -> Result<Letter, DecodeError> {
    let parts = open(sequence, letter)?;
    Ok(Letter {
        message: record::decode(sequence, parts.record)?,
        attempts: parts.attempts,
        kind: parts.kind,
        error: String::from_utf8(parts.error.to_vec()).map_err(|_| DecodeError::Layout)?,
        dead_lettered_at: from_millis(parts.at_ms),
    })
}

/// Returns the record of the message in a letter.
pub(crate) fn record_of(sequence: u64, letter: Bytes) -> Result<Bytes, DecodeError> {
    Ok(open(sequence, letter)?.record)
}

struct Parts {
    kind: LetterKind,
    attempts: u32,
    at_ms: u64,
    error: Bytes,
    record: Bytes,
}

fn open(sequence: u64, letter: Bytes) -> Result<Parts, DecodeError> {
    match letter.first() {
        None => return Err(DecodeError::Short),
        Some(&record::VERSION) => {}
        Some(&version) => return Err(DecodeError::Version(version)),
    }
    let mut reader = Reader {
        rest: record::unseal(sequence, letter)?,
    };
    let [_, kind] = reader.array()?;
    let parts = Parts {
        kind: LetterKind::from_code(kind),
        attempts: reader.u32()?,
        at_ms: reader.u64()?,
        error: reader.long()?,
        record: reader.long()?,
    };
    match reader.rest.is_empty() {
        true => Ok(parts),
        false => Err(DecodeError::Layout),
    }
}

#[cfg(test)]
mod tests {
    use keylane_testkit::fuzz::{Target, about};
    use proptest::prelude::*;

    use super::*;
    use crate::message::NewMessage;

    fn letter(ending: Ending<'_>) -> Vec<u8> {
        let message = NewMessage::new("key", "payload").version(3);
        let mut record = vec![0; record::encoded_len(&message)];
        record::encode(7, 1_000, &message, &mut record);
        encode(7, ending, &record)
    }

    const ENDING: Ending<'static> = Ending {
        attempts: 5,
        kind: LetterKind::Crashed,
        error: "no answer",
        at_ms: 2_000,
    };

    #[test]
    fn what_is_encoded_is_decoded() {
        for (kind, ..) in LetterKind::ALL {
            let letter = decode(7, letter(Ending { kind, ..ENDING }).into()).unwrap();
            assert_eq!((letter.attempts, letter.kind), (5, kind));
            assert_eq!(letter.error, "no answer");
            assert_eq!(letter.dead_lettered_at, from_millis(2_000));
            assert_eq!(letter.message.version, Some(3));
            assert_eq!(letter.message.accepted_at, from_millis(1_000));
        }
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        let error = format!("a{}", "ä".repeat(4_000));
        let ending = Ending {
            error: &error,
            ..ENDING
        };
        let letter = decode(7, letter(ending).into()).unwrap();
        assert_eq!(letter.error.len(), Letter::MAX_ERROR_BYTES - 1);
        assert!(error.starts_with(&letter.error));
    }

    /// Corrects the checksums of a letter and of the record in it, where there are any.
    fn seal_both(letter: &mut [u8]) {
        let length = |letter: &[u8], at: usize| {
            let bytes = letter.get(at..)?.first_chunk()?;
            usize::try_from(u32::from_le_bytes(*bytes)).ok()
        };
        if let Some(error) = length(letter, 14)
            && let Some(bytes) = length(letter, 18 + error)
            && let Some(record) = letter.get_mut(22 + error..22 + error + bytes)
            && record.len() >= 4
        {
            record::seal(7, record);
        }
        if letter.len() >= 4 {
            record::seal(7, letter);
        }
    }

    #[test]
    fn fuzzed() {
        let look = |bytes: &[u8]| match decode(7, Bytes::copy_from_slice(bytes)) {
            Ok(letter) => {
                let message = letter.message.clone().into_new();
                let mut record = vec![0; record::encoded_len(&message)];
                let accepted_ms = record::to_millis(letter.message.accepted_at);
                record::encode(7, accepted_ms, &message, &mut record);
                let ending = Ending {
                    attempts: letter.attempts,
                    kind: letter.kind,
                    error: &letter.error,
                    at_ms: record::to_millis(letter.dead_lettered_at),
                };
                let again = encode(7, ending, &record);
                let answer = format!(
                    "{}, error {}, payload {}",
                    letter.kind,
                    about(letter.error.len()),
                    about(message.payload.len())
                );
                assert_eq!(decode(7, again.into()), Ok(letter));
                answer
            }
            Err(DecodeError::Version(_)) => "version".into(),
            // One that is not whole may have a record that is.
            Err(error) => {
                let record = record_of(7, Bytes::copy_from_slice(bytes));
                format!(
                    "{error:?}, record {:?}",
                    record.map(|record| about(record.len()))
                )
            }
        };
        let long = "e".repeat(300);
        let endings = [
            ENDING,
            Ending {
                error: "",
                ..ENDING
            },
            Ending {
                error: &long,
                ..ENDING
            },
        ];
        let target = Target {
            corpus: [env!("CARGO_MANIFEST_DIR"), "tests", "corpus", "letter"]
                .iter()
                .collect(),
            seeds: endings.map(letter).into(),
            seal: seal_both,
            look,
        };
        target.fuzz();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(decode(7, bytes.into()).is_err());
        }

        #[test]
        fn any_sealed_bytes_give_an_answer(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = vec![record::VERSION];
            bytes.extend(body);
            bytes.extend([0; 4]);
            record::seal(7, &mut bytes);
            // A kind of a newer version is no error, so some of them may be letters.
            let _ = decode(7, bytes.into());
        }

        #[test]
        fn a_flipped_bit_is_found(at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = letter(ENDING);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(7, bytes.into()).is_err());
        }
    }
}
