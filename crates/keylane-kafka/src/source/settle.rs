//! Commits settled records, and releases partitions.

use std::sync::Arc;
use std::time::Duration;

use keylane_source::{Generation, SourceError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, sleep};

use super::job::{blocking, finished, job};
use super::state::KafkaSource;
use crate::core::{Phase, Start};
use crate::link::{self, Answer, ToCommit, is_name_conflict};

/// The pause before a failed commit is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Encoding the metadata takes at most one part in this many of the time.
const ENCODING_SHARE: u32 = 10;

/// How long a partition waits before it is read again from its frontier. If a stopping source
/// returns records, it does not read them again.
const REWIND_AFTER: Duration = Duration::from_millis(500);

/// The consequence of the answer to a commit.
pub(super) enum Again {
    /// None: it was taken.
    Taken,
    /// The broker may take it later.
    Later,
    /// The broker will not take it in this session.
    Never(KafkaError),
}

impl<M> KafkaSource<M> {
    /// Begins a commit if one is due. Returns at once.
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
        let now = Instant::now();
        let said = commits.iter().map(|one| one.commit.said).sum();
        self.assignment.uncommitted.send(said, now);
        for one in &commits {
            self.commits
                .begin(&one.topic, one.number, one.commit.offset);
        }
        self.commit_at = now + self.config.settings.commit_every;
        self.committing = Some(job(move || link::commit(&consumer, commits, most_chars))?);
        Ok(())
    }

    /// Looks at the commit in progress. Returns at once.
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
            Err(TryRecvError::Closed) => Err(SourceError::failed("a commit panicked")),
        }
    }

    /// Processes the answer to a commit.
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
        self.assignment.uncommitted.answer(taken.is_ok());
        let metadata_full = self.config.settings.metadata_full;
        let full_from = metadata_full.full_from(self.metadata_chars);
        for (commit, encoded) in &said {
            let encoded = taken.is_ok().then_some(encoded);
            self.assignment.answered(commit, encoded, full_from);
            if taken.is_ok() {
                self.commits
                    .commit_taken(commit.generation, &self.assignment);
            }
        }
        let mut pause = encoding * ENCODING_SHARE;
        let again = match taken {
            Ok(()) => Again::Taken,
            Err(error) => {
                pause = pause.max(PAUSE);
                let code = error.rdkafka_error_code().map(|code| code as i32);
                if let Some(left_out) = self.commits.refused.hear(code, Instant::now()) {
                    tracing::warn!(target: "keylane", %error, left_out, "the commit failed, will retry");
                }
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

    /// Halves the metadata after the broker has refused this length: it does not report its limit.
    /// Without metadata it takes the offsets, so they are committed in the end.
    fn shorten_metadata(&mut self, too_long: usize) {
        self.metadata_chars = self.metadata_chars.min(too_long / 2);
        tracing::warn!(
            target: "keylane",
            refused_chars = too_long,
            next_chars = self.metadata_chars,
            "the broker refused the metadata, will retry with less: lower `metadata_chars`, or \
             raise `offset.metadata.max.bytes` of the broker"
        );
    }

    /// Commits all settled records, and waits until the broker has taken them.
    pub(super) async fn commit_all(&mut self) -> Result<(), SourceError> {
        loop {
            if self.committing.is_some() {
                let answer = finished(&mut self.committing).await?;
                match self.follow_answer(answer) {
                    Again::Taken => {}
                    Again::Later => sleep(PAUSE).await,
                    Again::Never(error) => {
                        let code = error.rdkafka_error_code();
                        return Err(match code.is_some_and(is_name_conflict) {
                            true => self.name_taken(),
                            false => SourceError::failed(error),
                        });
                    }
                }
            }
            if self.assignment.unsaid() == 0 {
                return Ok(());
            }
            self.begin_commit()?;
        }
    }

    /// Begins a new generation of a partition, at the position of the client in the log.
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

    /// Reads partitions with returned records again soon: only then do these come again.
    pub(super) fn rewind_soon(&mut self) {
        let soon = Instant::now() + REWIND_AFTER;
        self.rewind_at.get_or_insert(soon);
    }
}

impl<M: Send + 'static> KafkaSource<M> {
    /// Releases these generations, which have ended here: the group gets the partitions that it
    /// waits for, and the partitions to rewind are read again.
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
        // The group goes on when none is left.
        self.revoked.retain(|(waits_for, _)| !waits_for.is_empty());
        self.publish();
        Ok(())
    }
}

/// Whether the broker may take a commit that failed with this error when it is sent again.
///
/// This includes that the group has gone on without this member: the client joins again by itself.
/// Partitions that are not ours any more then are lost, and no later commit contains them. The
/// commit of the other partitions is taken under the name of the new member.
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
