//! Settles messages that leave their lane without having run, or without having run again.

use std::time::Duration;

use keylane_lanes::{Left, Taken};
use keylane_rt::clock;
use keylane_rt::unwind::cloned;

use super::Decisions;
use crate::engine::end::{HandedBack, Stage};
use crate::engine::message::{Accepted, Envelope, Held, Job, Parked, Work};
use crate::engine::settings::Overflow;
use crate::engine::settlement::{Outcome, Tally};
use crate::error::Failure;
use crate::observe::message_line::Lost;
use crate::types::Spec;

/// How long a message waits whose version is here already, before it is looked at again.
const REPEATED_WAIT: Duration = Duration::from_millis(100);

impl<T: Spec> Decisions<T> {
    /// Settles a message that was displaced or refused because too many wait for their old lane, or
    /// delivers it as a dead letter without its lane.
    pub(crate) fn turn_away(
        &self,
        tally: &mut Tally,
        (accepted_at, accepted): (u64, Accepted<T>),
        displaced: bool,
    ) -> Option<Job<T>> {
        let Accepted {
            key,
            hash,
            message,
            obligation,
        } = accepted;
        self.probe.counters.overflowed.add(1);
        let envelope = Envelope {
            obligation,
            accepted_at,
        };
        let Some(key) = key.filter(|_| !displaced) else {
            self.log_lost(None, hash, &envelope, Lost::ToTheLimit);
            self.settlement
                .settle(tally, envelope, Outcome::Displaced(message));
            return None;
        };
        self.probe.notify_overflowed(&key);
        self.refuse(tally, key, hash, Parked { message, envelope })
    }
    /// Gives a message that left its lane its outcome, or makes it a letter.
    pub(crate) fn settle_left(
        &self,
        tally: &mut Tally,
        key: &T::Key,
        hash: u64,
        parked: Parked<T>,
        why: Left,
    ) -> Option<Job<T>> {
        let Parked { message, envelope } = parked;
        let outcome = match why {
            Left::Revoked => {
                let back = HandedBack::idle(cloned(key), message, 0);
                self.settlement.hand_back(tally, back, envelope);
                return None;
            }
            Left::Repeated if envelope.obligation.source().is_some() => {
                self.place_again(tally, key, hash, Parked { message, envelope });
                return None;
            }
            Left::Expired => {
                self.log_lost(Some(key), hash, &envelope, Lost::Expired);
                Outcome::Expired(message)
            }
            Left::Duplicate | Left::Repeated => Outcome::Duplicate(message),
            Left::Declined => Outcome::Declined(message),
            Left::Superseded => Outcome::Superseded(message),
            Left::Purged => Outcome::Purged(message),
            Left::Displaced => {
                self.probe.counters.overflowed.add(1);
                self.log_lost(Some(key), hash, &envelope, Lost::ToTheLimit);
                Outcome::Displaced(message)
            }
            Left::Skipped => {
                self.probe.drop_quietly(message);
                Outcome::Discarded(Failure::Skipped)
            }
            Left::Refused => {
                self.probe.counters.overflowed.add(1);
                let refused = Parked { message, envelope };
                return self.refuse(tally, key.clone(), hash, refused);
            }
            Left::BehindGap => {
                return Some(Job {
                    key: None,
                    hash,
                    message,
                    envelope: envelope.into(),
                    work: Work::letter(0, Failure::Gap, Some(key.clone())),
                });
            }
        };
        self.settlement.settle(tally, envelope, outcome);
        None
    }

    /// Has a message of a source come again after a while. Its version is here already and not
    /// handled yet: whether this one is a duplicate is not known before that one has ended.
    fn place_again(&self, tally: &mut Tally, key: &T::Key, hash: u64, repeated: Parked<T>) {
        let Parked { message, envelope } = repeated;
        // At the end it goes back: its version may have halted, and would hold a drain up for ever.
        let goes_on = self.shutdown.stage() == Stage::Open;
        let Some(key) = cloned(key).filter(|_| goes_on) else {
            return self
                .settlement
                .hand_back(tally, HandedBack::idle(None, message, 0), envelope);
        };
        let accepted = Accepted {
            key: Some(key),
            hash,
            message,
            obligation: envelope.obligation,
        };
        let until = clock::now() + REPEATED_WAIT;
        self.place_later(accepted, envelope.accepted_at, until);
        // Otherwise the model's time would outrun the attempt that this waits for.
        #[cfg(keylane_shuttle)]
        keylane_rt::linger();
    }

    /// Settles a head that was taken out of its lane.
    pub(crate) fn settle_taken(&self, tally: &mut Tally, head: Held<T>, taken: Taken) {
        if taken == Taken::Revoked {
            return self.table.hand_back_held(tally, None, head);
        }
        let Held {
            message,
            envelope,
            work,
            ..
        } = head;
        let outcome = match taken {
            Taken::Revoked => unreachable!("it was handed back"),
            Taken::Purged => {
                self.probe.drop_quietly(work);
                Outcome::Purged(message)
            }
            Taken::Skipped => {
                self.probe.drop_quietly(message);
                Outcome::Discarded(match work {
                    Work::Letter(given_up) => given_up.failure,
                    Work::Entered | Work::Leased(_) | Work::Attempt(_) => Failure::Skipped,
                })
            }
        };
        self.settlement.settle(tally, envelope, outcome);
    }

    /// Handles a message that a full lane refused. Returns the dead letter, if one is to be
    /// delivered. It is delivered without its lane, which goes on meanwhile.
    pub(crate) fn refuse(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        refused: Parked<T>,
    ) -> Option<Job<T>> {
        let Parked { message, envelope } = refused;
        if self.settings.overflow != Overflow::DeadLetter {
            self.log_lost(Some(&key), hash, &envelope, Lost::ToTheLimit);
            self.settlement
                .settle(tally, envelope, Outcome::Displaced(message));
            return None;
        }
        let work = Work::letter(0, Failure::LaneFull, Some(key));
        Some(Job {
            key: None,
            hash,
            message,
            envelope: envelope.into(),
            work,
        })
    }
}
