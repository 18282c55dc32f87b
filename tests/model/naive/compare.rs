//! What must be true when nothing moves without time, and at the end.

use std::collections::VecDeque;

use keylane::Overflow;
use keylane::watching::LaneState;
use tokio::time::Instant;

use super::{Doing, LATE, Naive, Settled, Stage, Timer, Work, timer};
use crate::events::{Id, Orders};
use crate::plan::Key;

impl Naive {
    pub(crate) fn compare(&mut self, orders: &Orders) {
        let now = Instant::now();
        self.compare_figures(orders, now);
        for key in self.lanes.keys() {
            self.compare_lane(orders, *key, now);
        }
        if self.stage == Stage::Open {
            self.check_senders();
        } else {
            assert!(
                self.senders.is_empty(),
                "{:?} wait at the end",
                self.senders
            );
        }
        if let Some(deadline) = self.deadline {
            assert!(
                self.is_over() || now < deadline + LATE,
                "the deadline has passed"
            );
        }
        for id in &self.accepted {
            let entry = &self.messages[id];
            let owed = entry.has_receipt && entry.settled.is_some() && !entry.resolved;
            assert!(
                !owed,
                "the receipt of {id} has no answer: {:?}",
                entry.settled
            );
        }
    }

    fn compare_figures(&mut self, orders: &Orders, now: Instant) {
        let stats = orders.stats();
        let (mut waiting, mut backing_off, mut unsure, mut halted) = (0, 0, 0, 0);
        for (id, doing) in &self.heads {
            match doing {
                Doing::Waits(_) => waiting += 1,
                Doing::BacksOff { due, .. } => match timer(*due, now) {
                    Timer::Waits => backing_off += 1,
                    Timer::MayBeDue => unsure += 1,
                    Timer::Due => waiting += 1,
                },
                Doing::Halted => halted += 1,
                Doing::Runs { since } => {
                    let limit = self.settings.timeout.map(|timeout| *since + timeout + LATE);
                    assert!(limit.is_none_or(|limit| now < limit), "{id} runs too long");
                }
                Doing::Posts => {}
            }
        }
        let settled = |is: &[Settled]| {
            let entries = self
                .accepted
                .iter()
                .filter_map(|id| self.messages[id].settled);
            entries.filter(|settled| is.contains(settled)).count()
        };
        // Without senders to hold back, no lane has a gate.
        let has_gates = self.stage == Stage::Open && self.holds_back();
        let full = self
            .lanes
            .keys()
            .filter(|key| has_gates && self.is_full(Some(**key)));
        let full = full.count();
        let unsettled = self
            .accepted
            .iter()
            .filter(|id| self.messages[id].settled.is_none())
            .count();
        let equal = [
            ("accepted", stats.accepted as usize, self.accepted.len()),
            ("done", stats.done as usize, settled(&[Settled::Done])),
            (
                "dead-lettered",
                stats.dead_lettered as usize,
                settled(&[Settled::DeadLettered]),
            ),
            (
                "discarded",
                stats.discarded as usize,
                settled(&[Settled::Discarded, Settled::Displaced]),
            ),
            (
                "handed back",
                stats.handed_back as usize,
                settled(&[Settled::HandedBack]),
            ),
            ("lanes", stats.lanes, self.lanes.len()),
            ("halted", stats.halted, halted),
            (
                "capacity left",
                stats.capacity_left + unsettled,
                self.settings.capacity + stats.stalled,
            ),
        ];
        for (what, is, should) in equal {
            assert_eq!(is, should, "{what}: {stats:?}");
        }
        // Whatever waits with a failing head is no load. At the limit it depends on who came first,
        // and that is not looked at again.
        let stalls = |lane: &&VecDeque<Id>| match self.heads[&lane[0]] {
            Doing::BacksOff { due, .. } => timer(due, now) == Timer::Waits,
            Doing::Halted => true,
            Doing::Waits(_) | Doing::Runs { .. } | Doing::Posts => false,
        };
        let behind: usize = self.lanes.values().filter(stalls).map(VecDeque::len).sum();
        let has_room = self.settings.stalled_capacity >= self.accepted.len();
        let busy = self.busy();
        let between = [
            ("in flight", stats.in_flight, busy, busy + unsure),
            ("ready", stats.ready, waiting, waiting + unsure),
            (
                "backing off",
                stats.backing_off,
                backing_off,
                backing_off + unsure,
            ),
            ("full lanes", stats.full_lanes, full, self.lanes.len()),
            (
                "stalled",
                stats.stalled,
                if has_room { behind } else { 0 },
                unsettled.min(self.settings.stalled_capacity),
            ),
        ];
        for (what, is, least, most) in between {
            assert!(
                (least..=most).contains(&is),
                "{what}: {is}, not {least} to {most}: {stats:?}"
            );
        }
        let concurrency = self.settings.concurrency;
        assert!(busy <= concurrency, "{busy} in flight");
        assert!(
            waiting == 0 || busy == concurrency,
            "{waiting} heads wait, and only {busy} of {concurrency} are in flight"
        );
        self.capacity_left = stats.capacity_left;
        self.routed = self.accepted.len();
        for sender in self.senders.clone() {
            self.entry(sender).waited = true;
        }
    }

