//! Settles messages. Each message is settled once, and only here.

use keylane_rt::unwind::{caught, cloned, dropped};
use keylane_source::Outcome as SourceOutcome;

use super::super::Engine;
use super::super::message::{Accepted, Envelope, Obligation, Parked, RoomState, take_lost};
use super::super::{HandedBack, Reply, Stage};
use crate::error::{Failure, ReceiptError};
use crate::types::{Spec, Types};

/// How a message was settled.
pub(in super::super) enum Outcome<T: Types> {
    Done(T::Output),
    DeadLettered(Failure<T::Error>),
    Discarded(Failure<T::Error>),
    /// Pushed out of a full lane before it started.
    Displaced(T::Message),
    /// Taken out of its lane by an operator before it started.
    Purged(T::Message),
    /// Another message of its key waits already, and stands for it.
    Declined(T::Message),
    /// A newer message of its key stands for it.
    Superseded(T::Message),
    /// Its version was handled already.
    Duplicate(T::Message),
    /// It expired before it started.
    Expired(T::Message),
}

impl<T: Types> Outcome<T> {
    /// The outcome that its source learns.
    #[inline]
    fn for_source(&self) -> SourceOutcome {
        match self {
            Self::Done(_) | Self::Declined(_) | Self::Superseded(_) | Self::Duplicate(_) => {
                SourceOutcome::Done
            }
            Self::DeadLettered(_) => SourceOutcome::DeadLettered,
            Self::Discarded(_) | Self::Displaced(_) | Self::Purged(_) | Self::Expired(_) => {
                SourceOutcome::Discarded
            }
        }
    }
}

/// Settlements whose room has not been returned yet.
///
/// A runner that settles many messages in a row returns their room together, and always before it
/// waits.
///
/// Small and without alignment, because each handler in flight has one.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    done: u8,
    room: u8,
    bytes: [u8; 4],
}

impl Tally {
    /// Most settlements before a flush. Each may wake a sender that waits for room, which costs as
    /// much as several messages.
    pub(crate) const MOST: u32 = 128;

    /// Adds the bytes of one message. False: a flush is needed first.
    #[inline]
    fn add_bytes(&mut self, bytes: u32) -> bool {
        let sum = u32::from_ne_bytes(self.bytes).checked_add(bytes);
        if let Some(sum) = sum {
            self.bytes = sum.to_ne_bytes();
        }
        sum.is_some()
    }

    /// Takes the messages and bytes to return.
    #[inline]
    fn take_room(&mut self) -> (usize, usize) {
        let bytes = u32::from_ne_bytes(std::mem::take(&mut self.bytes));
        (std::mem::take(&mut self.room).into(), bytes as usize)
    }

    /// Whether there is nothing to return.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.done == 0 && self.room == 0 && self.bytes == [0; 4]
    }
}

impl<T: Spec> Engine<T> {
    /// Settles a message: its receipt, its count, its room.
    #[inline]
    pub(in super::super) fn settle(
        &self,
        tally: &mut Tally,
        mut envelope: Envelope<T>,
        outcome: Outcome<T>,
    ) {
        self.settle_in_place(tally, &mut envelope, outcome);
    }

    /// Settles a message whose envelope stays in its place. It must not be used afterwards.
    #[inline]
    pub(in super::super) fn settle_in_place(
        &self,
        tally: &mut Tally,
        envelope: &mut Envelope<T>,
        outcome: Outcome<T>,
    ) {
        self.return_room(tally, &mut envelope.obligation);
        if envelope.obligation.has_options() {
            self.settle_merged(tally, &mut envelope.obligation, Some(&outcome));
            self.hand_back_members(tally, &mut envelope.obligation, None);
        }
        let counters = &self.probe.counters;
        let source = envelope.obligation.source();
        let told = outcome.for_source();
        let (counter, answer) = match outcome {
            Outcome::Done(answer) => {
                if let Some(at) = source {
                    self.sources.settled(at, told);
                }
                tally.done += 1;
                match envelope.obligation.take_reply() {
                    Some(reply) => self.answer(reply, Ok(answer)),
                    None if std::mem::needs_drop::<T::Output>() => self.drop_quietly(answer),
                    None => {}
                }
                return;
            }
            Outcome::DeadLettered(failure) => (
                &self.probe.counters.dead_lettered,
                ReceiptError::DeadLettered(failure),
            ),
            Outcome::Discarded(failure) => (
                &self.probe.counters.discarded,
                ReceiptError::Failed(failure),
            ),
            Outcome::Displaced(message) => (
                &self.probe.counters.discarded,
                ReceiptError::Dropped(message),
            ),
            Outcome::Purged(message) => (&counters.discarded, ReceiptError::Purged(message)),
            Outcome::Declined(message) => (&counters.coalesced, ReceiptError::Declined(message)),
            Outcome::Superseded(message) => {
                (&counters.coalesced, ReceiptError::Superseded(message))
            }
            Outcome::Duplicate(message) => (&counters.duplicates, ReceiptError::Duplicate(message)),
            Outcome::Expired(message) => (&counters.expired, ReceiptError::Expired(message)),
        };
        match envelope.obligation.take_reply() {
            Some(reply) => self.answer(reply, Err(answer)),
            None => self.drop_quietly(answer),
        }
        self.flush_room(tally);
        // Before it is counted: the end waits for the counts.
        if let Some(at) = source {
            self.sources.settled(at, told);
            self.sources.wake();
        }
        counter.add(1);
    }

