//! What the lines of a journal say of attempts, faults and histories.

use std::collections::HashMap;
use std::time::Duration;

use crate::ledger::all_go_on;
use crate::record::{Entry, Event};
use crate::{Attempt, Sent, Step, Story, What};

/// An attempt that has not ended.
struct Open {
    worker: u32,
    id: u64,
    key: u64,
    token: u64,
}

/// An attempt by its worker, its message and its token.
type Own = (u32, u64, u64);

impl Open {
    fn own(&self) -> Own {
        (self.worker, self.id, self.token)
    }
}

/// What is read from the lines.
#[derive(Default)]
pub(crate) struct Court {
    /// What the sink has accepted, with its time.
    pub(crate) steps: Vec<(Step, Duration)>,
    open: Vec<Open>,
    /// Attempts that the sink has refused, and that have not ended.
    refused: Vec<Own>,
    highest: HashMap<u64, u64>,
    /// From which step on there is which history, or none.
    histories: Vec<(usize, bool)>,
    faults: Vec<Duration>,
    /// When which worker was killed.
    pub(crate) killed: Vec<(Duration, u64)>,
    pub(crate) stale: usize,
}

impl Court {
    pub(crate) fn hear(&mut self, line: &Entry) {
        let worker = line.process;
        let [key, id, token] = line.numbers;
        match Event::of(line) {
            Event::Start => self.start(
                line,
                Open {
                    worker,
                    id,
                    key,
                    token,
                },
            ),
            Event::Done => self.end(line, What::Done),
            Event::Dropped => self.end(line, What::Broken),
            Event::Killed => {
                self.killed.push((line.at, key));
                self.break_all(line.at, |open| u64::from(open.worker) == key);
                self.refused
                    .retain(|(worker, ..)| u64::from(*worker) != key);
            }
            Event::Fault => self.faults.push(line.at),
            Event::Lossy => {
                self.faults.push(line.at);
                self.histories.push((self.steps.len(), false));
            }
            Event::History => {
                self.histories.push((self.steps.len(), true));
                self.highest.clear();
            }
        }
    }

    fn start(&mut self, line: &Entry, open: Open) {
        let is_in_history = self.histories.last().is_none_or(|(_, is)| *is);
        if is_in_history {
            let highest = self.highest.entry(open.key).or_insert(open.token);
            if open.token < *highest {
                self.stale += 1;
                self.refused.push(open.own());
                return;
            }
            *highest = open.token;
            // One worker never has two attempts at a key, under whichever tokens.
            let is_stale = |other: &Open| {
                let is_lower = other.token < open.token;
                is_lower && other.key == open.key && other.worker != open.worker
            };
            let lower = self.break_all(line.at, is_stale);
            self.stale += lower.len();
            self.refused.extend(lower);
        }
        self.step(&open, What::Start, line.at);
        self.open.push(open);
    }

    fn end(&mut self, line: &Entry, what: What) {
        let [_, id, token] = line.numbers;
        let own = (line.process, id, token);
        let mut open = self.open.iter();
        if let Some(place) = open.position(|open| open.own() == own) {
            let open = self.open.swap_remove(place);
            self.step(&open, what, line.at);
            return;
        }
        let place = self.refused.iter().position(|refused| *refused == own);
        self.refused
            .swap_remove(place.unwrap_or_else(|| panic!("{line:?} has not begun")));
    }

    /// Ends the open attempts of which this is so. Returns them.
    fn break_all(&mut self, at: Duration, is_so: impl Fn(&Open) -> bool) -> Vec<Own> {
        let broken: Vec<Open> = self.open.extract_if(.., |open| is_so(open)).collect();
        for open in &broken {
            self.step(open, What::Broken, at);
        }
        broken.iter().map(Open::own).collect()
    }

    fn step(&mut self, of: &Open, what: What, at: Duration) {
        let step = Step {
            worker: of.worker,
            key: of.key,
            id: of.id,
            what,
        };
        self.steps.push((step, at));
    }

    /// Whether both attempts began in one history.
    pub(crate) fn is_judged(&self, (one, other): &(Attempt, Attempt)) -> bool {
        let of = |attempt: &Attempt| {
            self.histories
                .partition_point(|(from, _)| *from <= attempt.start)
        };
        let history = of(one);
        let is_one = history == 0 || self.histories[history - 1].1;
        is_one && history == of(other)
    }

    /// The longest of the times from these to the fault nearest to each. One that is nearer to a
    /// fault before it belongs to that one, and counts as zero.
    pub(crate) fn before_fault(&self, times: impl Iterator<Item = Duration>) -> Duration {
        let nearest = |at: &Duration| self.faults.iter().min_by_key(|fault| fault.abs_diff(*at));
        let before = times.filter_map(|at| Some(nearest(&at)?.saturating_sub(at)));
        before.max().unwrap_or_default()
    }

    pub(crate) fn ages(&self, story: &Story) -> Vec<Duration> {
        let age = |(done, again): (Attempt, Attempt)| {
            let at = |place: usize| self.steps[place].1;
            let killed = self.killed.iter();
            let killed = killed.filter(|(_, worker)| *worker == u64::from(done.worker));
            let faults = self.faults.iter().chain(killed.map(|(at, _)| at));
            let (done, again) = (at(done.end.unwrap_or(done.start)), at(again.start));
            let last = faults.filter(|fault| **fault <= again).max();
            last.copied().unwrap_or_default().saturating_sub(done)
        };
        let mut ages: Vec<_> = story.repeats().map(age).collect();
        ages.sort_unstable();
        ages
    }

    pub(crate) fn pauses(&self, sent: &[Sent]) -> Vec<Duration> {
        let mut done_at = HashMap::new();
        for (step, at) in &self.steps {
            if step.what == What::Done {
                done_at.entry(step.id).or_insert(*at);
            }
        }
        let pause = |fault: &Duration| {
            let ended = all_go_on(sent, &done_at, *fault);
            ended.expect("every key goes on after a fault") - *fault
        };
        let mut pauses: Vec<_> = self.faults.iter().map(pause).collect();
        pauses.sort_unstable();
        pauses
    }
}
