//! A batch whose handler has returned.

use super::job::Unsettled;
use super::obligation::Envelope;
use crate::error::Failure;
use crate::types::Types;

/// The obligation of a message that is in a handler behind the first message of its batch.
pub(crate) struct BatchMember<T: Types> {
    pub(crate) envelope: Envelope<T>,
    pub(crate) kept: Option<T::Message>,
}

/// A batch that has not settled.
pub(crate) struct UnsettledBatch<T: Types> {
    pub(crate) first: Unsettled<T>,
    pub(crate) members: Vec<BatchMember<T>>,
    pub(crate) answer: Result<BatchAnswers<T>, Box<Failure<T::Error>>>,
}

/// One answer for each message of a batch.
type BatchAnswers<T> = Vec<Result<<T as Types>::Output, <T as Types>::Error>>;
