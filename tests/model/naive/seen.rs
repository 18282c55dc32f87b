//! What was seen: each event must be one that may happen now.

use keylane::Overflow;
use keylane_testkit::scenario::MS;
use tokio::time::Instant;

use super::{Doing, Entry, LONGEST_SINK_WAIT, Naive, SINK_WAIT, Settled, Stage, Work};
use crate::events::{Event, Id};
use crate::plan::{After, Answer};

impl Naive {
    pub(crate) fn see(&mut self, at: Instant, event: Event) {
        let is_late = self.deadline.is_some_and(|deadline| at + MS >= deadline);
        let is_end = match &event {
            Event::Dropped(_) | Event::LetterDropped(_) => true,
            Event::Resolved(id, "handed back") => self.messages[id].settled.is_none(),
            _ => false,
        };
        let is_report = matches!(&event, Event::Reported(report) if report.deadline_reached);
        if is_late && (is_end || is_report) && self.stage < Stage::Aborting {
            self.stop(Stage::Aborting);
        }
        match event {
            Event::Accepted(id) => self.accepted(id),
            Event::Refused(id, why) => self.refused(id, why),
            Event::Started(id, attempt) => {
                self.starts(id, Work::Attempt(attempt), at);
                self.entry(id).attempts = attempt;
                self.heads.insert(id, Doing::Runs { since: at });
            }
            Event::Answered(id, answer) => {
                let doing = self.heads.get(&id).copied();
                assert!(
                    matches!(doing, Some(Doing::Runs { .. })),
                    "{id} answered: {doing:?}"
                );
                if answer == Answer::Good {
                    self.settle(id, Settled::Done);
                    self.advance(id);
                } else {
                    self.failed(id, at);
                }
            }
            Event::Dropped(id) => self.dropped(id, at),
            Event::LetterStarted(id, attempts) => {
                assert_eq!(
                    attempts,
                    self.entry(id).attempts,
                    "attempts of the letter of {id}"
                );
                self.starts(id, Work::Letter, at);
                self.heads.insert(id, Doing::Posts);
            }
            Event::LetterTaken(id) => {
                self.posted(id);
                self.settle(id, Settled::DeadLettered);
                self.advance(id);
            }
            Event::LetterRefused(id) => {
                self.posted(id);
                let refusals = self.entry(id).refusals;
                self.entry(id).refusals += 1;
                let wait = SINK_WAIT * 2_u32.pow(refusals.min(20));
                self.back_off(id, at + wait.min(LONGEST_SINK_WAIT), Work::Letter);
            }
            Event::LetterDropped(id) => {
                self.posted(id);
                assert_eq!(
                    self.stage,
                    Stage::Aborting,
                    "the letter of {id} was dropped"
                );
                self.hand_back(id);
            }
            Event::Resolved(id, name) => self.resolved(id, name),
            Event::Reported(report) => {
                assert!(self.report.is_none(), "two reports");
                assert!(
                    self.heads.is_empty(),
                    "the end came before {:?}",
                    self.heads
                );
                self.stage = Stage::Over;
                self.report = Some(report);
            }
            Event::Wrong(what) => panic!("{what}"),
        }
    }

    fn accepted(&mut self, id: Id) {
        assert_eq!(self.stage, Stage::Open, "{id} was accepted after the end");
        self.senders.retain(|sender| *sender != id);
        self.accepted.push(id);
        let Some(key) = self.messages[&id].message.key else {
            self.heads.insert(id, Doing::Waits(Work::Attempt(1)));
            return;
        };
        let is_full = self.is_full(Some(key));
        let Entry {
            found_room, waited, ..
        } = self.messages[&id];
        if found_room && waited {
            *self.excess.entry(key).or_default() += 1;
        }
        let lane = self.lanes.entry(key).or_default();
        if lane.is_empty() {
            lane.push_back(id);
            self.heads.insert(id, Doing::Waits(Work::Attempt(1)));
        } else if !is_full {
            lane.push_back(id);
        } else {
            match self.settings.overflow {
                Overflow::DropOldest => {
                    lane.push_back(id);
                    let oldest = lane.remove(1).expect("there is one behind the head");
                    self.settle(oldest, Settled::Displaced);
                }
                Overflow::DeadLetter => {
                    self.heads.insert(id, Doing::Waits(Work::Letter));
                }
                _ => {
                    if !found_room {
                        let excess = self.excess.get_mut(&key).filter(|excess| **excess > 0);
                        let excess =
                            excess.expect("nothing else makes a lane deeper than its limit");
                        *excess -= 1;
                    }
                    self.lanes.entry(key).or_default().push_back(id);
                }
            }
        }
    }

