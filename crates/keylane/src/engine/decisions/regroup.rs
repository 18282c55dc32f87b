//! Jobs that do not start, and what was to start with them as one batch.

use keylane_lanes::Effects;
use keylane_rt::clock;
use keylane_rt::unwind::{caught, cloned};

use super::Decisions;
use crate::engine::end::HandedBack;
use crate::engine::message::{Envelope, Job, JobEnvelope, Parked, Queued, Work};
use crate::engine::settlement::{Outcome, Tally};
use crate::observe::message_line::Lost;
use crate::types::Spec;

impl<T: Spec> Decisions<T> {
    /// Hands back a job that its source has taken back, and moves its lane on. The other messages
    /// of its batch go back into the lane.
    pub(crate) fn give_back(&self, tally: &mut Tally, job: Job<T>) -> Option<Queued<T>> {
        let Job {
            key,
            hash,
            message,
            envelope,
            work,
        } = job;
        let (envelope, members) = envelope.split();
        let attempts = work.attempts();
        self.probe.drop_quietly(work);
        let version = envelope.obligation.version();
        // First: once it is back, its source may give it again.
        self.rewind(key.as_ref(), hash, version);
        let back = HandedBack::idle(None, message, attempts);
        self.settlement.hand_back(tally, back, envelope);
        self.regroup(tally, key, hash, members.into_parked())
    }

    /// The same for a job in the ready queue, which goes back there if only others of its batch are
    /// taken back.
    pub(crate) fn give_back_or_keep(
        &self,
        tally: &mut Tally,
        mut job: Job<T>,
    ) -> Option<Queued<T>> {
        if self.sources.is_revoked(&job.envelope.obligation) {
            return self.give_back(tally, job);
        }
        if let Work::Attempt(_) | Work::Leased(_) = job.work
            && self.sources.has_revoked_member(&job.envelope.obligation)
        {
            let (key, hash) = (job.key.take(), job.hash);
            return self.regroup_all(tally, key, hash, job);
        }
        Some(job.into())
    }

    /// Puts the messages of a batch that were not taken back into their lane again, and moves it
    /// on.
    fn regroup(
        &self,
        tally: &mut Tally,
        key: Option<T::Key>,
        hash: u64,
        members: Vec<Parked<T>>,
    ) -> Option<Queued<T>> {
        if !members.is_empty() {
            let is_revoked =
                |member: &Parked<T>| self.sources.is_revoked(&member.envelope.obligation);
            let (revoked, rest) = members.into_iter().partition::<Vec<_>, _>(is_revoked);
            for Parked { message, envelope } in revoked {
                self.settlement
                    .hand_back(tally, HandedBack::idle(None, message, 0), envelope);
            }
            self.put_back(tally, key.as_ref(), hash, rest);
        }
        self.advance(key, hash)
    }

    pub(crate) fn regroup_all(
        &self,
        tally: &mut Tally,
        key: Option<T::Key>,
        hash: u64,
        job: Job<T>,
    ) -> Option<Queued<T>> {
        self.regroup(tally, key, hash, job.parked_apart())
    }

    /// Puts the others of a batch that does not start back into their lane, and goes on with its
    /// first message.
    pub(crate) fn start_alone(
        &self,
        tally: &mut Tally,
        key: Option<&T::Key>,
        hash: u64,
        envelope: JobEnvelope<T>,
    ) -> Envelope<T> {
        let (envelope, members) = envelope.split();
        if !members.is_empty() {
            self.put_back(tally, key, hash, members.into_parked());
        }
        envelope
    }

    /// The version of a message that is handed back is next again in its lane.
    pub(crate) fn rewind(&self, key: Option<&T::Key>, hash: u64, version: u64) {
        let Some(key) = key.filter(|_| self.table.rules.sequence().is_some()) else {
            return;
        };
        let now = clock::now();
        let mut effects = Effects::new();
        self.table
            .step(key, hash, now, &mut effects, |lane, effects| {
                lane.rewind(version, now, &self.table.rules, effects);
            });
        let none = self.apply_quiet(&mut Tally::default(), key.clone(), hash, &mut effects);
        assert!(none.is_none(), "its head is still to settle");
    }

    /// Settles a job that has expired, and moves its lane on. The others of its batch may have
    /// longer, and go back into the lane.
    pub(crate) fn settle_expired(&self, tally: &mut Tally, job: Job<T>) -> Option<Queued<T>> {
        let Job {
            key,
            hash,
            message,
            envelope,
            ..
        } = job;
        let envelope = self.start_alone(tally, key.as_ref(), hash, envelope);
        self.log_lost(key.as_ref(), hash, &envelope, Lost::Expired);
        self.settlement
            .settle(tally, envelope, Outcome::Expired(message));
        self.advance(key, hash)
    }

    /// Ends a batch: parks these messages of it in their lane again, in front of all others.
    pub(crate) fn put_back(
        &self,
        tally: &mut Tally,
        key: Option<&T::Key>,
        hash: u64,
        back: Vec<Parked<T>>,
    ) {
        let Some(key) = key else { return };
        let now = clock::now();
        let mut back = Some(back);
        let mut effects = Effects::new();
        let ended = caught(|| {
            self.table
                .step(key, hash, now, &mut effects, |lane, effects| {
                    let back = back.take().unwrap_or_default();
                    lane.end_batch(back, &self.table.rules, self.table.lanes.spares(), effects);
                })
        });
        match ended {
            Ok(true) => {
                let owner = key.clone();
                let none = self.apply_quiet(tally, owner, hash, &mut effects);
                assert!(none.is_none(), "the head of the batch is still to settle");
            }
            Ok(false) => {}
            Err(_) => self.settlement.count_lost_messages(),
        }
        for Parked { message, envelope } in back.into_iter().flatten() {
            self.settlement
                .hand_back(tally, HandedBack::idle(cloned(key), message, 0), envelope);
        }
    }
}
