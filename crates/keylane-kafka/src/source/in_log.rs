//! The record of a letter, as it is read from the log.

use keylane_source::RawMessage;
use rdkafka::error::KafkaResult;

use crate::core::KafkaPosition;
use crate::link::{Job, Reader};

/// The entry of the log at an offset.
pub(super) enum InLog {
    Record(RawMessage),
    /// No record any more: this message has only the place.
    Gone(RawMessage),
}

/// The read of the record of a letter. One is in progress at a time.
pub(super) struct LetterRead {
    pub(super) of: KafkaPosition,
    pub(super) job: Job<(Reader, KafkaResult<InLog>)>,
}