    fn refused(&mut self, id: Id, why: &str) {
        self.senders.retain(|sender| *sender != id);
        let key = self.messages[&id].message.key;
        match why {
            "closed" => assert!(self.stage > Stage::Open, "{id} found it closed"),
            "lane full" => {
                // Or what room there is was promised to one who waits for the capacity.
                let promised = self
                    .senders
                    .iter()
                    .any(|id| self.messages[id].message.key == key);
                assert!(promised || self.is_full(key), "{id} found its lane full");
            }
            _ => assert_eq!(self.capacity_left, 0, "{id} found it full"),
        }
        self.messages.remove(&id);
    }

    /// A head goes to its handler, or to the sink.
    fn starts(&mut self, id: Id, work: Work, at: Instant) {
        assert!(
            self.stage < Stage::Closing,
            "{work:?} of {id} started after the end"
        );
        let doing = self.heads.get(&id).copied();
        let may = match doing {
            Some(Doing::Waits(next)) => next == work,
            Some(Doing::BacksOff { due, work: next }) => next == work && at + MS >= due,
            _ => false,
        };
        assert!(may, "{work:?} of {id} started, and it was {doing:?}");
        assert!(self.busy() < self.settings.concurrency, "too many at once");
    }

    /// The future of a handler was dropped.
    fn dropped(&mut self, id: Id, at: Instant) {
        let Some(Doing::Runs { since }) = self.heads.get(&id).copied() else {
            panic!("{id} was dropped and did not run");
        };
        if self.stage == Stage::Aborting {
            self.hand_back(id);
            return;
        }
        let timeout = self.settings.timeout.expect("there is a time-out");
        assert!(at + MS >= since + timeout, "{id} was dropped too early");
        self.failed(id, at);
    }

    fn failed(&mut self, id: Id, at: Instant) {
        let attempts = self.messages[&id].attempts;
        let has_lane = self.messages[&id].message.key.is_some();
        if attempts < self.settings.attempts {
            let due = at + self.settings.delay;
            return self.back_off(id, due, Work::Attempt(attempts + 1));
        }
        match self.settings.exhausted {
            After::Letter if self.stage < Stage::Closing => {
                self.heads.insert(id, Doing::Waits(Work::Letter));
            }
            After::Letter => self.hand_back(id),
            After::Halt if has_lane && self.stage == Stage::Open => {
                self.heads.insert(id, Doing::Halted);
            }
            // The operator decides no more.
            After::Halt if has_lane => self.hand_back(id),
            After::Halt | After::Discard => {
                self.settle(id, Settled::Discarded);
                self.advance(id);
            }
        }
    }

    fn back_off(&mut self, id: Id, due: Instant, work: Work) {
        if self.stage >= Stage::Closing {
            self.hand_back(id);
        } else {
            self.heads.insert(id, Doing::BacksOff { due, work });
        }
    }

    fn posted(&mut self, id: Id) {
        let doing = self.heads.get(&id).copied();
        assert_eq!(doing, Some(Doing::Posts), "the sink had {id}");
    }

    fn resolved(&mut self, id: Id, name: &str) {
        let entry = self.entry(id);
        assert!(!entry.resolved, "{id} was answered twice");
        entry.resolved = true;
        let should = match entry.settled {
            None => "open",
            Some(Settled::Done) => "done",
            Some(Settled::DeadLettered) => "dead-lettered",
            Some(Settled::Discarded) => "discarded",
            Some(Settled::Displaced) => "displaced",
            Some(Settled::HandedBack) => "handed back",
        };
        assert_eq!(name, should, "the answer of {id}");
    }
}
