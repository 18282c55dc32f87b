//! Taking in what the source hands over.

use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_source::{Generation, PartNews};

use super::action::{Action, Unplaced};
use super::held::GenerationState;
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
        self.failures = 0;
    }

    /// The source has handed a message over. Returns its slot.
    #[inline]
    pub(in super::super) fn received(
        &mut self,
        position: P,
        generation: Generation,
        bytes: u32,
        attempts: u32,
    ) -> Option<u32> {
        let counts = attempts > 0 && self.terms.features.does_count_attempts();
        let slot = self.held.insert(position, generation, bytes, counts)?;
        self.counts.receive();
        Some(slot)
    }

    /// Whether a message that was received goes into the lanes.
    pub(in super::super) fn takes_in(&self) -> bool {
        !self.phase.stops()
    }

    /// A message that was received does not go into the lanes: it cannot, or the driver stops.
    pub(in super::super) fn refused(&mut self, slot: u32, now: Instant) {
        let at = match self.takes_in() {
            true => later(now, UNPLACEABLE_WAIT),
            false => now,
        };
        self.unplaceable.push((at, slot));
    }

    /// What was handed over is taken in, so many of it refused. The source keeps dead letters of so
    /// many messages that it has not handed over.
    pub(in super::super) fn took_in(&mut self, refused: usize, dead_lettered: u64, now: Instant) {
        // Together with what is held: the two are always seen to agree.
        self.counts.receive_dead_lettered(dead_lettered);
        self.publish();
        if refused == 0 {
            return;
        }
        match self.takes_in() {
            true => self.report_failure(UNPLACEABLE.to_owned()),
            false => self.give_back_due(now),
        }
    }

    /// Messages that settle before they run were told to the source.
    pub(in super::super) fn settled_first(
        &mut self,
        messages: u64,
        answer: Result<(), Trouble>,
        now: Instant,
    ) {
        match answer {
            Ok(()) => {
                self.counts.receive_acked(messages);
                self.publish();
            }
            // They come again, so they must not run now.
            Err(trouble) => {
                self.counts.receive_given_back(messages);
                self.failed(&trouble, now);
            }
        }
    }

    /// A message that was settled before cannot run.
    pub(in super::super) fn refused_settled(&mut self) {
        self.report_failure(UNPLACEABLE.to_owned());
    }

    /// Hands back what waited for it.
    pub(super) fn give_back_due(&mut self, now: Instant) {
        let due = self.unplaceable.extract_if(.., |(at, _)| *at <= now);
        let due: Vec<u32> = due.map(|(_, slot)| slot).collect();
        if !due.is_empty() {
            self.actions.push(Action::GiveBack(due, Unplaced::None));
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

    /// Only the position of a message is kept from now on.
    pub(in super::super) fn deferred(&mut self, slot: u32) {
        self.held.set_bytes(slot, 0);
    }

    /// The positions of deferred messages that are to be read again. None while the source is not
    /// open.
    pub(in super::super) fn to_read(&self, slots: Vec<u32>) -> (Vec<u32>, Vec<P>) {
        let is_open = self.phase.is_open();
        let slots = slots.into_iter().filter(|_| is_open);
        let live = slots.filter_map(|slot| {
            let held = self.held.get(slot)?;
            let is_live = held.standing != GenerationState::Over;
            is_live.then(|| (slot, held.position.clone()))
        });
        live.unzip()
    }

    /// A deferred message was read again.
    pub(in super::super) fn read(&mut self, slot: u32, bytes: u32) {
        self.held.set_bytes(slot, bytes);
    }

    /// Deferred messages are not what they were.
    pub(in super::super) fn unreadable(&mut self, slots: Vec<u32>) {
        self.report_failure("the source could not read some waiting messages again".to_owned());
        self.actions.push(Action::GiveBack(slots, Unplaced::None));
    }
}
