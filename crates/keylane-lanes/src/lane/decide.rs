//! The decisions of an operator about one key.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::{Rules, TICK, later};
use super::effects::{Effects, Left, Stall, Taken};
use super::more::More;
use super::state::{State, Timer, Transition, WaitReason};
use super::{Lane, Spares};

/// A decision about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing of this key starts until it is resumed.
    Pause,
    /// A paused lane goes on; or a halted head goes out again, as a first attempt; or the lane
    /// waits once more for missing versions.
    Resume,
    /// The waiting head settles as skipped, or as the failure it was halted by, and the key goes on
    /// behind it. Missing versions are given up.
    Skip,
    /// A head that waits for its next attempt, or for the dead-letter sink, goes out now.
    RetryNow,
    /// The waiting head goes on with another message: one that the lane holds goes out, as a first
    /// attempt; one that is parked is exchanged in its place, by the caller.
    Replace,
    /// All messages settle that have not started, or wait after a failure.
    Purge,
}

/// The reason why a decision does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecidable {
    /// No message of the key waits for such a decision.
    Nothing,
    /// The head is with its handler, or with the dead-letter sink; or all that waits is being
    /// merged.
    InFlight,
}

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Carries out a decision.
    pub fn decide(
        &mut self,
        decision: Decision,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) -> Result<(), Undecidable> {
        let needs_head = match decision {
            Decision::Pause | Decision::Resume | Decision::Purge => false,
            Decision::Skip | Decision::RetryNow | Decision::Replace => true,
        };
        if needs_head && self.state.is_head_out() {
            return Err(Undecidable::InFlight);
        }
        match decision {
            Decision::Pause => self.pause(effects),
            Decision::Resume => self.resume(now, rules, effects)?,
            Decision::Skip => self.skip(now, rules, spares, effects)?,
            Decision::RetryNow => match self.state {
                State::Backoff { timer, .. } if !self.is_paused() && timer != Timer::Unleased => {
                    self.state.let_out(false, effects);
                }
                _ => return Err(Undecidable::Nothing),
            },
            Decision::Replace if self.state.has_head() => self.state.let_out(true, effects),
            Decision::Replace if self.parked.is_empty() => return Err(nothing_parked(&self.more)),
            Decision::Replace => {}
            Decision::Purge => self.purge(rules, effects),
        }
        Ok(())
    }

    fn pause(&mut self, effects: &mut Effects<T, H, G>) {
        if self.is_paused() {
            return;
        }
        self.more.pause();
        effects.paused.up();
        effects.holds = true;
        if self.state.wait_reason().is_some() {
            if !self.state.waits_for_store() {
                let paused = State::waiting(WaitReason::Paused);
                self.change_state(Transition::Wait, paused, effects);
            }
            effects.stall = Stall::Lane;
        }
    }

    fn resume(
        &mut self,
        now: Instant,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) -> Result<(), Undecidable> {
        if self.more.unpause() {
            effects.paused.down();
            self.go_on(now, effects);
            return Ok(());
        }
        match self.state {
            State::Halted { .. } => self.state.let_out(true, effects),
            State::Waiting {
                reason: WaitReason::HaltedGap,
                ..
            } => self.wait_anew(now, rules, effects),
            _ => return Err(Undecidable::Nothing),
        }
        Ok(())
    }

    /// The lane is not paused any more.
    fn go_on(&mut self, now: Instant, effects: &mut Effects<T, H, G>) {
        match self.state {
            // The store has not answered; when it has, the lane goes on.
            _ if self.state.waits_for_store() => {}
            State::Waiting { .. } => self.schedule(effects),
            // Its timer went off, perhaps since `now` was read, or is about to.
            State::Backoff { until, timer, .. } if timer != Timer::Armed || until <= now + TICK => {
                self.state.let_out(false, effects);
            }
            _ => {}
        }
    }

    /// The missing versions get their time once more.
    fn wait_anew(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        let (Some(sequence), Some(sequencer)) = (rules.sequence(), self.more.sequencer_mut())
        else {
            return;
        };
        sequencer.wait_anew(now);
        let (reason, end) = (WaitReason::Gap, later(now, sequence.patience));
        let until = Some(end);
        self.change_state(Transition::Wait, State::Waiting { reason, until }, effects);
        effects.rare_mut().gap_until = Some((now, end));
    }

    fn skip(
        &mut self,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) -> Result<(), Undecidable> {
        if self.state.has_head() {
            self.state.uncount(effects);
            let head = self.state.take_head();
            effects.rare_mut().taken = head.map(|head| (head, Taken::Skipped));
            self.advance(now, rules, effects);
            return Ok(());
        }
        if self.state.waits_for_version() {
            let empty = State::waiting(WaitReason::Empty);
            self.change_state(Transition::Wait, empty, effects);
            if let (Some(sequence), Some(sequencer)) = (rules.sequence(), self.more.sequencer_mut())
            {
                sequencer.give_gap_up(&mut self.parked, now, spares);
                sequencer.arm_gap(sequence, None, effects);
            }
        } else {
            let first = self.parked.pop();
            let first = first.ok_or_else(|| nothing_parked(&self.more))?;
            effects.left.push((first, Left::Skipped));
            self.more.open_gate(self.depth(rules), rules, effects);
        }
        self.ask_again(now, rules, effects);
        Ok(())
    }

    fn purge(&mut self, rules: &Rules, effects: &mut Effects<T, H, G>) {
        self.state.uncount(effects);
        let (is_out, is_paused) = (self.state.is_out(), self.is_paused());
        let (head, parked) = self.hand_back();
        if let Some(head) = head {
            effects.rare_mut().taken = Some((head, Taken::Purged));
        }
        for parked in parked {
            effects.left.push((parked, Left::Purged));
        }
        if !is_out {
            self.state = State::waiting(match is_paused {
                true => WaitReason::Paused,
                false => WaitReason::Empty,
            });
        }
        if self.more.is_merging() {
            // What two messages become comes back, and was not here to be purged.
            self.more.open_gate(self.depth(rules), rules, effects);
        } else if is_out || is_paused {
            self.more.remove_gate(effects);
        } else {
            self.leave(effects);
        }
    }
}

/// Why nothing is decided about a lane in which nothing is parked.
fn nothing_parked<T, G>(more: &More<T, G>) -> Undecidable {
    match more.is_merging() {
        true => Undecidable::InFlight,
        false => Undecidable::Nothing,
    }
}
