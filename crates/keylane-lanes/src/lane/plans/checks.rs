//! The checks after every step.

use super::super::testing::{Message, TestEffects, TestLane, rare};
use super::super::{Decision, Lane, Left, Out, Phase, State, WaitReason};
use super::world::{Queued, World};
use crate::Sequencer;
use crate::gate::Gate;
use crate::item::Item;
use crate::rules::{PlanRules, Survivor};

impl World {
    /// As the engine does it: whether the lane has drained up to its mark.
    pub(super) fn check_mark(&mut self, effects: &TestEffects) {
        let Some(lane) = &mut self.lane else { return };
        let starts = match &effects.out {
            Out::Message(message) => Some(message),
            _ => None,
        };
        let drained = match effects.removes {
            true => lane.has_watermark(),
            false => lane.passes_watermark(starts),
        };
        let Some(mark) = self.mark else {
            assert!(!drained, "there is no mark");
            return;
        };
        let is_behind = |message: &Message| message.accepted_at() > u64::from(mark);
        // It has not said yet what is next.
        let is_out = matches!(
            lane.state().phase(),
            Phase::Entered | Phase::Ready | Phase::Running
        );
        let merging = self.merging.is_some() || rare(effects).merge.is_some();
        let is_past = if merging {
            false
        } else if is_out && !effects.removes {
            starts.is_some_and(is_behind)
        } else {
            let mut all = lane.parked().iter().chain(lane.state().head());
            all.all(is_behind)
        };
        if drained {
            self.mark = None;
        }
        // Versions need not come in the order of acceptance.
        let is_ordered = self.rules.sequence().is_none();
        assert!(
            drained == is_past || !is_ordered,
            "drained, or not: {drained}"
        );
    }

    /// A batch takes all that may start, up to its size.
    pub(super) fn check_members(&self, head: &Message) {
        let lane = self.lane.as_ref().expect("its head is out");
        if let Some(batch) = self.rules.batch()
            && let Some(next) = lane.parked().oldest()
        {
            let is_full = head.members.len() + 1 == batch.max;
            let may_start = next.not_before.is_none_or(|at| at <= self.now);
            let may_start = may_start && !next.is_expired(self.rules.stamp(self.now));
            assert!(is_full || !may_start, "it was left behind");
        }
    }

    /// A batch that is not full has waited for more.
    pub(super) fn check_lingered(&self, head: &Message) {
        let Some(batch) = self.rules.batch() else {
            return;
        };
        let lane = self.lane.as_ref().expect("its head is out");
        let parked = 1 + head.members.len() + lane.parked().len();
        let is_full = parked >= batch.max.min(self.rules.capacity);
        assert!(
            is_full || batch.linger.is_zero() || self.lingered,
            "it did not wait for more"
        );
    }

    pub(super) fn check_start(&mut self, message: &Message) {
        if let Some(limiter) = &self.rules.rate {
            let now = self.rules.stamp(self.now);
            assert_eq!(limiter.ask(&mut self.oracle, now), Ok(()), "above the rate");
        }
        let last = self.started.last();
        match &self.rules.plan {
            PlanRules::Fifo | PlanRules::Coalesce(_) | PlanRules::Batch(_) => {
                let last = last.map(|last| {
                    let members = last.members.iter().map(|member| member.id);
                    members.max().unwrap_or(0).max(last.id)
                });
                // Members that failed come back, and are older than those that started after them.
                let came_back = self.started.iter().any(|before| {
                    let mut members = before.members.iter();
                    members.any(|member| member.id == message.id)
                });
                assert!(came_back || last < Some(message.id), "it was overtaken");
                let ids: Vec<_> = message.members.iter().map(|member| member.id).collect();
                assert!(ids.is_sorted(), "a batch is in order");
            }
            PlanRules::Sequence(_) => {
                let last = last.map(|last| last.version);
                assert!(last < Some(message.version), "versions start in order");
            }
        }
        if let Some(batch) = self.rules.batch() {
            assert!(message.members.len() < batch.max, "a batch is too large");
        }
    }

    /// Of the first message and the one that stands for the others, the right one is chosen.
    pub(super) fn check_rejoined(&self, first: u32, newest: Option<u32>, effects: &TestEffects) {
        let PlanRules::Coalesce(coalesce) = &self.rules.plan else {
            return;
        };
        let stays = match (coalesce.survivor, newest) {
            (Survivor::Latest, Some(newest)) => newest,
            _ => first,
        };
        let lane = self.lane.as_ref().expect("its head is out");
        let chosen = match &effects.out {
            Out::Message(chosen) => Some(chosen),
            _ => lane.parked().oldest(),
        };
        let is_gone = effects
            .left
            .as_slice()
            .iter()
            .any(|(left, why)| left.id == stays && *why == Left::Expired);
        let chosen = chosen.map(|chosen| chosen.id);
        assert!(is_gone || chosen == Some(stays), "{chosen:?} is left");
    }

