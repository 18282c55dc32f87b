//! The letters in a topic, and which of them a group has done, seen from outside the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keylane_connector::lock;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::context::committed;
use super::offset::offset;
use super::progress::metadata;
use super::reader::Reader;
use super::silent::{Failure, explain};
use crate::config::Config;
use crate::core::{Committed, Marks};
use crate::error::KafkaSourceError;

/// The timeout of one request.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// How long one call may wait for its records.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// How often letters are marked whose marks another process replaces.
const MARKED_AGAIN: usize = 5;

/// A commit replaces the marks that were read before it. So one at a time reads and replaces them.
static MARKING: Mutex<()> = Mutex::new(());

/// A partition and an offset.
pub(crate) type Spot = (i32, u64);

/// A client for the letters in a topic. Its calls block their thread.
pub(crate) struct LetterLog {
    reader: Reader,
    topic: Arc<str>,
    most_chars: usize,
}

/// A partition as it was at one moment.
struct Part {
    marks: Marks,
    /// One past the last readable record.
    end: u64,
}

/// Why letters are not marked as done.
pub(crate) enum MarkError {
    Client(KafkaError),
    /// No broker can be reached, because of TLS, or one refuses the user.
    Refused(KafkaSourceError),
    /// The metadata has no room for the marks of this partition. The first letter that is not done.
    Full(Spot),
}

impl From<KafkaError> for MarkError {
    fn from(error: KafkaError) -> Self {
        Self::Client(error)
    }
}

impl LetterLog {
    pub(crate) fn open(config: &Config, topic: &str) -> KafkaResult<Self> {
        Ok(Self {
            reader: Reader::new(config)?,
            topic: topic.into(),
            most_chars: config.settings.metadata_chars,
        })
    }

    /// Returns what a broker has said, if a request had no answer because of that.
    pub(crate) fn explain(&self, error: MarkError) -> MarkError {
        match error {
            MarkError::Client(error) => match explain(&self.reader.consumer, error) {
                Failure::Client(error) => MarkError::Client(error),
                Failure::Refused(error) => MarkError::Refused(error),
            },
            known => known,
        }
    }

