//! The errors of single dead letters.

use keylane_connector::ConfigError;
use keylane_connector::tls::TlsFailure;
use keylane_rt::text_in_debug;
use rdkafka::error::KafkaError;
use thiserror::Error;

use super::back::is_refusal;
use super::id::LetterId;
use crate::error::{KafkaSourceError, NAMES};
use crate::link::{MarkError, is_group_in_use, is_missing_topic, is_silence};
use crate::producer::SendError;

/// Why [`KafkaLetters`](crate::KafkaLetters) cannot do something.
#[non_exhaustive]
#[derive(Error)]
pub enum KafkaLettersError {
    /// An error in the settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The topic of the letters does not exist.
    #[error(
        "the topic `{topic}` of the dead letters does not exist: create it, or correct its name"
    )]
    NoTopic {
        /// The topic of the letters.
        topic: String,
    },
    /// The letters, or the marks of those that are done, cannot be read or written.
    #[error("the dead letters in `{topic}` cannot be read or marked as done: {why}")]
    Unreadable {
        /// The topic of the letters.
        topic: String,
        /// The message of the client.
        why: String,
    },
    /// The brokers refuse the user.
    #[error(
        "the brokers refuse the user, which needs `Read` permission for the topic `{topic}` and \
         the group `{group}`: {why}"
    )]
    NotAuthorized {
        /// The topic of the letters.
        topic: String,
        /// The group that marks what is done.
        group: String,
        /// The message of the client.
        why: String,
    },
    /// No broker can be reached, and with this one TLS fails.
    #[error("{broker}: no TLS: {failure}: {}", failure.advice(NAMES))]
    Tls {
        /// The host and the port.
        broker: String,
        /// What is wrong.
        failure: TlsFailure,
    },
    /// A [`Redrive`](crate::Redrive) of the same group runs, or it is the group of a consumer.
    /// Meanwhile the brokers take no marks from outside the group. No letter was sent.
    #[error(
        "the group `{group}` has members, so no letter can be marked as done: wait until the \
         redrive that runs has ended, or set another group if it is the one of a consumer"
    )]
    GroupInUse {
        /// The group that marks what is done.
        group: String,
    },
    /// There is no room for so many marks. No letter was sent.
    #[error(
        "the marks of the dead letters in `{topic}` need more than {most_chars} characters, or \
         than the brokers accept: redrive or purge the oldest letters of partition {} first, from \
         {oldest} on",
        oldest.partition
    )]
    MarksFull {
        /// The topic of the letters.
        topic: String,
        /// The first letter of the partition that is not done. Marks in a row from it on need no
        /// room.
        oldest: LetterId,
        /// The room, from [`metadata_chars`](crate::KafkaLetters::metadata_chars).
        most_chars: usize,
    },
    /// A letter did not go back. Those before it did, and are marked as done.
    #[error("the dead letter {id} did not go back, {redriven} before it did: {error}")]
    NotSent {
        /// The letter.
        id: LetterId,
        /// How many letters of this call went back before it.
        redriven: u64,
        /// The problem with it.
        #[source]
        error: SendError,
    },
    /// A letter does not name its topic. Those before it went back, and are marked as done.
    #[error(
        "the dead letter {id} does not name its topic, {redriven} before it went back: set one \
         with `to`, or purge it"
    )]
    NoOrigin {
        /// The letter.
        id: LetterId,
        /// How many letters of this call went back before it.
        redriven: u64,
    },
    /// Letters went back, and cannot be marked as done: the next redrive sends them again.
    #[error(
        "{unmarked} dead letters went back and cannot be marked as done, so they are still listed \
         and would go back again: purge them: {why}"
    )]
    Unmarked {
        /// How many letters of this call went back and are not marked.
        unmarked: u64,
        /// The problem with the marks.
        why: String,
    },
}

text_in_debug! {
    KafkaLettersError: Config, NoTopic, Unreadable, NotAuthorized, Tls, GroupInUse, MarksFull,
    NotSent, NoOrigin, Unmarked
}

/// The names in errors.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) topic: &'a str,
    pub(super) group: &'a str,
    pub(super) most_chars: usize,
}

impl KafkaLettersError {
    pub(super) fn of_client(error: &KafkaError, names: Names<'_>) -> Self {
        let (topic, group) = (names.topic.to_owned(), names.group.to_owned());
        match error {
            error if is_missing_topic(error) => Self::NoTopic { topic },
            error if is_group_in_use(error) => Self::GroupInUse { group },
            error if is_silence(error) => Self::Unreadable {
                topic,
                why: format!("{error}: check that the brokers answer at their addresses"),
            },
            _ => Self::of_words(error.to_string(), names),
        }
    }

    fn of_words(why: String, names: Names<'_>) -> Self {
        let (topic, group) = (names.topic.to_owned(), names.group.to_owned());
        match is_refusal(&why) {
            true => Self::NotAuthorized { topic, group, why },
            false => Self::Unreadable { topic, why },
        }
    }

    pub(super) fn of_marks(error: MarkError, names: Names<'_>) -> Self {
        match error {
            MarkError::Client(error) => Self::of_client(&error, names),
            MarkError::Refused(KafkaSourceError::Tls { broker, failure }) => {
                Self::Tls { broker, failure }
            }
            MarkError::Refused(error) => Self::of_words(error.to_string(), names),
            MarkError::Full((partition, offset)) => Self::MarksFull {
                topic: names.topic.to_owned(),
                oldest: LetterId { partition, offset },
                most_chars: names.most_chars,
            },
        }
    }

    /// Whether the same may succeed a moment later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::GroupInUse { .. } | Self::Unreadable { .. } | Self::Tls { .. }
        )
    }
}