    /// A lane that stalls tells since when its oldest message has waited.
    pub(super) fn check_stalled_since(&self, since: Option<u64>) {
        let Some(lane) = &self.lane else { return };
        let oldest = lane.parked().oldest().map(Item::accepted_at);
        assert!(
            since.is_none() || since == oldest,
            "{since:?} is not the oldest"
        );
        let waits = matches!(lane.state(), State::Waiting { .. });
        let stalls = waits && lane.state().is_stalled() && !self.held;
        if stalls && lane.state().wait_reason() != Some(WaitReason::Rate) {
            assert_eq!(since, oldest, "it is not known to wait");
        } else if !waits || !lane.state().is_stalled() {
            assert_eq!(since, None, "it does not wait for long");
        }
    }

    /// What the step has to say about a lane that waits or holds its head.
    pub(super) fn check_holds(&mut self, says: bool) {
        let lane = self.lane.as_ref();
        let holds = lane.is_some_and(|lane| {
            matches!(lane.state(), State::Waiting { .. }) || lane.state().head().is_some()
        });
        assert!(says || self.held || !holds, "the end would not look at it");
        if lane.is_none() {
            self.lingered = false;
        }
        if lane.and_then(|lane| lane.state().wait_reason()) == Some(WaitReason::Linger)
            && !self.held
        {
            assert!(!self.lingered, "it waits for more again");
            self.lingered = true;
        }
        let is_paused = lane.is_some_and(Lane::is_paused);
        assert!(holds || is_paused || !says, "nothing is held");
        self.held = holds;
        self.was_stalled = lane.is_some_and(|lane| lane.state().is_stalled());
    }

    pub(super) fn check_out(&self, out: &Out<Message, Message>) {
        let &Out::Head {
            restarts, counts, ..
        } = out
        else {
            return;
        };
        let Some((decision, before, was_spent)) = self.deciding else {
            assert!(!restarts && !counts, "its timer went off");
            return;
        };
        assert_eq!(counts, !was_spent, "it is counted once");
        let is_first = before == Phase::Halted || decision == Decision::Replace;
        assert_eq!(restarts, is_first, "{decision:?} in {before:?}");
    }

    /// What holds after every step.
    pub(super) fn check(&self) {
        let out = self.running.iter().chain(match &self.queued {
            Some(Queued::Message(message) | Queued::Entered(message) | Queued::Merged(message)) => {
                Some(message)
            }
            _ => None,
        });
        let outside: usize = out
            .map(|message| 1 + message.merged.len() + message.members.len())
            .sum();
        // The lane counts what the router merges.
        let (mut inside, mut held) = (0, 0);
        if let Some(lane) = &self.lane {
            inside = lane.depth(&self.rules);
            let is_out = self.queued.is_some() || self.running.is_some();
            assert_eq!(lane.state().is_out(), is_out, "{:?}", lane.state());
            if let Some(head) = lane.state().head() {
                held = 1 + head.merged.len();
            }
            assert_eq!(lane.is_paused(), self.paused == 1);
            assert_eq!(
                i32::from(lane.state().is_halted()),
                self.halted,
                "{:?}",
                lane.state()
            );
            assert_eq!(lane.gate().is_some(), self.full == 1);
            self.check_wait(lane);
            self.check_stalled(lane);
            self.check_gate(lane);
            self.check_expiries(lane);
        } else {
            assert!(self.queued.is_none() && self.running.is_none() && self.merging.is_none());
            assert_eq!((self.paused, self.halted, self.full), (0, 0, 0));
        }
        let backoffs = self.timers.iter().filter(|timer| timer.1 == 0).count();
        let is_timed = self
            .lane
            .as_ref()
            .is_some_and(|lane| lane.state().is_timed());
        let stale = backoffs as i32 - i32::from(is_timed);
        assert_eq!(self.stale, stale, "timers that nothing waits for");
        // The head and what is out with it are counted as one message, and its batch.
        let is_out = matches!(
            self.lane.as_ref().map(|lane| lane.state().phase()),
            Some(Phase::Entered | Phase::Ready | Phase::Running)
        );
        let members = self.running.iter().chain(match &self.queued {
            Some(Queued::Message(message) | Queued::Entered(message) | Queued::Merged(message)) => {
                Some(message)
            }
            _ => None,
        });
        let members: usize = members.map(|message| message.members.len()).sum();
        let heads = usize::from(is_out) + members + usize::from(held > 0);
        let open = self.messages.values().filter(|why| why.is_none()).count();
        let parked = inside - heads;
        assert_eq!(parked + held + outside, open, "a message is lost");
    }