    fn compare_lane(&self, orders: &Orders, key: Key, now: Instant) {
        let lane = &self.lanes[&key];
        let view = orders.inspect(&key).expect("the lane is there");
        assert_eq!(view.depth, lane.len(), "the depth of key {key}");
        assert!(view.full || !self.is_full(Some(key)), "key {key} is full");
        let head = lane[0];
        let (doing, entry) = (self.heads[&head], &self.messages[&head]);
        let fits = match (&view.state, doing) {
            (LaneState::Ready, Doing::Waits(_)) => true,
            // Its handler has waited; now its letter waits for a runner.
            (LaneState::Running { .. }, Doing::Waits(Work::Letter)) => true,
            (LaneState::Ready, Doing::BacksOff { due, .. }) => timer(due, now) != Timer::Waits,
            (LaneState::Running { attempt, .. }, Doing::Runs { .. } | Doing::Posts) => {
                *attempt == entry.attempts
            }
            (LaneState::Backoff { next_attempt, .. }, Doing::BacksOff { due, work }) => {
                timer(due, now) != Timer::Due && work == Work::Attempt(*next_attempt)
            }
            (LaneState::DeadLettering { refusals, .. }, Doing::BacksOff { due, work }) => {
                timer(due, now) != Timer::Due && work == Work::Letter && *refusals == entry.refusals
            }
            (LaneState::Halted { attempts, .. }, Doing::Halted) => *attempts == entry.attempts,
            _ => false,
        };
        assert!(fits, "key {key} is {view:?}, and its head {head} {doing:?}");
    }

    /// A sender that waits has a reason.
    fn check_senders(&self) {
        for id in &self.senders {
            let key = self.messages[id].message.key;
            let waits = self.settings.overflow == Overflow::Wait;
            let has_reason = self.capacity_left == 0 || (waits && self.is_full(key));
            assert!(has_reason, "the sender of {id} waits, and there is room");
        }
    }

    /// The report tells what happened.
    pub(crate) fn conclude(self) {
        let report = self.report.as_ref().expect("the end has come");
        let count = |settled| {
            let entries = self
                .accepted
                .iter()
                .filter(|id| self.messages[id].settled == Some(settled));
            entries.count() as u64
        };
        assert_eq!(report.accepted, self.accepted.len() as u64);
        assert_eq!(report.done, count(Settled::Done));
        assert_eq!(report.dead_lettered, count(Settled::DeadLettered));
        assert_eq!(
            report.discarded,
            count(Settled::Discarded) + count(Settled::Displaced)
        );
        assert_eq!(report.handed_back, count(Settled::HandedBack));
        let settled = report.done + report.dead_lettered + report.discarded + report.handed_back;
        assert_eq!(settled, report.accepted, "{report}");
        let returned: Vec<_> = report
            .returned
            .iter()
            .map(|back| {
                let message = back.message.as_ref().expect("retries keep a copy");
                (back.key, message.id, back.attempts)
            })
            .collect();
        let should: Vec<_> = self
            .accepted
            .iter()
            .map(|id| (*id, &self.messages[id]))
            .filter(|(_, entry)| entry.settled == Some(Settled::HandedBack) && !entry.has_receipt)
            .map(|(id, entry)| (entry.message.key, id, entry.earlier + entry.attempts))
            .collect();
        assert_eq!(
            returned, should,
            "what came back, in the order of acceptance"
        );
    }
}
