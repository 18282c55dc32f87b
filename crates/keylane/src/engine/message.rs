//! The forms a message takes on its way through the engine.

use std::cell::Cell;

use crate::clock::Instant;
use crate::error::{Failure, ReceiptError};
use crate::lanes::{Due, Ranked};
use crate::rt::oneshot;
use crate::types::{Spec, Types};

/// Where the answer to a submitted message goes.
pub(crate) type Reply<T> = oneshot::Sender<
    Result<<T as Types>::Output, ReceiptError<<T as Types>::Message, <T as Types>::Error>>,
>;

/// What the engine owes for an accepted message: exactly one settlement.
pub(crate) struct Envelope<T: Types> {
    pub(crate) obligation: Obligation<T>,
    /// Nanoseconds from the engine's start to the routing of the message. Each message has its
    /// own, and they grow in the order of acceptance.
    pub(crate) accepted_at: u64,
}

/// The load of a message, and where its answer goes if it has a receipt.
///
/// As an enum the choice takes no extra memory, and every parked message has one. Of a receipt, a
/// version and a lifetime, one needs no box.
pub(crate) enum Obligation<T: Types> {
    Silent(Charge),
    Answer(Charge, Reply<T>),
    /// No receipt, and a version.
    Versioned(Charge, u64),
    /// No receipt, and when it expires: see [`Options::expires_at`].
    Expiring(Charge, u64),
    WithOptions(Charge, Box<Options<T>>),
}

/// The options of a message. Most messages have none.
pub(crate) struct Options<T: Types> {
    pub(crate) reply: Option<Reply<T>>,
    /// Its place among the messages of its key, where lanes sequence.
    pub(crate) version: u64,
    /// It must not start before.
    pub(crate) not_before: Option<Instant>,
    /// It must not start from then on, in nanoseconds since the epoch.
    pub(crate) expires_at: Option<u64>,
    /// The obligations of the messages that were merged into this one.
    pub(crate) merged: Vec<Obligation<T>>,
    /// The messages that start with this one, as one batch.
    pub(crate) members: Vec<Parked<T>>,
}

impl<T: Types> Default for Options<T> {
    fn default() -> Self {
        Self {
            reply: None,
            version: 0,
            not_before: None,
            expires_at: None,
            merged: Vec::new(),
            members: Vec::new(),
        }
    }
}

/// What a message takes up until it settles. Without a word in it, so that it fits beside the tag
/// of its [`Obligation`].
#[derive(Debug)]
pub(crate) struct Charge {
    weight: [u8; 4],
    pub(crate) standing: Standing,
    /// Attempts that are over and done with, because an operator resumed it or its batch failed; no
    /// more than 255 are counted.
    pub(crate) earlier: u8,
    /// How urgent it is; 0 is the most urgent.
    pub(crate) class: u8,
}

/// Where the room of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It counts against the capacity.
    Counted,
    /// It is counted among the stalled.
    Stalled,
    /// The message has its outcome, and its room was given back.
    Settled,
}

thread_local! {
    /// Messages that were lost on this thread while a panic unwound.
    static LOST: Cell<u64> = const { Cell::new(0) };
}

/// Takes the number of messages that a panic of the key's own `Eq`, `Clone` or `Drop` lost on this
/// thread. The code that catches the panic counts them.
pub(super) fn take_lost() -> u64 {
    LOST.try_with(Cell::take).unwrap_or(0)
}

impl Charge {
    /// The load of nothing.
    #[inline]
    fn settled() -> Self {
        Self {
            weight: [0; 4],
            standing: Standing::Settled,
            earlier: 0,
            class: 0,
        }
    }

    /// Moves it out; what stays is the load of nothing.
    #[inline]
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::settled())
    }

    /// Size against the capacity in bytes.
    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        u32::from_ne_bytes(self.weight)
    }

    pub(crate) fn set_weight(&mut self, weight: u32) {
        self.weight = weight.to_ne_bytes();
    }
}

