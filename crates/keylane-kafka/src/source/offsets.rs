//! Committing what is settled, and letting partitions go.

use std::sync::Arc;
use std::time::Duration;

use keylane_source::{Generation, SourceError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, sleep};

use super::receiving::finished;
use super::{KafkaSource, blocking, job};
use crate::client::{self, Answer, ToCommit};
use crate::partition::{Phase, Start};

/// The pause before a commit that failed is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Writing down what is done beyond the offsets takes no more than one part in so many of the time.
const ENCODING_SHARE: u32 = 10;

/// How long a partition waits before it is read again from its frontier. What is given back when a
/// source stops is not.
const REWIND_AFTER: Duration = Duration::from_millis(500);

/// What follows from the answer to a commit.
pub(super) enum Again {
    /// Nothing: it was taken.
    Taken,
    /// It may be taken later.
    Later,
    /// It will not be taken in this session.
    Never(KafkaError),
}

impl<M> KafkaSource<M> {
    /// Begins a commit if it is time. Returns at once.
    pub(super) fn commit_if_due(&mut self) -> Result<(), SourceError> {
        if self.committing.is_some() {
            return Ok(());
        }
        let unsaid = self.assignment.unsaid();
        let is_due = unsaid > 0
            && (unsaid >= self.config.settings.commit_after || Instant::now() >= self.commit_at);
        match is_due {
            true => self.begin_commit(),
            false => Ok(()),
        }
    }

    fn begin_commit(&mut self) -> Result<(), SourceError> {
        let consumer = self.consumer()?;
        let most_chars = self.metadata_chars;
        let commits = self.assignment.commits().map(|(one, commit)| ToCommit {
            topic: Arc::clone(&one.topic),
            number: one.number,
            ownership: one.queue.ownership.clone(),
            commit,
        });
        let commits: Vec<_> = commits.collect();
        for one in &commits {
            self.commits
                .begin(&one.topic, one.number, one.commit.offset);
        }
        self.commit_at = Instant::now() + self.config.settings.commit_every;
        self.committing = Some(job(move || client::commit(&consumer, commits, most_chars))?);
        Ok(())
    }

    /// Looks after the commit that is under way. Returns at once.
    pub(super) fn follow_commit(&mut self) -> Result<(), SourceError> {
        let Some(job) = &mut self.committing else {
            return Ok(());
        };
        match job.try_recv() {
            Ok(answer) => {
                self.committing = None;
                self.follow_answer(answer);
                Ok(())
            }
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Closed) => Err(SourceError::failed("a commit has panicked")),
        }
    }

    /// Takes the answer to a commit.
    pub(super) fn follow_answer(&mut self, answer: Answer) -> Again {
        let Answer {
            said,
            taken,
            encoding,
        } = answer;
        if let Err(error) = &taken
            && error.rdkafka_error_code() == Some(RDKafkaErrorCode::OffsetMetadataTooLarge)
        {
            let said = said.iter().map(|(_, encoded)| encoded.text.len());
            self.shorten_metadata(said.max().unwrap_or_default());
        }
        let metadata_full = self.config.settings.metadata_full;
        let full_from = metadata_full.full_from(self.metadata_chars);
        for (commit, encoded) in &said {
            let encoded = taken.is_ok().then_some(encoded);
            self.assignment.answered(commit, encoded, full_from);
            if taken.is_ok() {
                self.commit_taken(commit.generation);
            }
        }
        let mut pause = encoding * ENCODING_SHARE;
        let again = match taken {
            Ok(()) => Again::Taken,
            Err(error) => {
                pause = pause.max(PAUSE);
                tracing::warn!(target: "keylane", %error, "a commit was not taken, and is said again");
                match may_be_taken_later(&error) {
                    true => Again::Later,
                    false => Again::Never(error),
                }
            }
        };
        self.commit_at = self.commit_at.max(Instant::now() + pause);
        self.publish();
        again
    }

    /// The broker does not take metadata of this length. Its limit is not told: half is tried next.
    /// With nothing it takes the offsets, so that they are committed in the end.
    fn shorten_metadata(&mut self, too_long: usize) {
        self.metadata_chars = self.metadata_chars.min(too_long / 2);
        tracing::warn!(
            target: "keylane",
            too_long,
            tried_next = self.metadata_chars,
            "the broker takes less metadata than `metadata_chars`: see its `offset.metadata.max.bytes`"
        );
    }

    /// Commits everything that has settled, and waits until it is taken.
    pub(super) async fn commit_all(&mut self) -> Result<(), SourceError> {
        loop {
            if self.committing.is_some() {
                let answer = finished(&mut self.committing).await?;
                match self.follow_answer(answer) {
                    Again::Taken => {}
                    Again::Later => sleep(PAUSE).await,
                    Again::Never(error) => return Err(SourceError::failed(error)),
                }
            }
            if self.assignment.unsaid() == 0 {
                return Ok(());
            }
            self.begin_commit()?;
        }
    }

    /// A partition begins in a new generation, at a place in the log that the client is at.
    pub(super) fn restart_partition(&mut self, slot: u32, start: Start) {
        let Some(assigned) = self.assignment.get_mut(slot) else {
            return;
        };
        let generation = assigned.partition.generation;
        let Some(gone) = self.assignment.release(generation) else {
            return;
        };
        self.lost.push(generation);
        self.assignment
            .assign(gone.topic, gone.number, start, gone.queue);
    }

    /// Something was given back, and comes again only if its partition is read again.
    pub(super) fn rewind_soon(&mut self) {
        let soon = Instant::now() + REWIND_AFTER;
        self.rewind_at.get_or_insert(soon);
    }
}

impl<M: Send + 'static> KafkaSource<M> {
    /// These generations have ended here: the group gets back what it waits for, and what was to be
    /// read again is.
    pub(super) async fn let_go(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        for generation in generations {
            let Some(gone) = self.assignment.release(*generation) else {
                continue;
            };
            if gone.partition.phase != Phase::Rewinding {
                continue;
            }
            let start = gone.partition.resumption();
            let consumer = self.consumer()?;
            let (topic, number) = (gone.topic.clone(), gone.number);
            let (at, mut intake) = (start.at, gone.queue);
            let sought = blocking(move || {
                let sought = intake.records.seek(&consumer, &topic, number, at);
                sought.map(|()| intake)
            });
            let intake = sought.await?.map_err(SourceError::failed)?;
            self.assignment
                .assign(gone.topic, gone.number, start, intake);
        }
        let is_left = |left: &Generation| !generations.contains(left);
        for (waits_for, _) in &mut self.revoked {
            waits_for.retain(is_left);
        }
        // The group goes on where nothing is left.
        self.revoked.retain(|(waits_for, _)| !waits_for.is_empty());
        self.publish();
        Ok(())
    }
}

/// Whether a commit that failed like this may be taken when it is said again.
///
/// That the group has gone on without this member is among it: the client joins again by itself.
/// What is not ours any more then is a loss of partitions, and no later commit has it; what is ours
/// still is taken in the name of the new member.
fn may_be_taken_later(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    !matches!(
        error.rdkafka_error_code(),
        Some(
            Code::FencedInstanceId
                | Code::GroupAuthorizationFailed
                | Code::TopicAuthorizationFailed
                | Code::Fatal
        )
    )
}
