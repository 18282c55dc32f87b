//! The forms a message takes on its way through the engine.

use std::cell::Cell;

use crate::error::{Failure, ReceiptError};
use crate::rt::oneshot;

/// Where the answer to a submitted message goes.
pub(crate) type Reply<M, O, E> = oneshot::Sender<Result<O, ReceiptError<M, E>>>;

/// What the engine owes for an accepted message: exactly one settlement.
#[derive(Debug)]
pub(crate) struct Ticket<M, O, E> {
    pub(crate) debt: Debt<M, O, E>,
    /// Nanoseconds from the engine's start to the routing of the message. Each message has its
    /// own, and they grow in the order of acceptance.
    pub(crate) parked_at: u64,
}

/// What a message takes up, and where its answer goes if somebody wants one.
///
/// Not a load beside an `Option`: in this form the choice takes no memory of its own, and every
/// parked message has one.
#[derive(Debug)]
pub(crate) enum Debt<M, O, E> {
    Silent(Load),
    Answer(Load, Reply<M, O, E>),
}

/// What a message takes up until it settles.
#[derive(Debug)]
pub(crate) struct Load {
    /// Size against the capacity in bytes.
    pub(crate) weight: u32,
    /// Counted among the stalled and not against the capacity.
    pub(crate) apart: bool,
    /// Attempts before an operator resumed it; no more than 255 are counted.
    pub(crate) earlier: u8,
    /// Whether the message has its outcome.
    pub(crate) settled: bool,
}

thread_local! {
    /// Messages that were lost on this thread while a panic unwound.
    static LOST: Cell<u64> = const { Cell::new(0) };
}

/// Takes the number of messages that a panic of the key's own `Eq`, `Clone` or `Drop` has cost on this
/// thread. Whoever ends the unwinding counts them.
pub(super) fn take_lost() -> u64 {
    LOST.try_with(Cell::take).unwrap_or(0)
}

impl Drop for Load {
    #[inline]
    fn drop(&mut self) {
        // Otherwise it is the end of the runtime, and its owner has seen to it.
        if !self.settled && std::thread::panicking() {
            let _ = LOST.try_with(|lost| lost.set(lost.get() + 1));
        }
    }
}

impl<M, O, E> Debt<M, O, E> {
    #[inline]
    pub(crate) fn new(weight: u32, reply: Option<Reply<M, O, E>>) -> Self {
        let load = Load {
            weight,
            apart: false,
            earlier: 0,
            settled: false,
        };
        match reply {
            Some(reply) => Self::Answer(load, reply),
            None => Self::Silent(load),
        }
    }

    #[inline]
    pub(crate) fn load(&self) -> &Load {
        match self {
            Self::Silent(load) | Self::Answer(load, _) => load,
        }
    }

    #[inline]
    pub(crate) fn load_mut(&mut self) -> &mut Load {
        match self {
            Self::Silent(load) | Self::Answer(load, _) => load,
        }
    }

    #[inline]
    pub(crate) fn into_reply(self) -> Option<Reply<M, O, E>> {
        match self {
            Self::Silent(_) => None,
            Self::Answer(_, reply) => Some(reply),
        }
    }
}

/// A message in the channel.
#[derive(Debug)]
pub(crate) struct Accepted<K, M, O, E> {
    pub(crate) key: Option<K>,
    /// The key's hash, computed once by the sender; 0 for a keyless message.
    pub(crate) hash: u64,
    pub(crate) message: M,
    pub(crate) debt: Debt<M, O, E>,
}

/// A message behind the head of its lane.
#[derive(Debug)]
pub(crate) struct Parked<M, O, E> {
    pub(crate) message: M,
    pub(crate) ticket: Ticket<M, O, E>,
}

/// A head that its lane holds, because it waits for time or for a decision.
#[derive(Debug)]
pub(crate) struct Held<K, M, O, E> {
    pub(crate) message: M,
    pub(crate) ticket: Ticket<M, O, E>,
    pub(crate) work: Work<K, E>,
    /// Why it waits, in a few words: the last error.
    pub(crate) why: Box<str>,
}

/// What is to be done with a head.
#[derive(Debug)]
pub(crate) enum Work<K, E> {
    /// Run the handler, for the n-th time.
    Attempt(u32),
    /// The last attempt failed: bring it to the dead-letter sink.
    Letter(Box<GivenUp<K, E>>),
}

impl<K, E> Work<K, E> {
    /// A message that was just given up on; `beside` is its key if no lane waits for the letter.
    pub(crate) fn letter(attempts: u32, failure: Failure<E>, beside: Option<K>) -> Self {
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
#[derive(Debug)]
pub(crate) struct GivenUp<K, E> {
    pub(crate) attempts: u32,
    pub(crate) failure: Failure<E>,
    /// How often the sink has refused it.
    pub(crate) refusals: u32,
    /// The key of a letter that no lane waits for, because its lane was full.
    pub(crate) beside: Option<K>,
}

/// The one right to run the head of a lane, and the head itself.
///
/// It is moved from the dispatcher to the ready queue to a runner and never copied, so exclusion
/// per key needs no check. A keyless message is a turn without a lane.
#[derive(Debug)]
pub(crate) struct Turn<K, M, O, E> {
    pub(crate) key: Option<K>,
    pub(crate) hash: u64,
    pub(crate) message: M,
    pub(crate) ticket: Ticket<M, O, E>,
    pub(crate) work: Work<K, E>,
}

impl<K, M, O, E> Turn<K, M, O, E> {
    #[inline]
    pub(crate) fn first(key: Option<K>, hash: u64, parked: Parked<M, O, E>) -> Self {
        let Parked { message, ticket } = parked;
        Self {
            key,
            hash,
            message,
            ticket,
            work: Work::Attempt(1),
        }
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

    pub(crate) fn again(key: Option<K>, hash: u64, held: Held<K, M, O, E>) -> Self {
        let Held {
            message,
            ticket,
            work,
            ..
        } = held;
        Self {
            key,
            hash,
            message,
            ticket,
            work,
        }
    }
}

/// What a timer is for.
#[derive(Debug)]
pub(crate) enum Due<K> {
    /// The head that this lane holds.
    Lane { key: K, hash: u64 },
    /// A message without a lane, by its number among those that wait.
    Keyless(u64),
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_parked_message_takes_24_bytes_more_than_itself() {
        type Of<M> = Parked<M, (), std::convert::Infallible>;
        assert_eq!(size_of::<Of<[u64; 3]>>(), 24 + 24);
        assert_eq!(size_of::<Of<[u64; 30]>>(), 240 + 24);
    }
}
