//! The engine's part: it applies the effects of a lane.

use keylane_rt::clock::Instant;

use super::super::testing::{Message, TestEffects, TestGate, rare};
use super::super::{Change, Due, Few, Lane, Left, Out, Stall, Store};
use super::world::{Queued, World};
use crate::Sequencer;
use crate::gate::{Gate, Opening};
use crate::item::Item;
use crate::rules::{AtLimit, PlanRules, TICK};

impl World {
    /// The messages that do not count from now on are marked, as the engine does it.
    pub(super) fn stall(&mut self, stall: Stall) {
        let Some(lane) = &mut self.lane else { return };
        let mut marked = Vec::new();
        if let Stall::Early(version) | Stall::LaneAndEarly(version) = stall {
            marked.extend(lane.early_mut(version).map(|early| early.id));
        }
        if let Stall::Lane | Stall::LaneAndEarly(_) = stall {
            let parked = lane.parked_mut().iter_mut().rev().map(|parked| parked.id);
            marked.extend(parked.take_while(|id| !self.stalled.contains(id)));
            let parked = lane.parked().iter().map(|parked| parked.id);
            marked.extend(parked.take_while(|id| !self.stalled.contains(id)));
            marked.extend(lane.state().head().map(|head| head.id));
            let may = self.was_stalled
                || lane.state().is_stalled()
                || lane.depth(&self.rules) > self.rules.capacity;
            assert!(may, "{stall:?}, and the lane may go on");
        }
        if let Stall::Returned(count) = stall {
            let newest = lane
                .parked_mut()
                .iter_mut()
                .next_back()
                .map(|newest| newest.id);
            if newest.is_some_and(|newest| self.stalled.contains(&newest)) {
                marked.extend(
                    lane.parked_mut()
                        .iter_mut()
                        .take(count)
                        .map(|parked| parked.id),
                );
            }
        }
        self.stalled.extend(marked);
    }

    /// The senders at a gate are let in, or look again.
    pub(super) fn open(&mut self, opening: Opening<TestGate>) {
        let is_same = |one: &TestGate, other: Option<&TestGate>| {
            other.is_some_and(|other| std::rc::Rc::ptr_eq(&one.0, &other.0))
        };
        let gate = self.lane.as_ref().and_then(Lane::gate);
        let mut closed = None;
        match opening {
            Opening::Nothing => {}
            Opening::Grant(opened, room) => {
                assert!(is_same(&opened, gate), "another gate is opened");
                assert!(room > 0, "it is opened for no sender");
                opened.0.set(opened.available() + room);
            }
            Opening::Close(old) => {
                assert!(!is_same(&old, gate), "the gate stays");
                closed = Some(old);
            }
        }
        if let Some(before) = &self.gate {
            let goes = !is_same(before, gate);
            assert_eq!(
                is_same(before, closed.as_ref()),
                goes,
                "no sender looks again"
            );
        }
        let waits = self
            .lane
            .as_ref()
            .is_some_and(|lane| lane.state().waits_for_version());
        if waits && !self.waited_for_version && self.gate.is_some() {
            assert!(closed.is_some(), "one at the gate may have the version");
        }
        self.waited_for_version = waits;
        self.gate = gate.cloned();
    }