    /// What expires does so at its time, by a timer.
    pub(super) fn check_expiries(&self, lane: &TestLane) {
        let timers = || {
            self.timers
                .iter()
                .filter(|timer| timer.1 == 2)
                .map(|timer| timer.0)
        };
        for expires_at in lane
            .parked()
            .iter()
            .filter_map(|message| message.expires_at)
        {
            let is_watched = timers().any(|at| self.rules.stamp(at) <= expires_at);
            assert!(is_watched, "nothing watches it");
        }
    }

    /// What cannot go on does not count.
    pub(super) fn check_stalled(&self, lane: &TestLane) {
        let is_stalled = |message: &Message| self.stalled.contains(&message.id);
        assert!(
            lane.sequencer()
                .and_then(Sequencer::first_early)
                .is_none_or(is_stalled),
            "early, and counts"
        );
        if lane.state().is_stalled() {
            assert!(lane.state().head().is_none_or(is_stalled), "a head counts");
            // The engine looks from the back up to the first that does not count. What was early is
            // none, and may be behind what is; so may what flooded the lane before the first one
            // came back.
            let is_ordered = self.rules.sequence().is_none();
            let returned = |message: &Message| self.returned.contains(&message.id);
            let all = lane
                .parked()
                .iter()
                .all(|parked| is_stalled(parked) || returned(parked));
            assert!(all || !is_ordered, "it waits, and counts");
        }
    }

    /// There are as many permits at the gate as there is room.
    pub(super) fn check_gate(&self, lane: &TestLane) {
        let depth = lane.depth(&self.rules);
        let capacity = self.rules.capacity;
        // One that comes back brings what was merged into it.
        let waited = self.merging.iter().map(|(waited, _)| waited);
        let messages = lane.parked().iter().chain(waited);
        let merged: usize = messages.map(|message| message.merged.len()).sum();
        if let Some(gate) = lane.gate() {
            let room = capacity.saturating_sub(depth);
            // One that came with a permit and was there already leaves room until the next goes.
            let is_exact = self.rules.sequence().is_none();
            let comes = gate.available() >= room;
            assert!(comes || !is_exact, "there is room, and no sender comes");
            let most = room + self.uninvited + merged;
            assert!(gate.available() <= most, "too many come");
        } else if self.rules.has_gates() {
            assert!(depth < capacity + merged, "a full lane has a gate");
        }
    }

    /// A lane that waits has something that wakes it.
    pub(super) fn check_wait(&self, lane: &TestLane) {
        let State::Waiting { reason, until } = lane.state() else {
            return;
        };
        let armed = |kind, at| {
            let mut timers = self.timers.iter();
            timers.any(|(until, what, armed, _)| (*until, *what, *armed) == (at, kind, at))
        };
        match reason {
            WaitReason::Rate | WaitReason::Delay | WaitReason::Linger => {
                let until = until.expect("it waits for a time");
                assert!(armed(1, until), "nothing wakes it from {reason:?}");
                let first = lane.parked().oldest();
                assert!(first.is_some() || self.merging.is_some(), "for no message");
                let is_delayed = *reason == WaitReason::Delay;
                assert!(
                    !is_delayed || first.is_none_or(|first| first.not_before == Some(until)),
                    "not for its first"
                );
                let full = self
                    .rules
                    .batch()
                    .map(|batch| batch.max.min(self.rules.capacity));
                let is_full = full.is_none_or(|full| lane.parked().len() >= full);
                assert!(
                    *reason != WaitReason::Linger || !is_full,
                    "it waits for nothing"
                );
            }
            WaitReason::Paused => {
                assert!(lane.is_paused());
                assert_eq!(*until, None, "it waits for an operator");
            }
            WaitReason::Lease => {
                assert!(!self.is_leased, "it waits for what is held");
                let comes = self.merging.is_some();
                assert!(!lane.parked().is_empty() || comes, "for no message");
            }
            WaitReason::Load | WaitReason::Record => assert!(self.asked.is_some()),
            WaitReason::Gap => {
                let is_armed = self.timers.iter().any(|timer| timer.1 == 3);
                assert!(is_armed, "nothing ends the wait for a version");
            }
            WaitReason::HaltedGap => {}
            WaitReason::Empty => {
                let comes = self.merging.is_some() && lane.parked().is_empty();
                assert!(comes, "an empty lane stays");
            }
        }
    }
}