    /// Settles the messages that were merged into this one, with its outcome if it has one.
    #[cold]
    fn settle_merged(
        &self,
        tally: &mut Tally,
        obligation: &mut Obligation<T>,
        outcome: Option<&Outcome<T>>,
    ) {
        for mut merged in std::mem::take(&mut obligation.options_mut().merged) {
            self.return_room(tally, &mut merged);
            self.flush_room(tally);
            if let Some(at) = merged.source() {
                let returned = SourceOutcome::Returned { attempts: 0 };
                let told = outcome.map_or(returned, Outcome::for_source);
                self.sources.settled(at, told);
                self.sources.wake();
            }
            if let Some(reply) = merged.take_reply() {
                match caught(|| self.shared(outcome)) {
                    Ok(answer) => self.answer(reply, answer),
                    Err(text) => {
                        self.probe.counters.panics.add(1);
                        let failure = Failure::Panicked(text);
                        self.answer(reply, Err(ReceiptError::Failed(failure)));
                    }
                }
            }
            self.probe.counters.coalesced.add(1);
        }
    }

    /// The answer for a message that was merged into one with this outcome.
    fn shared(
        &self,
        outcome: Option<&Outcome<T>>,
    ) -> Result<T::Output, ReceiptError<T::Message, T::Error>> {
        let handled = matches!(outcome, Some(Outcome::Done(_)));
        let merged = Err(ReceiptError::Merged { handled });
        let Some(share) = &self.share else {
            return merged;
        };
        let again = |failure: &Failure<T::Error>| failure.map(share.failure);
        match outcome {
            Some(Outcome::Done(answer)) => Ok((share.answer)(answer)),
            Some(Outcome::DeadLettered(failure)) => Err(ReceiptError::DeadLettered(again(failure))),
            Some(Outcome::Discarded(failure)) => Err(ReceiptError::Failed(again(failure))),
            _ => merged,
        }
    }

    /// Hands a message back: through its receipt if there is one, or else through the report.
    pub(in super::super) fn hand_back(
        &self,
        tally: &mut Tally,
        back: HandedBack<T::Key, T::Message>,
        envelope: Envelope<T>,
    ) {
        let ended = back.attempts;
        self.hand_back_after(tally, back, ended, envelope);
    }

    /// Hands a message back of whose attempts so many have ended by themselves. The others were
    /// dropped by us, and do not count against it when its source gives it again.
    pub(in super::super) fn hand_back_after(
        &self,
        tally: &mut Tally,
        mut back: HandedBack<T::Key, T::Message>,
        ended: u32,
        mut envelope: Envelope<T>,
    ) {
        self.return_room(tally, &mut envelope.obligation);
        if envelope.obligation.has_options() {
            self.settle_merged(tally, &mut envelope.obligation, None);
            self.hand_back_members(tally, &mut envelope.obligation, back.key.as_ref());
        }
        let earlier = envelope.obligation.charge().earlier.into();
        back.attempts = back.attempts.saturating_add(earlier);
        if let Some(at) = envelope.obligation.source() {
            let attempts = ended.saturating_add(earlier);
            self.drop_quietly(back);
            self.sources
                .settled(at, SourceOutcome::Returned { attempts });
            self.sources.wake();
            self.flush_room(tally);
            self.probe.counters.handed_back.add(1);
            return;
        }
        let accepted_at = envelope.accepted_at;
        let reply = envelope
            .obligation
            .take_reply()
            .filter(|reply| !reply.is_closed());
        let reported = match reply {
            None => true,
            Some(reply) => {
                let attempts = back.attempts;
                let error = match back.message.take() {
                    Some(message) if !back.interrupted => {
                        ReceiptError::HandedBack { message, attempts }
                    }
                    message => ReceiptError::Interrupted(message),
                };
                match caught(|| reply.send(Err(error))) {
                    Ok(Ok(())) => false,
                    // The receipt was dropped at this moment.
                    Ok(Err(returned)) => {
                        back.message = returned.err().and_then(ReceiptError::into_message);
                        true
                    }
                    // The receipt has its answer, and its waker panicked.
                    Err(_) => {
                        self.probe.counters.panics.add(1);
                        false
                    }
                }
            }
        };
        if reported {
            self.shutdown.hand_back(accepted_at, back);
        }
        self.flush_room(tally);
        self.probe.counters.handed_back.add(1);
    }

