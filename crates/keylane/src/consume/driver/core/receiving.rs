//! Taking in what the source hands over.

use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_source::{Generation, PartNews};

use super::action::{Action, Unplaced};
use super::failures::Severity;
use super::state::Core;
use super::trouble::{Trouble, later};

/// What is wrong with a message that cannot be placed.
const UNPLACEABLE: &str = "a message has no key, or is larger than the capacity";

/// How long a message stays that cannot be placed, before it goes back. Not at once: a source with
/// nack would hand it over again at full speed.
const UNPLACEABLE_WAIT: Duration = Duration::from_secs(1);

impl<P: Clone + PartialEq> Core<P> {
    /// The source has spoken.
    pub(in super::super) fn heard(&mut self, now: Instant) {
        self.silence.end(now);
    }

    /// The source has nothing to hand over, and is well.
    pub(in super::super) fn idle(&mut self) {
        if self.failures.any() {
            self.failures.forget();
            self.actions.publish();
        }
    }

    /// The source has handed a message over. Returns its slot.
    #[inline]
    pub(in super::super) fn received(
        &mut self,
        position: P,
        generation: Generation,
        id: Option<Box<str>>,
        bytes: u32,
        attempts: u32,
    ) -> Option<u32> {
        let counts = attempts > 0 && self.terms.features.does_count_attempts();
        self.ledger.receive(position, generation, id, bytes, counts)
    }

    /// A message that was received does not go into the lanes: it cannot, or the driver stops.
    pub(in super::super) fn refused(&mut self, slot: u32, now: Instant) {
        let at = match self.phase.stops() {
            true => now,
            false => later(now, UNPLACEABLE_WAIT),
        };
        self.ledger.refuse(slot, at);
    }

    /// What was handed over is taken in, so many of it refused. The source keeps dead letters of so
    /// many messages that it has not handed over.
    pub(in super::super) fn took_in(&mut self, refused: usize, dead_lettered: u64, now: Instant) {
        // Together with what is held: the two are always seen to agree.
        self.ledger.counts.receive_dead_lettered(dead_lettered);
        self.actions.publish();
        match refused {
            0 => {}
            _ if self.phase.stops() => {
                let actions = &mut self.actions;
                self.ledger.give_back_refused(Unplaced::None, now, actions);
            }
            _ => {
                let why = UNPLACEABLE.to_owned();
                self.actions.report_failure(Severity::Error, why);
            }
        }
    }

    /// Messages that settle before they run were told to the source.
    pub(in super::super) fn settled_first(
        &mut self,
        messages: usize,
        answer: Result<(), Trouble>,
        now: Instant,
    ) {
        match answer {
            Ok(()) => {
                self.ledger.counts.receive_acked(messages as u64);
                self.actions.publish();
            }
            // They come again, so they must not run now.
            Err(trouble) => {
                self.ledger.unread(messages);
                self.failed(&trouble, now);
            }
        }
    }

    /// The source says something of one of its parts.
    pub(in super::super) fn heard_of_parts(&mut self, news: Vec<PartNews>, now: Instant) {
        if news.is_empty() {
            return;
        }
        for news in news {
            if let Some(saying) = self.parts.hear(news, now) {
                self.actions.push(Action::Say(saying));
            }
        }
        let failed = self.parts.seen();
        self.actions.push(Action::ShowParts(failed));
    }

    /// Deferred messages are not what they were.
    pub(in super::super) fn unreadable(&mut self, slots: Vec<u32>) {
        let why = "the source could not read some waiting messages again";
        self.actions.report_failure(Severity::Error, why.to_owned());
        self.missing(slots);
    }

    /// The source does not have these deferred messages any more, which is no failure: it says so
    /// itself.
    pub(in super::super) fn missing(&mut self, slots: Vec<u32>) {
        self.actions.push(Action::GiveBack(slots, Unplaced::None));
    }
}
