//! Keeps a dead letter: reads the record again, and writes it to the topic of the letters.

use std::collections::BTreeSet;
use std::time::Duration;

use keylane_connector::Why;
use keylane_source::{RawMessage, SourceError, SourceLetter};
use tokio::time::timeout;

use super::in_log::{InLog, LetterRead};
use super::job::job;
use super::state::KafkaSource;
use crate::core::KafkaPosition;
use crate::link::is_silence;
use crate::producer::Delivery;
use crate::record::{Keyless, Maker, Place};

/// The end of the error of a letter whose record was compacted, or cut off, after it was handed
/// over.
const GONE: &str = " (the record is no longer in the log)";

/// How long the driver of the source waits for a letter, unless another one is late already. The
/// other keys wait with it. A letter that is late is offered again.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

impl<M> KafkaSource<M> {
    /// Keeps a letter. Does not wait for brokers that are slow: the letter is offered again.
    pub(super) async fn keep_letter(
        &mut self,
        letter: SourceLetter<KafkaPosition>,
    ) -> Result<(), SourceError> {
        let position = letter.position;
        let is_any_late = !self.letters.is_empty();
        let mut delivery = match self.letters.remove(&position) {
            Some(delivery) => delivery,
            None => self.begin_letter(letter).await?,
        };
        if !is_any_late {
            let _ = timeout(ANSWER_WITHIN, delivery.answer()).await;
        }
        if let Some(answer) = delivery.try_answer() {
            return answer.clone().map(drop).map_err(SourceError::failed);
        }
        // The answer is asked for again when the letter is offered again. The letter of a partition
        // that is gone is never offered again.
        let assignment = &self.assignment;
        self.letters.retain(|of, _| assignment.of(of).is_some());
        self.letters.insert(position, delivery);
        Err(SourceError::pending())
    }

    async fn begin_letter(
        &mut self,
        letter: SourceLetter<KafkaPosition>,
    ) -> Result<Delivery, SourceError> {
        let Some(topic) = self.config.letters.clone() else {
            return Err(SourceError::unsupported("keep dead letters"));
        };
        let record = self.record_of(&letter.position).await?;
        let mut why = Why::from(letter);
        let record = match record {
            InLog::Record(record) => record,
            InLog::Gone(place) => {
                why.error.push_str(GONE);
                place
            }
        };
        let begun = topic.begin(&record, &why).await;
        begun.map_err(SourceError::failed)
    }

    /// Returns the record as it is in the log.
    async fn record_of(&mut self, position: &KafkaPosition) -> Result<InLog, SourceError> {
        let assignment = &self.assignment;
        // The letter of a partition that is gone is never offered again.
        let is_over = |read: &mut LetterRead| assignment.of(&read.of).is_none();
        self.letter_read.take_if(is_over);
        let (mut read, within) = match self.letter_read.take() {
            Some(read) => (read, Duration::ZERO),
            None => (self.read_letter(position)?, ANSWER_WITHIN),
        };
        if read.of == *position
            && let Ok(answer) = timeout(within, &mut read.job).await
        {
            let (reader, answer) = answer.map_err(SourceError::failed)?;
            self.reader = Some(reader);
            return answer.map_err(|error| match is_silence(&error) {
                // It is read again.
                true => SourceError::pending(),
                false => SourceError::failed(error),
            });
        }
        self.letter_read = Some(read);
        Err(SourceError::pending())
    }

    /// Begins to read the record of a letter.
    fn read_letter(&mut self, position: &KafkaPosition) -> Result<LetterRead, SourceError> {
        let gone = || SourceError::failed("the partition of the record is no longer assigned");
        let one = self.assignment.of(position).ok_or_else(gone)?;
        let (topic, number, name) = (
            one.topic.clone(),
            one.number,
            one.queue.records.name().to_owned(),
        );
        let offset = position.offset;
        let mut reader = self.take_reader()?;
        let job = job(move || {
            let mut found = None;
            let wanted = BTreeSet::from([offset]);
            let read = reader.read(&topic, number, &wanted, |_, record| {
                // The letter of a record without a key has none.
                found = Some(Maker::raw(Keyless::Unordered).make(&name, record));
            });
            reader.rest();
            let record = found.map(InLog::Record).unwrap_or_else(|| {
                let place = Place {
                    topic: &topic,
                    partition: number,
                    offset,
                };
                let mut record = RawMessage::new("");
                record.is_tombstone = true;
                record.id = Some(place.to_string().into());
                InLog::Gone(record)
            });
            (reader, read.map(|()| record))
        })?;
        let of = *position;
        Ok(LetterRead { of, job })
    }
}
