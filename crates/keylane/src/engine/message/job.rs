//! The job: the right to run the head of a lane, and what becomes of it.

use std::ops::{Deref, DerefMut};

use keylane_lanes::Ranked;

use super::obligation::{Envelope, Parked};
use crate::engine::leases::HeldLease;
use crate::error::Failure;
use crate::types::{Spec, Types};

/// A message whose attempt is over, and which is not settled yet.
pub(crate) struct Unsettled<T: Types> {
    pub(crate) hash: u64,
    pub(crate) envelope: Envelope<T>,
    /// The message, where it is kept for another attempt or a dead letter.
    pub(crate) kept: Option<T::Message>,
}

/// A failed job that its lane holds, because it waits for time or for a decision.
pub(crate) struct Held<T: Types> {
    pub(crate) message: T::Message,
    pub(crate) envelope: Envelope<T>,
    pub(crate) work: Work<T>,
    /// Why it waits, in a few words: the last error.
    pub(crate) why: Box<str>,
}

/// What is to be done with a head.
pub(crate) enum Work<T: Types> {
    /// Run the handler for the first time. The lane may have received more messages since, and
    /// decides again before the handler runs.
    Entered,
    /// Run the handler for the first time, under this lease if it is still held.
    Leased(HeldLease),
    /// Run the handler, for the n-th time.
    Attempt(u32),
    /// The last attempt failed: bring it to the dead-letter sink.
    Letter(Box<GivenUp<T>>),
}

impl<T: Types> Work<T> {
    /// A message that was just given up on; `beside` is its key if no lane waits for the letter.
    pub(crate) fn letter(
        attempts: u32,
        failure: Failure<T::Error>,
        beside: Option<T::Key>,
    ) -> Self {
        Self::Letter(Box::new(GivenUp {
            attempts,
            failure,
            refusals: 0,
            beside,
        }))
    }

    /// Whether it is for the handler.
    #[inline]
    pub(crate) fn is_attempt(&self) -> bool {
        !matches!(self, Self::Letter(_))
    }

    /// The lease that its key had when it was placed. Without it, it is an attempt like others.
    #[inline]
    pub(crate) fn take_lease(&mut self) -> Option<HeldLease> {
        let Self::Leased(lease) = *self else {
            return None;
        };
        *self = Self::Attempt(1);
        Some(lease)
    }

    /// How often a handler was started for it before.
    pub(crate) fn attempts(&self) -> u32 {
        match self {
            Self::Entered | Self::Leased(_) => 0,
            Self::Attempt(next) => next - 1,
            Self::Letter(given_up) => given_up.attempts,
        }
    }
}

/// Why a message was given up on.
pub(crate) struct GivenUp<T: Types> {
    pub(crate) attempts: u32,
    pub(crate) failure: Failure<T::Error>,
    /// How often the sink has refused it.
    pub(crate) refusals: u32,
    /// The key of a letter that no lane waits for: its lane was full, or versions before it were
    /// given up.
    pub(crate) beside: Option<T::Key>,
}

/// The one right to run the head of a lane, and the head itself.
///
/// It moves from the router to the ready queue to a runner and is never copied, so at most one job
/// of a key runs and no check is needed. A keyless message is a job without a lane.
pub(crate) struct Job<T: Types> {
    pub(crate) key: Option<T::Key>,
    pub(crate) hash: u64,
    pub(crate) message: T::Message,
    pub(crate) envelope: JobEnvelope<T>,
    pub(crate) work: Work<T>,
}

/// The envelope of a job, with the messages that are to start with it as one batch.
///
/// They have no other owner. So a job that does not start is [split](Self::split) before anything
/// becomes of its first message: the others go back into their lane, or to where they came from.
pub(crate) struct JobEnvelope<T: Types>(Envelope<T>);

/// The messages that were to start with a job, behind its first one.
#[must_use = "they settle, too"]
pub(crate) struct Members<T: Types>(Vec<Parked<T>>);

impl<T: Types> JobEnvelope<T> {
    /// The envelope of the first message, and the others.
    #[inline]
    pub(crate) fn split(mut self) -> (Envelope<T>, Members<T>) {
        let members = self.0.obligation.take_members();
        (self.0, Members(members))
    }

    /// All of it, for the handler.
    #[inline]
    pub(crate) fn into_running(self) -> Envelope<T> {
        self.0
    }
}

impl<T: Types> From<Envelope<T>> for JobEnvelope<T> {
    #[inline]
    fn from(envelope: Envelope<T>) -> Self {
        Self(envelope)
    }
}