    /// Hands back what was to start with a message that settles without having started. Where its
    /// lane goes on, the batch was split before, and there is nothing left of it.
    #[cold]
    fn hand_back_members(
        &self,
        tally: &mut Tally,
        obligation: &mut Obligation<T>,
        key: Option<&T::Key>,
    ) {
        for Parked { message, envelope } in obligation.take_members() {
            let back = HandedBack::idle(key.and_then(cloned), message, 0);
            self.hand_back(tally, back, envelope);
        }
    }

    /// Hands back a message that another one stood for until now.
    pub(in super::super) fn hand_back_part(&self, tally: &mut Tally, mut part: Obligation<T>) {
        self.return_room(tally, &mut part);
        self.flush_room(tally);
        if let Some(at) = part.source() {
            self.sources
                .settled(at, SourceOutcome::Returned { attempts: 0 });
            self.sources.wake();
        }
        self.probe.counters.handed_back.add(1);
    }

    /// Hands back a message that was never placed in a lane.
    pub(in super::super) fn hand_back_accepted(
        &self,
        tally: &mut Tally,
        accepted: Accepted<T>,
        accepted_at: u64,
    ) {
        let Accepted {
            key,
            message,
            obligation,
            ..
        } = accepted;
        let envelope = Envelope {
            obligation,
            accepted_at,
        };
        self.hand_back(tally, HandedBack::idle(key, message, 0), envelope);
    }

    /// Returns the room that a tally has gathered, and counts what it has settled. True: the
    /// driver of a source was woken.
    pub(in super::super) fn flush(&self, tally: &mut Tally) -> bool {
        self.flush_room(tally);
        let done = std::mem::take(&mut tally.done);
        let woke = self.sources.wake();
        if done > 0 {
            self.probe.counters.done.add(u64::from(done));
        }
        if self.shutdown.stage() > Stage::Open {
            self.shutdown.wake_router();
            self.end_orphaned();
        }
        woke
    }

    /// Returns the room of a tally. This happens before its messages are counted as settled: when
    /// all are counted, the dispatcher ends, and then all room must have been returned.
    fn flush_room(&self, tally: &mut Tally) {
        let (room, bytes) = tally.take_room();
        self.room.give(room, bytes);
    }

    /// Flushes a tally if it is large enough. True: the driver of a source was woken.
    #[inline]
    pub(in super::super) fn flush_some(&self, tally: &mut Tally) -> bool {
        let most = self.settings.tally;
        (u32::from(tally.room) >= most || u32::from(tally.done) >= most) && self.flush(tally)
    }

    #[inline]
    fn return_room(&self, tally: &mut Tally, obligation: &mut Obligation<T>) {
        let charge = obligation.charge_mut();
        match std::mem::replace(&mut charge.standing, RoomState::Settled) {
            RoomState::Stalled => self.room.unstall(),
            RoomState::Counted => {
                tally.room += 1;
                let weight = charge.weight();
                if !tally.add_bytes(weight) {
                    self.room.give(0, weight as usize);
                }
            }
            RoomState::Settled => debug_assert!(false, "a message settles once"),
        }
    }

    fn answer(
        &self,
        reply: Reply<T>,
        answer: Result<T::Output, ReceiptError<T::Message, T::Error>>,
    ) {
        // Waking the receipt runs the user's waker. If the receipt is gone, the answer is dropped
        // here, which is user code as well.
        if caught(|| drop(reply.send(answer))).is_err() {
            self.probe.counters.panics.add(1);
        }
    }

    /// Drops a user's value and catches a panic of its drop.
    pub(in super::super) fn drop_quietly<V>(&self, value: V) {
        if dropped(value) {
            self.probe.counters.panics.add(1);
        }
    }

    /// A panic of the key's own `Eq`, `Clone` or `Drop` was caught: aborts the dispatcher, and
    /// counts the messages that the panic lost.
    pub(in super::super) fn count_lost_messages(&self) {
        self.shutdown.enter(Stage::Aborting);
        self.probe.counters.handed_back.add(take_lost());
    }
}
