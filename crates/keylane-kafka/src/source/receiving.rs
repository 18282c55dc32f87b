//! Waits for records and for news of the group.

use std::sync::Arc;
use std::time::Duration;

use keylane_source::{Deliveries, Received, SourceError};
use rdkafka::error::KafkaResult;
use tokio::time::{Instant, sleep_until};

use super::failures::Trouble;
use super::inspection::Inspection;
use super::intake::Taken;
use super::job::{finished, job};
use super::probe::{Probed, probe};
use super::state::KafkaSource;
use super::status::PUBLISH_EVERY;
use super::unavailable::Found;
use crate::core::KafkaPosition;
use crate::core::{Start, TopicSettings};
use crate::link::{Answer, Job, Prefetcher};
use crate::producer::SendError;

/// Most records that one call hands over, so that news of the group is heard in between.
const AT_ONCE: usize = 2_048;

/// Fewest records that one partition is asked for, with any number of partitions.
const FEWEST_OF_ONE: usize = 64;

/// The pause before a silent leader is asked again.
const PROBE_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The end of a wait.
enum Waited {
    /// There is a record or news.
    Woken,
    Committed(Answer),
    /// The availability of the topics.
    Looked(KafkaResult<Found>),
    /// Whether the topic of the letters takes them.
    LettersLooked(Result<(), SendError>),
    /// The settings of the topics.
    Inspected(KafkaResult<Vec<TopicSettings>>),
    /// The brokers have answered, or have not.
    Probed(KafkaResult<Probed>),
    Time,
}

impl<M> KafkaSource<M> {
    pub(super) async fn next(
        &mut self,
        into: &mut Deliveries<M, KafkaPosition>,
    ) -> Result<Received<KafkaPosition>, SourceError> {
        let called_at = Instant::now();
        let until = into.until();
        // So that the answer arrives in time.
        let mut probe_at = called_at + until.saturating_duration_since(called_at) / 2;
        loop {
            if let Some(received) = self.follow_news().await? {
                return Ok(received);
            }
            self.follow_pauses();
            self.follow_starts()?;
            let consumer = self.consumer()?;
            self.unavailable.ask_if_due(consumer, &self.config)?;
            self.letter_topic.ask_if_due(self.config.letters.as_ref())?;
            self.inspect_if_due()?;
            if self.failures.tell(into) {
                self.publish();
                return Ok(Received::Messages);
            }
            self.follow_commit()?;
            self.commit_if_due()?;
            if self.rewind_at.is_some_and(|at| at <= Instant::now()) {
                self.rewind_at = None;
                let generations = self.assignment.rewind();
                if !generations.is_empty() {
                    return Ok(Received::Revoked(generations));
                }
            }
            self.publish_if_due(Instant::now());
            if self.take(into)? {
                return Ok(match self.lost.is_empty() {
                    true => Received::Messages,
                    false => Received::Lost(std::mem::take(&mut self.lost)),
                });
            }
            match self.wait(probe_at).await? {
                Waited::Woken | Waited::Time => {}
                Waited::Committed(answer) => drop(self.follow_answer(answer)),
                Waited::Looked(found) => {
                    let failures = &mut self.failures;
                    self.unavailable.follow(found, &self.config, failures)?;
                }
                Waited::LettersLooked(answer) => {
                    let letters = self.config.letters.as_ref();
                    self.letter_topic
                        .follow(answer, letters, &mut self.failures);
                }
                Waited::Probed(Ok(_)) if !self.is_read() => {
                    // As if no broker had answered.
                    let what = "no records are read: the function that makes a message of a record \
                                does not return";
                    if self.said.hear(what, Instant::now()).is_some() {
                        tracing::warn!(target: "keylane", "{what}");
                    }
                    probe_at = Instant::now() + PROBE_AGAIN_AFTER;
                }
                Waited::Inspected(found) => {
                    Inspection::follow(found, self.config.brokers());
                }
                // The source is well, but one of its partitions is not.
                Waited::Probed(Ok(Probed::Silent(name, why))) => {
                    self.failures.fail(&name, Trouble::Silent, why);
                    self.failures.tell(into);
                    self.publish();
                    return Ok(Received::Idle);
                }
                Waited::Probed(Ok(Probed::Well(name))) => {
                    if let Some(name) = name {
                        self.failures.recover(&name, Trouble::Silent);
                    }
                    if let Some(reader) = &mut self.reader {
                        reader.rest();
                    }
                    return Ok(Received::Idle);
                }
                // They are asked again. Until they answer, the source does not report that it is
                // well.
                Waited::Probed(Err(error)) => {
                    let what = "the broker does not answer, will retry";
                    if self.said.hear(what, Instant::now()).is_some() {
                        tracing::warn!(target: "keylane", %error, "{what}");
                    }
                    probe_at = Instant::now() + PROBE_AGAIN_AFTER;
                }
            }
        }
    }