    /// Reads at most so many letters that are not done, behind this one: partition by partition, as
    /// far as each was written when its turn comes.
    pub(crate) fn list(
        &mut self,
        after: Option<Spot>,
        most: usize,
        mut found: impl FnMut(Spot, &BorrowedMessage<'_>),
    ) -> KafkaResult<()> {
        let (first, from) = after.map_or((0, 0), |(number, at)| (number, at.saturating_add(1)));
        let numbers = self.partitions()?;
        let numbers: Vec<_> = numbers.into_iter().filter(|it| *it >= first).collect();
        let mut left = most;
        for (number, committed) in self.committed(&numbers)? {
            if left == 0 {
                break;
            }
            let Part { marks, end } = self.part(number, committed)?;
            let from = marks.next_open(if number == first { from } else { 0 });
            let (place, until) = ((&self.topic, number), Instant::now() + READ_WITHIN);
            self.reader.scan(place, from..end, until, |at, record| {
                if !marks.is_done(at) {
                    found((number, at), record);
                    left -= 1;
                }
                (left > 0).then(|| marks.next_open(at + 1))
            })?;
        }
        self.reader.rest();
        Ok(())
    }

    /// Reads those of these letters that are there, in any order.
    pub(crate) fn read(
        &mut self,
        spots: &[Spot],
        mut found: impl FnMut(Spot, &BorrowedMessage<'_>),
    ) -> KafkaResult<()> {
        for (number, offsets) in by_partition(spots) {
            let read = |at, record: &BorrowedMessage<'_>| found((number, at), record);
            self.reader.read(&self.topic, number, &offsets, read)?;
        }
        self.reader.rest();
        Ok(())
    }

    /// Returns those of these spots that are in the log and not done, each once.
    pub(crate) fn open_ones(&mut self, spots: &[Spot]) -> KafkaResult<Vec<Spot>> {
        Ok(self.of_open_ones(spots)?.0)
    }

    /// Does the same, and finds out whether they can be marked: in this order, the first, the first
    /// two, and so on. The group must take commits, and the metadata must have room.
    pub(crate) fn markable_ones(&mut self, spots: &[Spot]) -> Result<Vec<Spot>, MarkError> {
        let (open, mut parts) = self.of_open_ones(spots)?;
        for (number, at) in &open {
            if let Some(part) = parts.get_mut(number) {
                part.marks = part.marks.with([*at]);
                if !part.marks.fit(self.most_chars) {
                    return Err(self.full(*number));
                }
            }
        }
        if let Some((number, _)) = open.first() {
            // A commit that changes nothing. The group takes it for each partition or for none.
            self.mark_in(*number, &BTreeSet::new())?;
        }
        Ok(open)
    }

    /// Marks letters as done, in addition to those that are.
    pub(crate) fn mark(&mut self, spots: &[Spot]) -> Result<(), MarkError> {
        // One by one: for several at once the client reports only that none was taken.
        for (number, offsets) in by_partition(spots) {
            self.mark_in(number, &offsets)?;
        }
        self.reader.rest();
        Ok(())
    }

    fn mark_in(&mut self, number: i32, offsets: &BTreeSet<u64>) -> Result<(), MarkError> {
        let _alone = lock(&MARKING);
        let part = self.part_now(number)?;
        let marks = part.marks.with(offsets.iter().copied());
        let first = self.first_open(number, &marks, part.end)?;
        for _ in 0..MARKED_AGAIN {
            // Another process may have marked letters since, and may replace these marks before it
            // sees them. So they are read right before the commit, and after it.
            let marks = self.part_now(number)?.marks;
            let marks = marks.with(offsets.iter().copied()).passed(first);
            self.commit(number, &marks)?;
            let kept = self.part_now(number)?.marks;
            if offsets.iter().all(|offset| kept.is_done(*offset)) {
                return Ok(());
            }
        }
        Err(KafkaError::ConsumerCommit(Code::RequestTimedOut).into())
    }

    fn commit(&mut self, number: i32, marks: &Marks) -> Result<(), MarkError> {
        let Some(text) = marks.metadata(self.most_chars) else {
            return Err(MarkError::Full((number, marks.from())));
        };
        let mut list = TopicPartitionList::with_capacity(1);
        let mut element = list.add_partition(&self.topic, number);
        element.set_offset(offset(marks.from()))?;
        if !text.is_empty() {
            element.set_metadata(&text);
        }
        let taken = self.reader.consumer.commit(&list, CommitMode::Sync);
        taken.map_err(|error| match error.rdkafka_error_code() {
            // The brokers accept less.
            Some(Code::OffsetMetadataTooLarge) => MarkError::Full((number, marks.from())),
            _ => MarkError::Client(error),
        })
    }

    /// Returns the offset of the first letter that is not done. The log may have gaps before it.
    fn first_open(&mut self, number: i32, marks: &Marks, end: u64) -> KafkaResult<u64> {
        let until = Instant::now() + READ_WITHIN;
        // Without a record behind it, it is not known whether a gap is one: the broker may be a new
        // leader that does not know yet how far the log is written.
        let mut first = marks.from();
        let place = (&self.topic, number);
        self.reader.scan(place, first..end, until, |at, _| {
            first = marks.next_open(at);
            (first > at).then_some(first)
        })?;
        Ok(first)
    }

    fn of_open_ones(&mut self, spots: &[Spot]) -> KafkaResult<(Vec<Spot>, BTreeMap<i32, Part>)> {
        let there = BTreeSet::from_iter(self.partitions()?);
        let numbers = by_partition(spots).into_keys();
        let numbers: Vec<_> = numbers.filter(|number| there.contains(number)).collect();
        let mut parts = BTreeMap::new();
        for (number, committed) in self.committed(&numbers)? {
            parts.insert(number, self.part(number, committed)?);
        }
        let is_open = |(number, at): &Spot| {
            let part: Option<&Part> = parts.get(number);
            part.is_some_and(|part| *at < part.end && !part.marks.is_done(*at))
        };
        let mut seen = BTreeSet::new();
        let open = spots.iter().filter(|spot| is_open(spot));
        let open = open.filter(|spot| seen.insert(**spot)).copied().collect();
        Ok((open, parts))
    }

    fn full(&mut self, number: i32) -> MarkError {
        let oldest = self.part_now(number).and_then(|part| {
            let first = self.first_open(number, &part.marks, part.end)?;
            Ok(MarkError::Full((number, first)))
        });
        oldest.unwrap_or_else(MarkError::Client)
    }

    fn partitions(&self) -> KafkaResult<Vec<i32>> {
        let all = metadata(&self.reader.consumer, &self.topic)?;
        let mut numbers = Vec::new();
        for topic in all.topics() {
            if let Some(error) = topic.error() {
                return Err(KafkaError::MetadataFetch(error.into()));
            }
            numbers.extend(topic.partitions().iter().map(|partition| partition.id()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn committed(&self, numbers: &[i32]) -> KafkaResult<BTreeMap<i32, Committed>> {
        if numbers.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut list = TopicPartitionList::with_capacity(numbers.len());
        for number in numbers {
            list.add_partition(&self.topic, *number);
        }
        let said = self.reader.consumer.committed_offsets(list, ASKED_FOR)?;
        let elements = said.elements();
        let each = elements.iter();
        each.map(|one| Ok((one.partition(), committed(one)?)))
            .collect()
    }

    fn part(&self, number: i32, committed: Committed) -> KafkaResult<Part> {
        let consumer = &self.reader.consumer;
        let (first, end) = consumer.fetch_watermarks(&self.topic, number, ASKED_FOR)?;
        Ok(Part {
            marks: Marks::new(committed, first.max(0).unsigned_abs()),
            end: end.max(0).unsigned_abs(),
        })
    }

    fn part_now(&self, number: i32) -> KafkaResult<Part> {
        let committed = self.committed(&[number])?.remove(&number);
        self.part(number, committed.unwrap_or(Committed::Nothing))
    }
}

fn by_partition(spots: &[Spot]) -> BTreeMap<i32, BTreeSet<u64>> {
    let mut all = BTreeMap::<_, BTreeSet<_>>::new();
    for (number, at) in spots {
        all.entry(*number).or_default().insert(*at);
    }
    all
}
