//! Hands messages back that have no outcome.

use keylane_rt::unwind::{caught, cloned};
use keylane_source::Outcome as SourceOutcome;

use super::{Settlement, Tally};
use crate::engine::end::HandedBack;
use crate::engine::message::{Accepted, Envelope, Obligation, Parked, take_lost};
use crate::error::ReceiptError;
use crate::types::Spec;

impl<T: Spec> Settlement<T> {
    /// Hands back messages for which another one stood.
    pub(crate) fn hand_back_shed(&self, tally: &mut Tally, shed: Vec<Obligation<T>>) {
        for obligation in shed {
            self.hand_back_part(tally, obligation);
        }
    }

    /// Hands a message back: through its receipt if there is one, or else through the report.
    pub(crate) fn hand_back(
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
    pub(crate) fn hand_back_after(
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
            self.probe.drop_quietly(back);
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
    pub(super) fn hand_back_members(
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
    pub(crate) fn hand_back_part(&self, tally: &mut Tally, mut part: Obligation<T>) {
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
    pub(crate) fn hand_back_accepted(
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

    /// A panic outside the handlers was caught: aborts the dispatcher, and counts the messages that
    /// the panic lost.
    pub(crate) fn count_lost_messages(&self) {
        self.shutdown.abort_after_panic();
        self.probe.counters.handed_back.add(take_lost());
    }
}
