//! The account of what the source has handed over: what is here, and what has become of the rest.

use keylane_rt::clock::Instant;
use keylane_source::{Generation, Outcome, Settlement};

use super::super::super::report::IntakeStats;
use super::action::{Action, Actions, Unplaced};
use super::counts::Counts;
use super::held::{GenerationState, Held};
use super::unconfirmed::Unconfirmed;
use crate::engine::Revoked;

/// `received = acked + dead_lettered + nacked + given_back + held`, after each of its functions.
#[derive(Debug)]
pub(in super::super) struct Ledger<P> {
    pub(super) held: Held<P>,
    /// Messages that were not placed, and when they go back.
    refused: Vec<(Instant, u32)>,
    pub(super) counts: Counts,
    pub(super) unconfirmed: Unconfirmed,
    /// Memory for the next settlements.
    spare: Vec<Settlement<P>>,
}

impl<P> Ledger<P> {
    pub(super) fn new() -> Self {
        Self {
            held: Held::new(),
            refused: Vec::new(),
            counts: Counts::default(),
            unconfirmed: Unconfirmed::default(),
            spare: Vec::new(),
        }
    }

    /// The source has handed a message over. `marked`: the engine is told something of its slot,
    /// which is returned.
    #[inline]
    pub(super) fn receive(
        &mut self,
        position: P,
        generation: Generation,
        id: Option<Box<str>>,
        bytes: u32,
        marked: bool,
    ) -> Option<u32> {
        let slot = self.held.insert(position, generation, id, bytes, marked)?;
        self.counts.receive();
        Some(slot)
    }

    /// So many messages were pushed before a failure, and never taken in.
    pub(in super::super) fn unread(&mut self, messages: usize) {
        self.counts.receive_given_back(messages as u64);
    }

    /// Whether the engine knows something of a slot, and is to forget it when the message settles.
    #[inline]
    pub(in super::super) fn is_marked(&self, slot: u32) -> bool {
        self.held.get(slot).is_some_and(|held| held.marked)
    }

    /// The source keeps a dead letter of a message, and the engine knows.
    pub(in super::super) fn letter_kept(&mut self, slot: u32) {
        self.held.mark(&[slot]);
    }

    /// So many bytes of a message are here from now on: none while it is deferred.
    pub(in super::super) fn set_bytes(&mut self, slot: u32, bytes: u32) {
        self.held.set_bytes(slot, bytes);
    }

    /// Acks that the source was told and has not confirmed.
    pub(in super::super) fn unconfirmed(&self) -> u64 {
        self.unconfirmed.acks()
    }

    pub(in super::super) fn show(&self, stats: &mut IntakeStats) {
        self.counts.show(stats);
        stats.held = self.held.len();
        stats.held_bytes = self.held.bytes();
        stats.unconfirmed = self.unconfirmed.acks();
    }

    /// Messages settle. Returns those that the source is told, unless `is_open` is false. `ends`:
    /// nothing that goes back now comes again in this generation.
    #[inline]
    pub(super) fn settle(
        &mut self,
        settled: impl Iterator<Item = (u32, Outcome)>,
        is_open: bool,
        ends: bool,
    ) -> Vec<Settlement<P>> {
        let mut told = std::mem::take(&mut self.spare);
        for (slot, outcome) in settled {
            let Some(held) = self.held.remove(slot) else {
                debug_assert!(false, "a message settles once");
                continue;
            };
            let is_over = held.standing == GenerationState::Over || !is_open;
            let ends = ends || held.standing != GenerationState::Live;
            self.counts.settle(outcome, is_over, ends);
            if !is_over {
                told.push(Settlement::new(held.position, outcome));
            }
        }
        told
    }

    /// Settlements that were told. Their memory is used again.
    pub(super) fn reuse(&mut self, mut told: Vec<Settlement<P>>) {
        told.clear();
        self.spare = told;
    }

    /// All generations are over, and what is not confirmed may come again.
    pub(super) fn restart(&mut self) {
        self.counts.restart(self.unconfirmed.clear());
        self.held.end(GenerationState::Over, |_| true);
    }

    /// Whether the source wants a message back that is here.
    pub(super) fn goes_back(&self, slot: u32) -> bool {
        let held = self.held.get(slot);
        held.is_some_and(|held| held.standing != GenerationState::Live || held.recalled)
    }

    /// A message that is in no lane goes back at this time.
    pub(super) fn refuse(&mut self, slot: u32, at: Instant) {
        self.refused.push((at, slot));
    }

    /// Takes those of them that go back now, and whatever else is chosen of the inlet.
    pub(super) fn give_back_refused(
        &mut self,
        unplaced: Unplaced,
        now: Instant,
        actions: &mut Actions<P>,
    ) {
        let mut refused = std::mem::take(&mut self.refused);
        let goes_back = |(at, slot): &mut (Instant, u32)| match unplaced {
            Unplaced::None => *at <= now,
            Unplaced::Revoked => self.goes_back(*slot),
            Unplaced::All => true,
        };
        let back = refused.extract_if(.., goes_back);
        let back: Vec<u32> = back.map(|(_, slot)| slot).collect();
        self.refused = refused;
        if !back.is_empty() || unplaced != Unplaced::None {
            actions.push(Action::GiveBack(back, unplaced));
        }
    }

    /// Everything that is held. None of it waits to go back any more.
    pub(super) fn take_left(&mut self) -> Vec<u32> {
        self.refused.clear();
        self.held.slots(|_| true)
    }

    /// When the first one goes back that was refused.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.refused.iter().map(|(at, _)| *at).min()
    }

    /// Marks messages as taken back, and has the engine look for those that have not started.
    pub(super) fn take_back(&mut self, slots: Vec<u32>, how: Revoked, actions: &mut Actions<P>) {
        self.held.mark(&slots);
        actions.push(Action::Revoke { slots, how });
        actions.push(Action::Sweep);
    }
}
