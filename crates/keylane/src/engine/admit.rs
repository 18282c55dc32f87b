//! The last check of a job before it starts, for its source and its lease.
//!
//! Its source may have taken it back; the lease of its key may not be held; an attempt that a
//! source counts is counted before it starts; and a message whose attempts have all ended with
//! their process does not start again.

use std::task;

use keylane_lanes::Effects;
use keylane_rt::unwind::caught;
use keylane_rt::{Arc, clock};
use keylane_source::StartLater;

use super::message::{
    Envelope, Held, Job, JobEnvelope, Obligation, Parked, Queued, Unsettled, Work,
};
use super::outcome::Tally;
use super::sources::Revoked;
use super::{Engine, HandedBack};
use crate::error::Failure;
use crate::handler::Context;
use crate::types::Spec;

/// What a source says of a job that is about to start.
enum StartVerdict {
    Start,
    /// It is taken back.
    GiveBack,
    /// The lease of its key is not held.
    Unleased,
    /// Its attempt cannot be counted now.
    Wait(StartLater),
    /// Others of its batch are taken back.
    Regroup,
    /// It was tried so often before, and the process ended each time.
    GiveUp(u32),
}

impl<T: Spec> Engine<T> {
    /// Returns the job that starts, if any: this one, or the next one of its key.
    #[inline]
    pub(super) fn admit(
        self: &Arc<Self>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        mut job: Job<T>,
    ) -> Option<Job<T>> {
        if !self.guards_starts() || (!self.has_sources() && self.is_leased(context, &mut job)) {
            return Some(job);
        }
        self.ask(tally, context, job)
    }

    #[cold]
    fn ask(
        self: &Arc<Self>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        mut job: Job<T>,
    ) -> Option<Job<T>> {
        loop {
            let mut shed = Vec::new();
            self.shed(&mut job.envelope.obligation, &mut shed);
            self.hand_back_shed(tally, shed);
            let next = match self.said(context, &mut job) {
                StartVerdict::Start => return Some(job),
                StartVerdict::GiveBack => self.give_back(tally, job),
                StartVerdict::Unleased => self.wait_for_lease(tally, job),
                StartVerdict::Wait(later) => self.start_later(tally, job, later),
                StartVerdict::Regroup => {
                    let (key, hash) = (job.key.take(), job.hash);
                    self.regroup_all(tally, key, hash, job)
                }
                StartVerdict::GiveUp(attempts) => self.give_up(tally, job, attempts),
            };
            job = match next? {
                queued if self.shutdown.hands_back() => {
                    self.hand_back_queued(queued);
                    return None;
                }
                Queued::Job(next) if next.work.is_attempt() => self.begin(tally, next)?,
                Queued::Job(letter) => letter,
                lane @ Queued::Lane { .. } => self.choose(lane)?,
            };
        }
    }

    fn said(&self, context: &mut Context<T::Key>, job: &mut Job<T>) -> StartVerdict {
        let obligation = &job.envelope.obligation;
        if self.is_revoked(obligation) {
            return StartVerdict::GiveBack;
        }
        if self.has_revoked_member(obligation) {
            return StartVerdict::Regroup;
        }
        // Before its attempt is counted.
        if !self.is_leased(context, job) {
            return StartVerdict::Unleased;
        }
        let obligation = &job.envelope.obligation;
        let Work::Attempt(attempt) = job.work else {
            return StartVerdict::Start;
        };
        let mut attempt = attempt;
        if attempt == 1 && obligation.charge().earlier == 0 {
            let before = obligation
                .source()
                .map(|at| self.sources.before_start(at).0);
            if let Some(before) = before.filter(|before| *before > 0) {
                if !self.may_start_again(job.key.is_some(), before) {
                    return StartVerdict::GiveUp(before);
                }
                attempt = before.saturating_add(1);
                job.work = Work::Attempt(attempt);
            }
        }
        let first = job.envelope.obligation.source();
        let since = match first.map(|first| self.sources.before_start(first).0) {
            Some(before) if before < attempt => attempt - before,
            _ => attempt,
        };
        let mut refused = None;
        job.envelope.obligation.any_source(&mut |at| {
            let (before, guard) = self.sources.before_start(at);
            // The others that start with it were tried more often, or less.
            let nth = match first == Some(at) {
                true => attempt,
                false => before.saturating_add(since),
            };
            // The guard is the source's own code.
            let told = guard.map(|guard| caught(|| guard.starts(at.slot, nth)));
            refused = match told {
                Some(Ok(Err(later))) => Some(later),
                Some(Err(panic)) => Some(panic.into()),
                Some(Ok(Ok(()))) | None => None,
            };
            refused.is_some()
        });
        refused.map_or(StartVerdict::Start, StartVerdict::Wait)
    }

    /// Whether a message is to be handed back because its source has taken it back.
    ///
    /// A message for which this one stands changes nothing about it. What the user's function has
    /// merged is one message: if a part of it came from no source, nothing can give that part
    /// again, and it runs; otherwise all of it goes back with the part that is taken back.
    pub(super) fn is_revoked(&self, obligation: &Obligation<T>) -> bool {
        if !self.has_sources() {
            return false;
        }
        let is_revoked = |part: &Obligation<T>| {
            let slot = part.source();
            slot.map(|at| self.sources.revoked(at) > Revoked::No)
        };
        let merged = obligation.options().filter(|_| self.merges());
        let merged = merged.map(|options| &options.merged);
        let parts = std::iter::once(obligation).chain(merged.into_iter().flatten());
        let mut any = false;
        for part in parts {
            match is_revoked(part) {
                None => return false,
                Some(revoked) => any |= revoked,
            }
        }
        any
    }

