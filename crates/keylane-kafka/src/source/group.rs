//! Follows the group: the partitions that it assigns and takes back.

use std::sync::Arc;
use std::time::Duration;

use keylane_source::{Received, SourceError};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::Instant;

use super::failures::Trouble;
use super::intake::PartitionIntake;
use super::job::{blocking, job};
use super::starting::Waiting;
use super::state::{KafkaSource, not_open};
use crate::control::Overtaken;
use crate::core::Begin;
use crate::core::KafkaPosition;
use crate::core::Start;
use crate::error::KafkaSourceError;
use crate::link::{Answered, Found, News, Rules, ask_for_starts, is_name_taken};

/// The pause before the start of a partition is asked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

impl<M> KafkaSource<M> {
    /// Processes the news of the session.
    pub(super) async fn follow_news(
        &mut self,
    ) -> Result<Option<Received<KafkaPosition>>, SourceError> {
        loop {
            if !self.lost.is_empty() {
                let lost = std::mem::take(&mut self.lost);
                return Ok(Some(Received::Lost(lost)));
            }
            let news = match self.session()?.news.try_recv() {
                Ok(news) => news,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => {
                    return Err(SourceError::failed("the thread of the group has ended"));
                }
            };
            match news {
                News::Assigned(found) => {
                    self.begin(found)?;
                    self.inspection.look_soon();
                    self.publish();
                }
                News::Revoked(places, release) => {
                    self.leave(&places);
                    let generations = self.assignment.revoke(&places);
                    // The release is dropped if none of them is here.
                    if !generations.is_empty() {
                        self.revoked.push((generations.clone(), release));
                        return Ok(Some(Received::Revoked(generations)));
                    }
                }
                News::Lost(places) => {
                    self.leave(&places);
                    self.lost = self.assignment.lose(&places);
                    self.publish();
                }
                News::MadeAnew { topic, goes_on } => self.begin_anew_in(&topic, goes_on)?,
                News::Unavailable => self.unavailable.look_now(),
                News::NameTaken => return Err(self.name_taken()),
                News::Refused(error) => return Err(SourceError::failed(error)),
                News::Failed(what) => return Err(SourceError::failed(what)),
            }
        }
    }

    /// Another member has the name of this one. From now on this one joins only while the name is
    /// free: otherwise the two would take their partitions from each other for ever.
    pub(super) fn name_taken(&mut self) -> SourceError {
        self.is_name_taken = true;
        SourceError::failed(KafkaSourceError::NameTaken {
            group: self.config.settings.group.clone(),
            name: self.config.static_member().unwrap_or_default().to_owned(),
        })
    }

    /// Fails while another member has the name of this one.
    pub(super) async fn wait_for_name(&mut self) -> Result<(), SourceError> {
        let config = Arc::clone(&self.config);
        if !self.is_name_taken || config.static_member().is_none() {
            return Ok(());
        }
        let consumer = self.consumer()?;
        let asked = blocking(move || {
            let name = config.static_member().unwrap_or_default();
            is_name_taken(&consumer, &config.settings.group, name)
        });
        match asked.await?.map_err(SourceError::failed)? {
            true => Err(self.name_taken()),
            false => {
                self.is_name_taken = false;
                Ok(())
            }
        }
    }

    /// Forgets the failures of these partitions, which leave or are gone.
    fn leave(&mut self, places: &[(String, i32)]) {
        self.starting.forget(places);
        for (topic, number) in places {
            let name = format!("{topic}/{number}");
            self.failures.recover(&name, Trouble::Unread);
        }
    }

    /// Begins again in a topic that was created again. If the client goes on there at its position
    /// in the old one, another client has to begin.
    fn begin_anew_in(&mut self, topic: &str, goes_on: bool) -> Result<(), SourceError> {
        self.commits.forget(topic);
        // None of its partitions existed when the group began.
        if let Some(at_end) = &mut self.at_end {
            Arc::make_mut(at_end).retain(|(one, _)| one != topic);
        }
        // The reader may have records of the old log. Ending it waits for brokers.
        if let Some(reader) = self.reader.take() {
            job(move || drop(reader))?;
        }
        match goes_on {
            true => Err(SourceError::failed(format!(
                "the topic {topic} was deleted and created again: it is read from its start"
            ))),
            false => Ok(()),
        }
    }

    /// Begins with the partitions that the group has assigned.
    fn begin(&mut self, found: Vec<Found>) -> Result<(), SourceError> {
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
                        "retention has deleted records that were not handled: {committed} is \
                         committed, but its log begins at {log_start}; set the offset of the \
                         group to one that exists, or change `on_overtaken`"
                    )
                }
                Err(why) => why,
            };
            let why = self.config.unread(&name, why);
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
        let (topic, number) = (found.topic, found.number);
        let place = (topic.to_string(), number);
        let prefetcher = self.prefetcher.as_ref().ok_or_else(not_open)?;
        let intake = PartitionIntake {
            records: prefetcher.read(found.queue, &topic, number),
            ownership: found.ownership,
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
    tracing::warn!(
        target: "keylane",
        partition,
        committed = overtaken.committed,
        log_start = overtaken.log_start,
        offset = begins_at,
        "retention has deleted records before they were handled, will continue at this offset"
    );
}