    fn follow_pauses(&mut self) {
        let changes = self.control.changes();
        if changes == self.pauses_seen {
            return;
        }
        self.pauses_seen = changes;
        let paused = self.control.paused();
        for one in self.assignment.iter_mut() {
            one.queue.is_paused = paused.contains(&(one.topic.to_string(), one.number));
        }
        self.publish();
    }

    /// Hands over the ready records as far as there is room. Returns whether anything has happened.
    fn take(&mut self, into: &mut Deliveries<M, KafkaPosition>) -> Result<bool, SourceError> {
        let slots = self.assignment.slots();
        let mut left = into.room().min(AT_ONCE);
        if slots == 0 || left == 0 || self.assignment.is_ahead_of_commits(Instant::now()) {
            return Ok(false);
        }
        let of_one = (left / slots).max(FEWEST_OF_ONE);
        let mut has_looked = false;
        let mut back = None;
        let mut rewinds = false;
        for step in 0..slots {
            if left == 0 {
                break;
            }
            let slot = (self.first + step) % slots;
            let Some(assigned) = self.assignment.get_mut(slot as u32) else {
                continue;
            };
            let most = of_one.min(left);
            let taken = assigned.take(slot as u32, most, into);
            match taken {
                Taken::Some(looked) => {
                    left -= looked;
                    has_looked |= looked > 0;
                    let name = assigned.queue.records.name();
                    if looked > 0 && self.failures.any() {
                        self.failures.recover(name, Trouble::Unread);
                    }
                    if let Some(why) = assigned.queue.unread.take() {
                        let why = self.config.unread(name, why);
                        self.failures.fail(name, Trouble::Unread, why);
                        has_looked = true;
                    }
                }
                Taken::Again => {
                    rewinds = true;
                    has_looked = true;
                }
                Taken::Back(at) => {
                    back = Some((slot as u32, at));
                    break;
                }
                Taken::Failed(what) => return Err(SourceError::failed(what)),
            }
        }
        self.first = (self.first + 1) % slots;
        if rewinds {
            self.rewind_soon();
        }
        if let Some((slot, at)) = back {
            self.begin_anew(slot, at);
            has_looked = true;
        }
        Ok(has_looked)
    }

    /// Begins again in a partition whose log was cut off below the position of the source, or is
    /// another log. The records of the old log are over.
    fn begin_anew(&mut self, slot: u32, at: u64) {
        let Some(assigned) = self.assignment.get_mut(slot) else {
            return;
        };
        tracing::warn!(
            target: "keylane",
            partition = assigned.queue.records.name(),
            read_to = assigned.partition.end(),
            offset = at,
            "the log was truncated, or the topic was created again: will continue at this lower \
             offset"
        );
        let start = Start {
            at,
            ..Start::default()
        };
        self.restart_partition(slot, start);
    }

    async fn wait(&mut self, probe_at: Instant) -> Result<Waited, SourceError> {
        let now = Instant::now();
        if self.probing.is_none() && now >= probe_at {
            self.probing = Some(self.probe()?);
        }
        let mut wake_at = now + PUBLISH_EVERY;
        if self.probing.is_none() {
            wake_at = wake_at.min(probe_at);
        }
        if self.committing.is_none() && self.assignment.unsaid() > 0 {
            wake_at = wake_at.min(self.commit_at.max(now + Duration::from_millis(1)));
        }
        for at in [
            self.rewind_at,
            self.starting.wake_at(),
            self.unavailable.at,
            self.letter_topic.at,
            self.inspection.wake_at(),
        ] {
            wake_at = at.map_or(wake_at, |at| wake_at.min(at));
        }
        let wake = Arc::clone(&self.wake);
        tokio::select! {
            biased;
            answer = finished(&mut self.committing) => Ok(Waited::Committed(answer?)),
            found = finished(&mut self.unavailable.asked) => Ok(Waited::Looked(found?)),
            answer = finished(&mut self.letter_topic.asked) => Ok(Waited::LettersLooked(answer?)),
            found = finished(&mut self.inspection.asked) => Ok(Waited::Inspected(found?)),
            answer = finished(&mut self.probing) => Ok(Waited::Probed(answer?)),
            () = wake.notified() => Ok(Waited::Woken),
            () = self.control.changed() => Ok(Waited::Woken),
            () = sleep_until(wake_at) => Ok(Waited::Time),
        }
    }

    /// Sends a request to the brokers, and one to the leader of a partition, another one each time.
    /// Without it a broker that keeps a connection open and never answers is not detected.
    fn probe(&mut self) -> Result<Job<KafkaResult<Probed>>, SourceError> {
        let consumer = self.consumer()?;
        let count = self.assignment.iter().count().max(1);
        self.probed = (self.probed + 1) % count;
        let one = self.assignment.iter().nth(self.probed);
        let place = one.map(|one| (Arc::clone(&one.topic), one.number));
        job(move || probe(&consumer, place))
    }

    /// Whether the thread has looked at all partitions since the source was last well.
    fn is_read(&mut self) -> bool {
        let rounds = self.prefetcher.as_ref().map(Prefetcher::rounds);
        std::mem::replace(&mut self.rounds_seen, rounds) != rounds
    }
}
