//! Partitions that the group has assigned, and whose start is not known yet.

use std::sync::Arc;
use std::time::Duration;

use keylane_source::SourceError;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use super::failures::Trouble;
use super::intake::PartitionIntake;
use super::{KafkaSource, not_open};
use crate::client::{Answered, Answers, Found, Rules, ask_for_starts};
use crate::control::Overtaken;
use crate::partition::Start;
use crate::start::Begin;

/// The pause before the start of a partition is asked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The partitions that are not read yet. A partition that waits does not hold up the others.
pub(super) struct Starting {
    all: Vec<Waiting>,
    answers: Answers,
    answered: UnboundedReceiver<Answered>,
}

struct Waiting {
    topic: Arc<str>,
    number: i32,
    overtaken: Option<Overtaken>,
    /// When to ask again. `None`: a request is in progress.
    again: Option<(Instant, Found)>,
}

/// The public state of one of them.
pub(super) struct Seen<'a> {
    pub(super) topic: &'a str,
    pub(super) number: i32,
    pub(super) overtaken: Option<Overtaken>,
}

impl Starting {
    pub(super) fn new(wake: &Arc<Notify>) -> Self {
        let (to, answered) = unbounded_channel();
        Self {
            all: Vec::new(),
            answers: Answers {
                to,
                wake: Arc::clone(wake),
            },
            answered,
        }
    }

    /// Forgets these partitions, which the group has taken or got back.
    pub(super) fn forget(&mut self, places: &[(String, i32)]) {
        let is_it = |one: &Waiting, (topic, number): &(String, i32)| {
            **topic == *one.topic && *number == one.number
        };
        self.all
            .retain(|one| !places.iter().any(|place| is_it(one, place)));
    }

    pub(super) fn seen(&self) -> impl Iterator<Item = Seen<'_>> {
        self.all.iter().map(|one| Seen {
            topic: &one.topic,
            number: one.number,
            overtaken: one.overtaken,
        })
    }

    /// When the next of them is to be asked for again.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let times = self.all.iter().filter_map(|one| one.again.as_ref());
        times.map(|(at, _)| *at).min()
    }

    /// Takes the partitions that are to be asked for again now.
    fn due(&mut self, now: Instant) -> Vec<Found> {
        let is_due = |again: &mut (Instant, Found)| again.0 <= now;
        let due = self.all.iter_mut();
        let due = due.filter_map(|one| one.again.take_if(is_due));
        due.map(|(_, found)| found).collect()
    }

    /// Returns the partition that an answer is about. `None`: it has left meanwhile.
    fn place_of(&self, found: &Found) -> Option<usize> {
        if !found.ownership.lasts() {
            return None;
        }
        let is_it = |one: &Waiting| one.topic == found.topic && one.number == found.number;
        self.all.iter().position(is_it)
    }
}

impl<M> KafkaSource<M> {
    /// Begins with the partitions that the group has assigned.
    pub(super) fn begin(&mut self, found: Vec<Found>) -> Result<(), SourceError> {
        let place = |one: &Found| (one.topic.to_string(), one.number);
        let places: Vec<_> = found.iter().map(place).collect();
        // A partition of the same name that is still here was lost without notice.
        self.starting.forget(&places);
        self.lost.extend(self.assignment.lose(&places));
        let waiting = found.iter().map(|one| Waiting {
            topic: Arc::clone(&one.topic),
            number: one.number,
            overtaken: None,
            again: None,
        });
        self.starting.all.extend(waiting);
        self.ask(found)
    }

    fn ask(&mut self, found: Vec<Found>) -> Result<(), SourceError> {
        if found.is_empty() {
            return Ok(());
        }
        let rules = Rules {
            at_end: self.at_end.clone().unwrap_or_default(),
            on_overtaken: self.config.settings.on_overtaken,
            outdated: self.commits.outdated(),
        };
        let answers = self.starting.answers.clone();
        let asked = ask_for_starts(self.consumer()?, found, rules, answers);
        asked.map_err(SourceError::failed)
    }

    /// Begins to read the partitions whose start is known by now, and asks again for others.
    pub(super) fn follow_starts(&mut self) -> Result<(), SourceError> {
        while let Ok(Answered { found, begin }) = self.starting.answered.try_recv() {
            let Some(place) = self.starting.place_of(&found) else {
                continue;
            };
            let name = format!("{}/{}", found.topic, found.number);
            let why = match begin {
                Ok(Begin::At(start, overtaken)) => {
                    self.starting.all.swap_remove(place);
                    self.failures.recover(&name, Trouble::Unread);
                    if let Some(overtaken) = overtaken {
                        warn(&name, overtaken, start.at);
                    }
                    self.read(found, start, overtaken)?;
                    self.publish();
                    continue;
                }
                Ok(Begin::Halted(overtaken)) => {
                    self.starting.all[place].overtaken = Some(overtaken);
                    let Overtaken {
                        committed,
                        log_start,
                    } = overtaken;
                    format!(
                        "retention has overtaken it: {committed} is committed, and its log begins at \
                         {log_start}. Set the offset of the group to one that is there, or change \
                         `on_overtaken`"
                    )
                }
                Err(why) => why,
            };
            self.failures.fail(&name, Trouble::Unread, why);
            let again = Instant::now() + AGAIN_AFTER;
            self.starting.all[place].again = Some((again, found));
        }
        let due = self.starting.due(Instant::now());
        self.ask(due)
    }

    fn read(
        &mut self,
        found: Found,
        start: Start,
        overtaken: Option<Overtaken>,
    ) -> Result<(), SourceError> {
        let Found {
            topic,
            number,
            queue,
            ownership,
            ..
        } = found;
        let place = (topic.to_string(), number);
        let prefetcher = self.prefetcher.as_ref().ok_or_else(not_open)?;
        let intake = PartitionIntake {
            records: prefetcher.read(queue, &topic, number),
            ownership,
            overtaken,
            unread: None,
            is_sought_again: false,
            is_paused: self.control.paused().contains(&place),
        };
        self.lost
            .extend(self.assignment.assign(topic, number, start, intake));
        Ok(())
    }
}

fn warn(partition: &str, overtaken: Overtaken, begins_at: u64) {
    let Overtaken {
        committed,
        log_start,
    } = overtaken;
    tracing::warn!(
        target: "keylane",
        partition,
        committed,
        log_start,
        begins_at,
        "retention has overtaken what is committed: records were deleted before they were handled"
    );
}