impl Drop for Charge {
    #[inline]
    fn drop(&mut self) {
        // Otherwise the runtime is ending, and its owner knows.
        if self.standing != Standing::Settled && std::thread::panicking() {
            let _ = LOST.try_with(|lost| lost.set(lost.get() + 1));
        }
    }
}

impl<T: Types> Obligation<T> {
    #[inline]
    pub(crate) fn new(weight: u32, reply: Option<Reply<T>>) -> Self {
        let charge = Charge {
            weight: weight.to_ne_bytes(),
            standing: Standing::Counted,
            earlier: 0,
            class: 0,
        };
        match reply {
            Some(reply) => Self::Answer(charge, reply),
            None => Self::Silent(charge),
        }
    }

    #[inline]
    pub(crate) fn charge(&self) -> &Charge {
        match self {
            Self::Silent(charge)
            | Self::Answer(charge, _)
            | Self::Versioned(charge, _)
            | Self::Expiring(charge, _)
            | Self::WithOptions(charge, _) => charge,
        }
    }

    #[inline]
    pub(crate) fn charge_mut(&mut self) -> &mut Charge {
        match self {
            Self::Silent(charge)
            | Self::Answer(charge, _)
            | Self::Versioned(charge, _)
            | Self::Expiring(charge, _)
            | Self::WithOptions(charge, _) => charge,
        }
    }

    /// The receipt, if it still waits for the answer.
    #[inline]
    pub(crate) fn take_reply(&mut self) -> Option<Reply<T>> {
        match self {
            Self::Silent(_) | Self::Versioned(..) | Self::Expiring(..) => None,
            Self::Answer(charge, _) => {
                let charge = charge.take();
                match std::mem::replace(self, Self::Silent(charge)) {
                    Self::Answer(_, reply) => Some(reply),
                    _ => None,
                }
            }
            Self::WithOptions(_, options) => options.reply.take(),
        }
    }

    /// Whether it has options in a box.
    #[inline]
    pub(crate) fn has_options(&self) -> bool {
        matches!(self, Self::WithOptions(..))
    }

    /// Whether its time may not have come yet, or may have passed.
    #[inline]
    pub(crate) fn may_be_untimely(&self) -> bool {
        matches!(self, Self::Expiring(..) | Self::WithOptions(..))
    }

    pub(crate) fn options(&self) -> Option<&Options<T>> {
        match self {
            Self::WithOptions(_, options) => Some(options),
            _ => None,
        }
    }

    /// Its place among the messages of its key; 0 where lanes do not sequence.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Versioned(_, version) => *version,
            Self::WithOptions(_, options) => options.version,
            _ => 0,
        }
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        match self {
            Self::Silent(charge) => *self = Self::Versioned(charge.take(), version),
            _ => self.options_mut().version = version,
        }
    }

    /// When it expires, in nanoseconds since the epoch.
    #[inline]
    pub(crate) fn expires_at(&self) -> Option<u64> {
        match self {
            Self::Expiring(_, at) => Some(*at),
            Self::WithOptions(_, options) => options.expires_at,
            _ => None,
        }
    }

    pub(crate) fn set_expires_at(&mut self, at: u64) {
        match self {
            Self::Silent(charge) => *self = Self::Expiring(charge.take(), at),
            _ => self.options_mut().expires_at = Some(at),
        }
    }

    /// The options of a message, made if it has none.
    pub(crate) fn options_mut(&mut self) -> &mut Options<T> {
        if !self.has_options() {
            let options = Options {
                version: self.version(),
                expires_at: self.expires_at(),
                reply: self.take_reply(),
                ..Options::default()
            };
            *self = Self::WithOptions(self.charge_mut().take(), Box::new(options));
        }
        match self {
            Self::WithOptions(_, options) => options,
            _ => unreachable!("it has options now"),
        }
    }

    /// The obligations of the messages that were merged into this one, if any.
    pub(crate) fn take_merged(&mut self) -> Option<Vec<Obligation<T>>> {
        match self {
            Self::WithOptions(_, options) => Some(std::mem::take(&mut options.merged)),
            _ => None,
        }
        .filter(|merged| !merged.is_empty())
    }

    /// The messages that were to start, or started, with this one.
    pub(crate) fn take_members(&mut self) -> Vec<Parked<T>> {
        match self {
            Self::WithOptions(_, options) => std::mem::take(&mut options.members),
            _ => Vec::new(),
        }
    }

    /// Takes over the obligation of an older message. The list is flat, however many were merged.
    pub(crate) fn absorb_older(&mut self, mut older: Self) {
        let mut merged = older.take_merged().unwrap_or_default();
        merged.push(older);
        let newer = &mut self.options_mut().merged;
        merged.append(newer);
        *newer = merged;
    }

    /// Until when it must wait, if it must.
    pub(crate) fn not_before(&self, now: Instant) -> Option<Instant> {
        self.options()?.not_before.filter(|at| *at > now)
    }
}

