//! The decisions of an operator about one key.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::{Rules, TICK};
use super::effects::{Effects, Left, Out, Stall, Taken};
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
        match decision {
            Decision::Pause => self.pause(effects),
            Decision::Resume => self.resume_by(now, rules, effects)?,
            Decision::Skip => self.skip(now, rules, spares, effects)?,
            Decision::RetryNow => self.retry_now(effects)?,
            Decision::Replace => self.replace(effects)?,
            Decision::Purge => self.purge(rules, effects),
        }
        Ok(())
    }

    fn pause(&mut self, effects: &mut Effects<T, H, G>) {
        if self.is_paused() {
            return;
        }
        self.more_mut().paused = true;
        effects.paused.up();
        effects.holds = true;
        if let Some(reason) = self.wait_reason() {
            self.leave_halt(effects);
            if !matches!(reason, WaitReason::Load | WaitReason::Record) {
                let (reason, until) = (WaitReason::Paused, None);
                self.transition(Transition::Wait, State::Waiting { reason, until });
            }
            effects.stall = Stall::Lane;
        }
    }

    pub(super) fn resume_by(
        &mut self,
        now: Instant,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) -> Result<(), Undecidable> {
        if self.is_paused() {
            self.unpause(now, effects);
            return Ok(());
        }
        match self.state {
            State::Halted { .. } => self.let_out(true, effects),
            State::Waiting {
                reason: WaitReason::HaltedGap,
                ..
            } => self.wait_anew(now, rules, effects),
            _ => return Err(Undecidable::Nothing),
        }
        Ok(())
    }

    fn unpause(&mut self, now: Instant, effects: &mut Effects<T, H, G>) {
        self.forget_pause(effects);
        match self.state {
            // The store has not answered; when it has, the lane goes on.
            State::Waiting {
                reason: WaitReason::Load | WaitReason::Record,
                ..
            } => {}
            State::Waiting { .. } => self.schedule(effects),
            // Its timer went off, perhaps since `now` was read, or is about to.
            State::Backoff { until, timer, .. } if timer != Timer::Armed || until <= now + TICK => {
                self.let_out(false, effects);
            }
            _ => {}
        }
    }

    fn skip(
        &mut self,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) -> Result<(), Undecidable> {
        match self.state {
            State::Entered | State::Ready | State::Running { .. } => {
                return Err(Undecidable::InFlight);
            }
            State::Backoff { .. } | State::Halted { .. } => {
                self.count_held(effects);
                effects.rare_mut().taken = self.take_head().map(|head| (head, Taken::Skipped));
                self.advance(now, rules, effects);
                return Ok(());
            }
            State::Waiting {
                reason: WaitReason::Gap | WaitReason::HaltedGap,
                ..
            } => self.skip_gap(now, rules, spares, effects),
            State::Waiting { .. } | State::Scheduled => {
                let first = self.pop().ok_or_else(|| self.undecidable())?;
                effects.left.push((first, Left::Skipped));
                self.open_gate(self.depth(rules), rules, effects);
            }
        }
        // A paused lane is not asked.
        if let State::Waiting { .. } = self.state
            && !self.is_paused()
        {
            if self.depth(rules) == 0 {
                self.vacate(now, rules, effects);
            } else {
                self.schedule(effects);
            }
        }
        Ok(())
    }

    fn retry_now(&mut self, effects: &mut Effects<T, H, G>) -> Result<(), Undecidable> {
        match self.state {
            State::Backoff { timer, .. } if !self.is_paused() && timer != Timer::Unleased => {
                self.let_out(false, effects);
            }
            State::Entered | State::Ready | State::Running { .. } => {
                return Err(Undecidable::InFlight);
            }
            _ => return Err(Undecidable::Nothing),
        }
        Ok(())
    }

    fn replace(&mut self, effects: &mut Effects<T, H, G>) -> Result<(), Undecidable> {
        match self.state {
            State::Entered | State::Ready | State::Running { .. } => Err(Undecidable::InFlight),
            State::Backoff { .. } | State::Halted { .. } => {
                self.let_out(true, effects);
                Ok(())
            }
            State::Waiting { .. } | State::Scheduled if self.parked_len() == 0 => {
                Err(self.undecidable())
            }
            State::Waiting { .. } | State::Scheduled => Ok(()),
        }
    }

    /// Why nothing is decided about a lane in which nothing is parked.
    fn undecidable(&self) -> Undecidable {
        match self.is_merging() {
            true => Undecidable::InFlight,
            false => Undecidable::Nothing,
        }
    }

    fn purge(&mut self, rules: &Rules, effects: &mut Effects<T, H, G>) {
        self.count_held(effects);
        self.leave_halt(effects);
        let (is_out, is_paused) = (self.is_out(), self.is_paused());
        let (head, parked) = self.hand_back();
        if let Some(head) = head {
            effects.rare_mut().taken = Some((head, Taken::Purged));
        }
        for parked in parked {
            effects.left.push((parked, Left::Purged));
        }
        if !is_out {
            let reason = match is_paused {
                true => WaitReason::Paused,
                false => WaitReason::Empty,
            };
            let until = None;
            self.state = State::Waiting { reason, until };
        }
        if self.is_merging() {
            // What two messages become comes back, and was not here to be purged.
            self.open_gate(self.depth(rules), rules, effects);
        } else if is_out || is_paused {
            self.remove_gate(effects);
        } else {
            self.leave(effects);
        }
    }

    /// Lets the head go out that the lane holds.
    pub(super) fn let_out(&mut self, restarts: bool, effects: &mut Effects<T, H, G>) {
        let counts = !matches!(
            self.state,
            State::Backoff {
                timer: Timer::Spent | Timer::Unleased,
                ..
            }
        );
        self.count_held(effects);
        self.check(match self.state {
            State::Halted { .. } => Transition::Resume,
            _ => Transition::Due,
        });
        if let Some(head) = self.take_head() {
            effects.out = Out::Head {
                head,
                restarts,
                counts,
            };
        }
    }

    /// A head that the lane holds is about to leave: what was counted of it.
    pub(super) fn count_held(&mut self, effects: &mut Effects<T, H, G>) {
        if let State::Halted { .. } = self.state {
            effects.halted.down();
        }
        effects.stale = self.is_timed();
    }

    /// A lane that is resumed, or goes, is not paused any more.
    pub(super) fn forget_pause(&mut self, effects: &mut Effects<T, H, G>) {
        if let Some(more) = &mut self.more
            && std::mem::take(&mut more.paused)
        {
            effects.paused.down();
        }
    }
}