    /// The engine's part.
    pub(super) fn apply(&mut self, effects: TestEffects) {
        let change = |change| match change {
            Change::None => 0,
            Change::Up => 1,
            Change::Down => -1,
        };
        self.stall(effects.stall);
        self.check_stalled_since(rare(&effects).stalled_since);
        self.check_mark(&effects);
        self.check_out(&effects.out);
        self.stale += i32::from(effects.stale);
        self.halted += change(effects.halted);
        self.paused += change(effects.paused);
        self.full += change(effects.full);
        if effects.removes {
            let lane = self.lane.take().expect("it was there");
            let left = lane.parked().len()
                + usize::from(lane.sequencer().and_then(Sequencer::first_early).is_some());
            assert_eq!(left, 0, "a lane goes with messages in it");
            let memory = lane.memory();
            self.passed = self.passed.max(memory.version);
            self.tat = memory.tat;
            self.is_asked = false;
            assert!(self.running.is_none() && self.queued.is_none());
            assert!(self.merging.is_none(), "what two become has no lane");
        }
        let rare = effects.rare.map_or_else(Default::default, |rare| *rare);
        self.open(effects.opening);
        self.check_holds(effects.holds && !effects.removes);
        for (message, why) in effects.left {
            self.settle_left(message, why);
        }
        for body in rare.bodies {
            assert!(self.merged.insert(body), "{body} is merged twice");
        }
        if let Some((head, _)) = rare.taken {
            self.settle_started(*head);
        }
        if rare.store.is_some() {
            // What is to be recorded may be said more than once.
            let loads = self.is_asked && self.asked == Some(Store::Load);
            assert!(!loads, "the store is asked twice");
            self.is_asked = true;
            self.asked = rare.store;
        }
        match effects.wake {
            Some(Due::Backoff(at)) => self.arm(at, 0, at),
            Some(Due::Wait(at)) => self.arm(at, 1, at),
            Some(Due::Expiry(_) | Due::Gap(_)) => unreachable!("they have fields of their own"),
            None => {}
        }
        if let Some(at) = effects.expires_at {
            let at = self.rules.moment(at, self.now);
            self.arm(at, 2, at);
        }
        if let Some((since, until)) = rare.gap_until {
            self.arm(until, 3, since);
        }
        let queued = match effects.out {
            Out::Nothing => None,
            Out::Lane { .. } => Some(Queued::Lane),
            Out::Message(message) => Some(Queued::Message(message)),
            Out::Head { head, .. } => Some(Queued::Message(*head)),
        };
        let queued_nothing = queued.is_none();
        if queued.is_some() {
            assert!(self.queued.is_none(), "the lane is queued twice");
            assert!(self.running.is_none(), "the lane is queued and runs");
            self.queued = queued;
        }
        if rare.merge.is_some() {
            assert!(queued_nothing, "the lane goes on before they are one");
            self.merging = rare.merge;
        }
    }

    /// Messages become one.
    pub(super) fn merge(&mut self, waited: Message, newcomers: Few<Message>) -> Message {
        newcomers.into_iter().fold(waited, |waited, mut newcomer| {
            newcomer.since = waited.since.or(Some(waited.id));
            let body = newcomer.absorb_older(waited);
            assert!(self.merged.insert(body), "{body} is merged twice");
            newcomer
        })
    }

    pub(super) fn arm(&mut self, at: Instant, kind: u8, armed: Instant) {
        self.armed += 1;
        self.timers.insert((at, kind, armed, self.armed));
    }

    pub(super) fn settle_left(&mut self, message: Message, why: Left) {
        let (is_full, has_plan) = (
            matches!(why, Left::Displaced | Left::Refused),
            |plan: bool| assert!(plan, "{why:?} under {:?}", self.rules.plan),
        );
        has_plan(!is_full || self.rules.at_limit != AtLimit::Park);
        match why {
            Left::Declined | Left::Superseded => {
                has_plan(matches!(self.rules.plan, PlanRules::Coalesce(_)));
            }
            Left::Duplicate | Left::Repeated | Left::BehindGap => {
                has_plan(self.rules.sequence().is_some())
            }
            Left::Expired => assert!(message.is_expired(self.rules.stamp(self.now + TICK))),
            Left::Displaced | Left::Refused | Left::Skipped | Left::Purged | Left::Revoked => {}
        }
        self.settle(message.id, "left");
        for merged in message.merged {
            self.settle(merged, "left with another");
        }
    }

    pub(super) fn settle(&mut self, id: u32, why: &'static str) {
        let before = self.messages.insert(id, Some(why));
        assert_eq!(before, Some(None), "{id} settles twice, or never came");
    }

    pub(super) fn settle_started(&mut self, head: Message) {
        self.settle(head.id, "done");
        for merged in head.merged {
            self.settle(merged, "merged");
        }
        for member in head.members {
            self.settle_started(member);
        }
    }
}