/// A message in the channel.
pub(crate) struct Accepted<T: Types> {
    pub(crate) key: Option<T::Key>,
    /// The key's hash, computed once by the sender; 0 for a keyless message.
    pub(crate) hash: u64,
    pub(crate) message: T::Message,
    pub(crate) obligation: Obligation<T>,
}

/// A message parked behind the head of its lane.
pub(crate) struct Parked<T: Types> {
    pub(crate) message: T::Message,
    pub(crate) envelope: Envelope<T>,
}

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

    /// How often a handler was started for it before.
    pub(crate) fn attempts(&self) -> u32 {
        match self {
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
    pub(crate) envelope: Envelope<T>,
    pub(crate) work: Work<T>,
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
            envelope,
            work: Work::Attempt(1),
        }
    }

    /// The message of the job, to be parked.
    #[inline]
    pub(crate) fn parked(self) -> Parked<T> {
        let Self {
            message, envelope, ..
        } = self;
        Parked { message, envelope }
    }

    /// Whether it is for the dead-letter sink, and not for the handler. By value, because what is
    /// borrowed in an async block stays alive in it.
    #[inline]
    pub(crate) fn sorted(self) -> (Self, bool) {
        let is_letter = matches!(self.work, Work::Letter(_));
        (self, is_letter)
    }

    /// Which attempt it is, from 1; for a letter, how many there were.
    #[inline]
    pub(crate) fn attempt(&self) -> u32 {
        match &self.work {
            Work::Attempt(attempt) => *attempt,
            Work::Letter(given_up) => given_up.attempts,
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
            envelope,
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
        }
    }

    /// Every attempt counts; a letter is no work of the handler.
    #[inline]
    fn counts(&self) -> bool {
        match self {
            Self::Job(job) => matches!(job.work, Work::Attempt(_)),
            Self::Lane { .. } => true,
        }
    }
}

/// Why a timer wakes a lane, the delayed messages, or the memory of rates.
#[derive(Debug)]
pub(crate) enum WakeUp<K> {
    /// Something in a lane is due.
    Lane { key: K, hash: u64, due: Due },
    /// The first of the delayed messages comes into its lane at this moment.
    Later(Instant),
    /// The rates that are remembered of keys without lanes say nothing any more.
    Forget,
}

/// What the timer of a failed job is for.
#[derive(Debug)]
pub(crate) enum RetryDue<K> {
    /// The head that this lane holds.
    Lane { key: K, hash: u64, until: Instant },
    /// A message without a lane, by its number among those that wait.
    Keyless(u64),
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;
    use crate::types::Of;

    type Plain<M> = Of<u64, M, (), std::convert::Infallible>;

    #[test]
    fn a_parked_message_takes_24_bytes_more_than_itself() {
        assert_eq!(size_of::<Parked<Plain<[u64; 3]>>>(), 24 + 24);
        assert_eq!(size_of::<Parked<Plain<[u64; 30]>>>(), 240 + 24);
        assert_eq!(size_of::<Obligation<Plain<u64>>>(), 16);
    }

    #[test]
    fn a_scheduled_lane_makes_an_entry_no_larger() {
        assert_eq!(
            size_of::<Queued<Plain<u64>>>(),
            size_of::<Job<Plain<u64>>>()
        );
    }
}