    /// Whether the messages of a lane become one by the user's function.
    fn merges(&self) -> bool {
        self.settings.discipline.merge().is_some()
    }

    /// Takes the messages out for which this one stands and which their sources have taken back.
    pub(super) fn shed(&self, obligation: &mut Obligation<T>, shed: &mut Vec<Obligation<T>>) {
        if self.merges() || !obligation.has_options() {
            return;
        }
        let is_revoked = |part: &mut Obligation<T>| {
            let slot = part.source();
            slot.is_some_and(|at| self.sources.revoked(at) > Revoked::No)
        };
        shed.extend(obligation.options_mut().merged.extract_if(.., is_revoked));
    }

    /// Hands back messages for which another one stood.
    pub(super) fn hand_back_shed(&self, tally: &mut Tally, shed: Vec<Obligation<T>>) {
        for obligation in shed {
            self.hand_back_part(tally, obligation);
        }
    }

    /// Has the sources of a message in flight wake this task when it is to end. True: it is to end
    /// now.
    pub(super) fn watch_source(&self, obligation: &Obligation<T>, cx: &task::Context<'_>) -> bool {
        let mut ends = false;
        let mut watch = |at| {
            ends |= self.sources.watch_attempt(at, cx.waker());
            false
        };
        if self.merges() {
            obligation.any_source(&mut watch);
        } else if let Some(at) = obligation.source() {
            watch(at);
        }
        ends
    }

    fn has_revoked_member(&self, obligation: &Obligation<T>) -> bool {
        let members = obligation.options().map(|options| &options.members);
        let mut members = members.into_iter().flatten();
        members.any(|member| self.is_revoked(&member.envelope.obligation))
    }

    /// Hands back a job that its source has taken back, and moves its lane on. The other messages
    /// of its batch go back into the lane.
    fn give_back(&self, tally: &mut Tally, job: Job<T>) -> Option<Queued<T>> {
        let Job {
            key,
            hash,
            message,
            envelope,
            work,
        } = job;
        let (envelope, members) = envelope.split();
        let attempts = work.attempts();
        self.drop_quietly(work);
        let version = envelope.obligation.version();
        // First: once it is back, its source may give it again.
        self.rewind(key.as_ref(), hash, version);
        let back = HandedBack::idle(None, message, attempts);
        self.hand_back(tally, back, envelope);
        self.regroup(tally, key, hash, members.into_parked())
    }

    /// The same for a job in the ready queue, which goes back there if only others of its batch are
    /// taken back.
    pub(super) fn give_back_or_keep(
        &self,
        tally: &mut Tally,
        mut job: Job<T>,
    ) -> Option<Queued<T>> {
        if self.is_revoked(&job.envelope.obligation) {
            return self.give_back(tally, job);
        }
        if let Work::Attempt(_) | Work::Leased(_) = job.work
            && self.has_revoked_member(&job.envelope.obligation)
        {
            let (key, hash) = (job.key.take(), job.hash);
            return self.regroup_all(tally, key, hash, job);
        }
        Some(job.into())
    }

    /// Holds a job whose attempt cannot be counted, and its key with it, for a while.
    fn start_later(
        self: &Arc<Self>,
        tally: &mut Tally,
        job: Job<T>,
        later: StartLater,
    ) -> Option<Queued<T>> {
        let Job {
            key,
            hash,
            message,
            envelope,
            work,
        } = job;
        // The source says it louder where that is a fault.
        let why = later.to_string();
        tracing::debug!(
            target: "keylane",
            reason = why,
            "the source did not count the attempt, will retry"
        );
        let envelope = self.start_alone(tally, key.as_ref(), hash, envelope);
        let held = Held {
            message,
            envelope,
            work,
            why: why.into(),
        };
        self.back_off(tally, key, hash, held, later.wait())
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
            let is_revoked = |member: &Parked<T>| self.is_revoked(&member.envelope.obligation);
            let (revoked, rest) = members.into_iter().partition::<Vec<_>, _>(is_revoked);
            for Parked { message, envelope } in revoked {
                self.hand_back(tally, HandedBack::idle(None, message, 0), envelope);
            }
            self.put_back(tally, key.as_ref(), hash, rest);
        }
        self.advance(key, hash)
    }

    fn regroup_all(
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
    pub(super) fn start_alone(
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
    pub(super) fn rewind(&self, key: Option<&T::Key>, hash: u64, version: u64) {
        let Some(key) = key.filter(|_| self.rules.sequence().is_some()) else {
            return;
        };
        let now = clock::now();
        let mut effects = Effects::new();
        self.step(key, hash, now, &mut effects, |lane, effects| {
            lane.rewind(version, now, &self.rules, effects);
        });
        let none = self.apply_quiet(&mut Tally::default(), key.clone(), hash, &mut effects);
        assert!(none.is_none(), "its head is still to settle");
    }

    fn give_up(
        self: &Arc<Self>,
        tally: &mut Tally,
        job: Job<T>,
        attempts: u32,
    ) -> Option<Queued<T>> {
        let Job {
            key,
            hash,
            message,
            envelope,
            ..
        } = job;
        let envelope = self.start_alone(tally, key.as_ref(), hash, envelope);
        let mut context = Context::new(Arc::clone(&self.runners.details));
        context.key = key;
        context.attempt = attempts;
        let unsettled = Unsettled {
            hash,
            envelope,
            kept: Some(message),
        };
        self.failed(tally, &mut context, unsettled, Failure::Crashed)
    }
}