impl<T: Types> Deref for JobEnvelope<T> {
    type Target = Envelope<T>;

    #[inline]
    fn deref(&self) -> &Envelope<T> {
        &self.0
    }
}

impl<T: Types> DerefMut for JobEnvelope<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Envelope<T> {
        &mut self.0
    }
}

impl<T: Types> Members<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_parked(self) -> Vec<Parked<T>> {
        self.0
    }
}

/// An entry of the ready queue.
pub(crate) enum Queued<T: Types> {
    Job(Job<T>),
    /// A scheduled lane: the runner that takes it asks it for its next message.
    Lane {
        key: T::Key,
        hash: u64,
        class: u8,
    },
    /// The turn of a stripe: the runner that takes it places messages.
    Turn(u32),
}

impl<T: Spec> From<Job<T>> for Queued<T> {
    #[inline]
    fn from(job: Job<T>) -> Self {
        Self::Job(job)
    }
}

impl<T: Spec> Job<T> {
    #[inline]
    pub(crate) fn first(key: Option<T::Key>, hash: u64, parked: Parked<T>) -> Self {
        let Parked { message, envelope } = parked;
        Self {
            key,
            hash,
            message,
            envelope: envelope.into(),
            work: Work::Attempt(1),
        }
    }

    /// The message of a job that its lane has not looked at, to be parked.
    #[inline]
    pub(crate) fn parked(self) -> Parked<T> {
        let Self {
            message, envelope, ..
        } = self;
        debug_assert!(envelope.obligation.is_alone(), "its lane makes batches");
        Parked {
            message,
            envelope: envelope.into_running(),
        }
    }

    /// The messages of the job, to be parked in this order.
    pub(crate) fn parked_apart(self) -> Vec<Parked<T>> {
        let Self {
            message, envelope, ..
        } = self;
        let (envelope, members) = envelope.split();
        let mut all = members.into_parked();
        all.insert(0, Parked { message, envelope });
        all
    }

    /// The job, and whether it is for the dead-letter sink and not for the handler. By value,
    /// because what is borrowed in an async block stays alive in it.
    #[inline]
    pub(crate) fn with_is_letter(self) -> (Self, bool) {
        let is_letter = !self.work.is_attempt();
        (self, is_letter)
    }

    /// Whether it is an attempt for one message, and not for a batch.
    #[inline]
    fn is_alone(&self) -> bool {
        self.work.is_attempt() && self.envelope.obligation.is_alone()
    }

    /// Which attempt it is, from 1; for a letter, how many there were.
    #[inline]
    pub(crate) fn attempt(&self) -> u32 {
        match &self.work {
            Work::Entered | Work::Leased(_) => 1,
            Work::Attempt(attempt) => *attempt,
            Work::Letter(given_up) => given_up.attempts,
        }
    }

    /// A job that has started before, to be held by its lane. A message is tried again alone.
    pub(crate) fn held(self, why: Box<str>) -> Held<T> {
        let Self {
            message,
            envelope,
            work,
            ..
        } = self;
        debug_assert!(envelope.obligation.is_alone(), "it is tried again alone");
        Held {
            message,
            envelope: envelope.into_running(),
            work,
            why,
        }
    }

    pub(crate) fn again(key: Option<T::Key>, hash: u64, held: Held<T>) -> Self {
        let Held {
            message,
            envelope,
            work,
            ..
        } = held;
        Self {
            key,
            hash,
            message,
            envelope: envelope.into(),
            work,
        }
    }
}

impl<T: Spec> Ranked for Queued<T> {
    #[inline]
    fn class(&self) -> u8 {
        match self {
            Self::Job(job) => job.envelope.obligation.charge().class,
            Self::Lane { class, .. } => *class,
            Self::Turn(_) => 0,
        }
    }

    /// Every attempt counts; a letter and a turn are no work of the handler.
    #[inline]
    fn counts(&self) -> bool {
        match self {
            Self::Job(job) => job.work.is_attempt(),
            Self::Lane { .. } => true,
            Self::Turn(_) => false,
        }
    }

    #[inline]
    fn is_free(&self) -> bool {
        matches!(self, Self::Turn(_))
    }

    #[inline]
    fn expires_at(&self) -> Option<u64> {
        match self {
            Self::Job(job) if job.is_alone() => job.envelope.obligation.expires_at(),
            Self::Job(_) | Self::Lane { .. } | Self::Turn(_) => None,
        }
    }
}
