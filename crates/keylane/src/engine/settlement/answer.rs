//! Answers receipts: of messages, and of those that were merged into them.

use keylane_rt::unwind::caught;
use keylane_source::Outcome as SourceOutcome;

use super::{Outcome, Settlement, Tally};
use crate::engine::message::{Obligation, Reply};
use crate::error::{Failure, ReceiptError};
use crate::types::Spec;

impl<T: Spec> Settlement<T> {
    /// Settles the messages that were merged into this one, with its outcome if it has one.
    #[cold]
    pub(super) fn settle_merged(
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

    pub(super) fn answer(
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
}
