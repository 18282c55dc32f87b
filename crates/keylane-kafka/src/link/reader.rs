//! Reads single records again, with a consumer of its own that joins no group.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::offset::offset;
use super::silent::Silent;
use crate::config::Config;

/// A gap of at most this many offsets is read and dropped instead of skipped: a seek costs a
/// request.
const NEAR: u64 = 2_000;

/// How long one call may wait for its records.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// How long one look at the queue may take.
const POLL: Duration = Duration::from_millis(100);

pub(crate) struct Reader {
    pub(super) consumer: BaseConsumer<Silent>,
    /// The partition that is read, and the next offset.
    place: Option<(Arc<str>, i32, u64)>,
    /// The client reads ahead, or asks again and again for what comes at the end of the log.
    is_assigned: bool,
}

impl Reader {
    pub(crate) fn new(config: &Config) -> KafkaResult<Self> {
        let client = config.reader();
        Ok(Self {
            consumer: client.create_with_context(Silent::new(&client))?,
            place: None,
            is_assigned: false,
        })
    }

    /// Reads these records of a partition, in ascending order. Leaves out records that are no
    /// longer in the log. Blocks the thread.
    pub(crate) fn read(
        &mut self,
        topic: &Arc<str>,
        number: i32,
        offsets: &BTreeSet<u64>,
        mut found: impl FnMut(u64, &BorrowedMessage<'_>),
    ) -> KafkaResult<()> {
        let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
            return Ok(());
        };
        let until = Instant::now() + READ_WITHIN;
        self.scan((topic, number), *first..*last + 1, until, |at, message| {
            if offsets.contains(&at) {
                found(at, message);
            }
            // Offsets that the log has skipped have no record.
            offsets.range(at + 1..).next().copied()
        })
    }

    /// Reads the records of a partition in this range. After each one, `take` says from which
    /// offset on to look for the next one; `None`: it needs no more. Blocks the thread.
    pub(super) fn scan(
        &mut self,
        (topic, number): (&Arc<str>, i32),
        range: Range<u64>,
        until: Instant,
        mut take: impl FnMut(u64, &BorrowedMessage<'_>) -> Option<u64>,
    ) -> KafkaResult<()> {
        let mut next = range.start;
        while next < range.end {
            self.go_to(topic, number, next)?;
            match self.consumer.poll(POLL) {
                None if Instant::now() >= until => {
                    self.place = None;
                    return Err(KafkaError::NoMessageReceived);
                }
                None => {}
                Some(Ok(message)) => {
                    let at = message.offset().max(0).unsigned_abs();
                    self.place = Some((Arc::clone(topic), number, at + 1));
                    if at >= range.end {
                        return Ok(());
                    }
                    // Records before it come again and again if the log ends before it.
                    if at < next && Instant::now() >= until {
                        return Err(KafkaError::NoMessageReceived);
                    }
                    if at >= next {
                        let Some(further) = take(at, &message) else {
                            return Ok(());
                        };
                        next = further;
                    }
                }
                // The log ends before them.
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    self.place = None;
                    return Ok(());
                }
                Some(Err(error)) => {
                    self.place = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Stops reading ahead: at the end of a log that is one request after the other.
    pub(crate) fn rest(&mut self) {
        self.place = None;
        if std::mem::take(&mut self.is_assigned) {
            // It fails only without a consumer.
            let _ = self.consumer.unassign();
        }
    }

    /// Continues at this offset.
    fn go_to(&mut self, topic: &Arc<str>, number: i32, at: u64) -> KafkaResult<()> {
        if let Some((topic_now, number_now, next)) = &self.place
            && (topic_now, *number_now) == (topic, number)
            && (*next..*next + NEAR).contains(&at)
        {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, number, offset(at))?;
        self.is_assigned = true;
        self.consumer.assign(&list)?;
        self.place = Some((Arc::clone(topic), number, at));
        Ok(())
    }
}
