//! The messages of a key in the order of their versions.

use keylane_rt::clock::Instant;

use super::super::super::gate::Gate;
use super::super::super::item::Item;
use super::super::super::rules::{AtLimit, Rules, SequenceRules, TICK, later};
use super::super::effects::{Effects, Left, Out, Stall, Store};
use super::super::state::{State, Transition, WaitReason};
use super::super::{Lane, Spares};
use super::{Came, Plan, Sequencer};
use crate::sequence::{OnGap, Start};

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    pub(in super::super) fn sequence(
        &mut self,
        item: T,
        (now, sequence): (Instant, &SequenceRules),
        rules: &Rules,
        spares: &Spares<T>,
        recall: impl FnOnce() -> Option<u64>,
        effects: &mut Effects<T, H, G>,
    ) {
        let (version, gaps) = (item.version(), sequence.has_gaps());
        let is_full = rules.at_limit != AtLimit::Park && self.depth(rules) >= rules.capacity;
        if self.sequencer().is_none() {
            let sequencer = begin(sequence, version, recall(), now);
            if sequencer.is_unknown() {
                effects.rare_mut().store = Some(Store::Load);
            }
            *self.more.make_plan() = Plan::Sequence(sequencer);
        }
        let is_idle = self.state.wait_reason() == Some(WaitReason::Empty) && rules.rate.is_none();
        let starts = is_idle && item.delayed_until(now).is_none();
        // Whatever is here may be an earlier version, or this very one.
        let is_quiet =
            !self.state.is_out() && self.parked.is_empty() && self.state.head().is_none();
        let Some(sequencer) = self.more.sequencer_mut() else {
            unreachable!("it was made if it was not there")
        };
        if sequencer.is_early(version, gaps) {
            // It waits for another message, and does not count against the capacity.
            effects.stall = match effects.stall {
                Stall::Lane => Stall::LaneAndEarly(version),
                _ => Stall::Early(version),
            };
            if is_full && !sequencer.has(version) {
                effects.left.push((item, Left::Refused));
                return;
            }
        }
        let had_gap = sequencer.gap().map(|gap| gap.since);
        let came = sequencer.come(version, item, gaps, now);
        let is_next = matches!(came, Came::Next(_));
        match came {
            Came::Next(item) if starts => {
                // It is out and was never parked.
                self.transition(Transition::Start, State::Ready);
                effects.out = Out::Message(item);
            }
            Came::Next(item) => {
                // What is early is not counted: it must not keep out what it waits for.
                self.park_or_turn_away(item, rules.capacity, rules, spares, effects);
            }
            Came::Early => {
                if sequencer.early_len() > sequence.early {
                    self.give_gap_up(sequence, now, spares, effects);
                }
            }
            Came::Duplicate(item) => {
                let left = match is_quiet && !sequencer.has(version) {
                    true => Left::Duplicate,
                    false => Left::Repeated,
                };
                effects.left.push((item, left));
            }
        }
        if let Some(sequencer) = self.more.sequencer_mut() {
            if is_next {
                sequencer.park_next(&mut self.parked, gaps, now, spares);
            }
            sequencer.arm_gap(sequence, had_gap, effects);
        }
    }

    /// Learns the last version of the key from the version store, if the store has one.
    pub fn learn(
        &mut self,
        last: Option<u64>,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let (Some(sequence), Some(sequencer)) = (rules.sequence(), self.more.sequencer_mut())
        else {
            return;
        };
        if !sequencer.is_unknown() {
            return;
        }
        let first = match sequence.start {
            Start::At(first) => Some(first),
            Start::FirstSeen => None,
        };
        for old in sequencer.learn(last, first, now) {
            effects.left.push((old, Left::Duplicate));
        }
        if sequencer.is_unknown() {
            // What it was asked for is gone. The next message has the store asked again.
            *self.more.make_plan() = Plan::Stateless;
        } else {
            sequencer.park_next(&mut self.parked, sequence.has_gaps(), now, spares);
            sequencer.arm_gap(sequence, None, effects);
        }
        self.recheck_or_leave(now, rules, effects);
    }

    /// Rewinds to a version that was in line and has not been handled: it will come again and is
    /// next once more, and the messages that are parked behind it wait for it.
    pub fn rewind(
        &mut self,
        version: u64,
        now: Instant,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) {
        let (Some(sequence), Some(sequencer)) = (rules.sequence(), self.more.sequencer_mut())
        else {
            return;
        };
        let had_gap = sequencer.gap().map(|gap| gap.since);
        if !sequencer.rewind(version) {
            return;
        }
        let is_behind = |item: &T| item.version() > version;
        while self.parked.newest().is_some_and(is_behind) {
            if let Some(item) = self.parked.pop_newest() {
                sequencer.keep_early(item.version(), item, now);
            }
        }
        sequencer.arm_gap(sequence, had_gap, effects);
    }

    /// Notes that the version store has this version, through the attempt that handled it.
    pub fn note_recorded(&mut self, version: u64) {
        if let Some(sequencer) = self.more.sequencer_mut() {
            sequencer.record(version);
        }
    }

    /// Notes that the version store has this version now: a lane that waited for that goes on.
    pub fn recorded(&mut self, version: u64, effects: &mut Effects<T, H, G>) {
        self.note_recorded(version);
        if self.state.wait_reason() != Some(WaitReason::Record) {
            return;
        }
        if self.is_paused() {
            self.transition(Transition::Wait, State::waiting(WaitReason::Paused));
        } else {
            self.schedule(effects);
        }
    }

    /// The time of a gap has come, if it is still the same.
    pub(in super::super) fn gap_due(
        &mut self,
        since: Instant,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let (Some(sequence), Some(sequencer)) = (rules.sequence(), self.more.sequencer_mut())
        else {
            return;
        };
        let gap = sequencer.gap();
        if gap.is_none_or(|gap| gap.since != since) {
            return;
        }
        let until = later(since, sequence.patience);
        if until > now + TICK {
            effects.rare_mut().gap_until = Some((since, until));
            return;
        }
        // The lane may be about to wait for it, with a time that was read before.
        sequencer.end_gap();
        self.give_gap_up(sequence, now, spares, effects);
        effects.rare_mut().gap = gap;
        if let Some(sequencer) = self.sequencer() {
            sequencer.arm_gap(sequence, Some(since), effects);
        }
        self.recheck_or_leave(now, rules, effects);
    }

    /// Returns whether the lane waits for this version.
    pub fn awaits(&self, version: u64) -> bool {
        let sequencer = self.sequencer();
        self.state.waits_for_version()
            && sequencer.is_some_and(|sequencer| sequencer.is_awaited(version))
    }

    /// A waiting lane may have something to run now, or nothing at all any more.
    fn recheck_or_leave(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        self.recheck(now, rules, effects);
        if effects.removes {
            return;
        }
        self.open_or_renew_gate(rules, effects);
        if let State::Waiting { .. } = self.state {
            effects.holds = true;
            if self.depth(rules) == 0 && !self.is_paused() {
                self.vacate(now, rules, effects);
            }
        }
    }

    /// The missing versions have not come in time, or too much waits for them.
    fn give_gap_up(
        &mut self,
        sequence: &SequenceRules,
        now: Instant,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let Some(sequencer) = self.more.sequencer_mut() else {
            return;
        };
        let Some(gap) = sequencer.gap() else { return };
        match sequence.on_gap {
            OnGap::Skip => {
                effects.rare_mut().gap = Some(gap);
                sequencer.give_gap_up(&mut self.parked, now, spares);
            }
            OnGap::DeadLetter => {
                effects.rare_mut().gap = Some(gap);
                for behind in sequencer.take_early() {
                    effects.left.push((behind, Left::BehindGap));
                }
            }
            OnGap::Halt => {
                if self.state.wait_reason() == Some(WaitReason::Gap) {
                    effects.rare_mut().gap = Some(gap);
                    let halted = State::waiting(WaitReason::HaltedGap);
                    self.change_state(Transition::Wait, halted, effects);
                }
            }
        }
    }
}

/// The sequencer of a key that is new to its lane, of which `last` is remembered.
fn begin<T>(
    sequence: &SequenceRules,
    version: u64,
    last: Option<u64>,
    now: Instant,
) -> Sequencer<T> {
    let mut sequencer = Sequencer::new();
    if last.is_some() || !sequence.is_stored {
        let first = match sequence.start {
            Start::At(first) => first,
            Start::FirstSeen => version,
        };
        let none = sequencer.learn(last, Some(first), now);
        assert!(none.is_empty(), "a new sequencer holds nothing");
    }
    sequencer
}
