//! The last check of a job before it starts, for its source and its lease.
//!
//! Its source may have taken it back; the lease of its key may not be held; an attempt that a
//! source counts is counted before it starts; and a message whose attempts have all ended with
//! their process does not start again.

use keylane_rt::Arc;
use keylane_rt::unwind::caught;
use keylane_source::StartLater;
use tracing::Level;

use super::Starts;
use crate::engine::message::{Held, Job, Queued, Unsettled, Work};
use crate::engine::settlement::Tally;
use crate::error::Failure;
use crate::handler::Context;
use crate::observe::message_line::What;
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

impl<T: Spec> Starts<T> {
    /// Returns the job that starts, if any: this one, or the next one of its key. Called where a
    /// source or a lease has a say, see [`SlowPath`](crate::engine::slow_path::SlowPath).
    #[inline]
    pub(crate) fn admit(
        &self,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        mut job: Job<T>,
    ) -> Option<Job<T>> {
        if !self.sources.has_any() && self.is_leased(context, &mut job) {
            return Some(job);
        }
        self.ask(tally, context, job)
    }

    #[cold]
    fn ask(
        &self,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        mut job: Job<T>,
    ) -> Option<Job<T>> {
        loop {
            let mut shed = Vec::new();
            self.sources.shed(&mut job.envelope.obligation, &mut shed);
            self.decisions.settlement.hand_back_shed(tally, shed);
            let next = match self.said(context, &mut job) {
                StartVerdict::Start => return Some(job),
                StartVerdict::GiveBack => self.decisions.give_back(tally, job),
                StartVerdict::Unleased => self.decisions.wait_for_lease(tally, job),
                StartVerdict::Wait(later) => self.start_later(tally, job, later),
                StartVerdict::Regroup => {
                    let (key, hash) = (job.key.take(), job.hash);
                    self.decisions.regroup_all(tally, key, hash, job)
                }
                StartVerdict::GiveUp(attempts) => self.give_up(tally, job, attempts),
            };
            let next = next?;
            if self.table.shutdown.hands_back() {
                self.table.hand_back_queued(next);
                return None;
            }
            job = self.choose(tally, next)?;
        }
    }

    fn said(&self, context: &mut Context<T::Key>, job: &mut Job<T>) -> StartVerdict {
        let obligation = &job.envelope.obligation;
        if self.sources.is_revoked(obligation) {
            return StartVerdict::GiveBack;
        }
        if self.sources.has_revoked_member(obligation) {
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
                if !self.failures.may_start_again(job.key.is_some(), before) {
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

    /// Holds a job whose attempt cannot be counted, and its key with it, for a while.
    fn start_later(&self, tally: &mut Tally, job: Job<T>, later: StartLater) -> Option<Queued<T>> {
        let Job {
            key,
            hash,
            message,
            envelope,
            work,
        } = job;
        // The source says it louder where that is a fault.
        let why = later.to_string();
        let envelope = self
            .decisions
            .start_alone(tally, key.as_ref(), hash, envelope);
        let shown = self.decisions.probe.shown(key.as_ref(), hash);
        let source = envelope.obligation.source();
        let refused = || What::StartRefused {
            reason: why.as_str().into(),
        };
        self.sources.log(Level::DEBUG, shown, source, refused);
        let held = Held {
            message,
            envelope,
            work,
            why: why.into(),
        };
        self.decisions
            .back_off(tally, key, hash, held, later.wait())
    }

    fn give_up(&self, tally: &mut Tally, job: Job<T>, attempts: u32) -> Option<Queued<T>> {
        let Job {
            key,
            hash,
            message,
            envelope,
            ..
        } = job;
        let envelope = self
            .decisions
            .start_alone(tally, key.as_ref(), hash, envelope);
        let mut context = Context::new(Arc::clone(&self.details));
        context.key = key;
        context.attempt = attempts;
        let unsettled = Unsettled {
            hash,
            envelope,
            kept: Some(message),
        };
        self.failures
            .failed(tally, &mut context, unsettled, Failure::Crashed)
    }
}
