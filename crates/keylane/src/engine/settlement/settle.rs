//! Settles messages. Each message is settled once: here, or in `hand_back.rs`.

use super::{Outcome, Settlement, Tally};
use crate::engine::message::Envelope;
use crate::error::ReceiptError;
use crate::types::Spec;

impl<T: Spec> Settlement<T> {
    /// Settles a message: its receipt, its count, its room.
    #[inline]
    pub(crate) fn settle(&self, tally: &mut Tally, mut envelope: Envelope<T>, outcome: Outcome<T>) {
        self.settle_in_place(tally, &mut envelope, outcome);
    }

    /// Settles a message whose envelope stays in its place. It must not be used afterwards.
    #[inline]
    pub(crate) fn settle_in_place(
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
                    None if std::mem::needs_drop::<T::Output>() => self.probe.drop_quietly(answer),
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
            None => self.probe.drop_quietly(answer),
        }
        self.flush_room(tally);
        // Before it is counted: the end waits for the counts.
        if let Some(at) = source {
            self.sources.settled(at, told);
            self.sources.wake();
        }
        counter.add(1);
    }
}
