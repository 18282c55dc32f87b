//! What the lines of a journal say of terms.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::record::Event;
use super::{Fault, Write};
use crate::Entry;

/// A term, as its process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenure {
    /// The process.
    pub process: u32,
    /// The token of the term.
    pub token: u64,
}

/// What has become of a term.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) hand_overs: usize,
    /// Its process was killed before it has handed over.
    pub(super) is_killed: bool,
    /// Its process was paused. What it did from then on is a tail.
    is_paused: bool,
    is_over: bool,
}

/// A fault that no leader has followed yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    fault: Fault,
    token: u64,
    successor: u64,
    at: Duration,
}

/// What is read from the lines, in the order in which they were written.
#[derive(Debug, Default)]
pub(super) struct Court {
    pub(super) lives: HashMap<Tenure, Life>,
    /// The last term that began.
    newest: Option<Tenure>,
    open: Option<Open>,
    /// The token of the leader, while it is to stay, and whether its loss is no excuse.
    stays: Option<(u64, bool)>,
    pub(super) gaps: Vec<(Fault, Duration)>,
    pub(super) faults: usize,
    pub(super) overlapping: Vec<(Tenure, Tenure)>,
    pub(super) early: Vec<(Tenure, Tenure)>,
    pub(super) not_inaugurated: Vec<Tenure>,
    pub(super) preempted: Vec<Tenure>,
    pub(super) passed_over: Vec<Tenure>,
    pub(super) accepted: HashSet<Write>,
    pub(super) refused: usize,
    pub(super) tails: usize,
}

impl Court {
    pub(super) fn hear(&mut self, line: &Entry) {
        let [token, number, _] = line.numbers;
        let process = line.process;
        let own = Tenure { process, token };
        match Event::of(line) {
            Event::Sees | Event::Unknown | Event::Resumed => {}
            Event::Inaugurated => self.inaugurated(own, line.at),
            Event::Executes | Event::Writes | Event::Stopped => self.acts(own),
            Event::Accepted => _ = self.accepted.insert(Write { token, number }),
            Event::Refused => self.refused += 1,
            Event::HandsOver => self.hands_over(own, number == 1),
            Event::HandedOver => self.handed_over(own, number == 1),
            Event::Stays => self.stays = Some((token, number == 1)),
            Event::Fault => self.fault(line),
            Event::Killed => self.of_process(token, |life| {
                life.is_killed |= !life.is_over;
                life.is_over = true;
            }),
            Event::Paused => self.of_process(token, |life| life.is_paused |= !life.is_over),
        }
    }

    fn fault(&mut self, line: &Entry) {
        let [fault, token, successor] = line.numbers;
        self.faults += 1;
        self.stays = None;
        // A leader that was lost by itself just before has chosen no successor.
        let mut lives = self.lives.iter();
        let is_over = lives.any(|(own, life)| own.token == token && life.is_over);
        self.open = Some(Open {
            fault: Fault::of(fault),
            token,
            successor: if is_over { 0 } else { successor },
            at: line.at,
        });
    }

    fn inaugurated(&mut self, own: Tenure, at: Duration) {
        self.lives.entry(own).or_default();
        let newest = self.newest.filter(|newest| newest.token >= own.token);
        if let Some(newest) = newest {
            self.overlapping.push((own, newest));
            return;
        }
        self.newest = Some(own);
        if self.stays.is_some_and(|(token, _)| token < own.token) {
            self.preempted.push(own);
            self.stays = None;
        }
        if let Some(open) = self.open.filter(|open| open.token < own.token) {
            self.gaps.push((open.fault, at.saturating_sub(open.at)));
            if ![0, u64::from(own.process)].contains(&open.successor) {
                self.passed_over.push(own);
            }
            self.open = None;
        }
    }

    /// A term does something. A later one must not have begun.
    fn acts(&mut self, own: Tenure) {
        if let Some(newer) = self.newer(own) {
            match self.is_paused(own) {
                true => self.tails += 1,
                false => self.overlapping.push((own, newer)),
            }
        }
    }

    fn hands_over(&mut self, own: Tenure, is_lost: bool) {
        let Some(life) = self.lives.get_mut(&own) else {
            self.not_inaugurated.push(own);
            return;
        };
        life.hand_overs += 1;
        life.is_over = true;
        if is_lost {
            // It has not left for another candidate.
            let is_excused = |(token, is_strict): &(u64, bool)| *token == own.token && !is_strict;
            self.stays = self.stays.filter(|stays| !is_excused(stays));
            if let Some(open) = self.open.as_mut().filter(|open| open.token == own.token) {
                open.successor = 0;
            }
        }
    }

    fn handed_over(&mut self, own: Tenure, is_held: bool) {
        if let Some(newer) = self.newer(own).filter(|_| is_held && !self.is_paused(own)) {
            self.early.push((own, newer));
        }
    }

    fn newer(&self, own: Tenure) -> Option<Tenure> {
        self.newest.filter(|newest| newest.token > own.token)
    }

    fn is_paused(&self, own: Tenure) -> bool {
        self.lives.get(&own).is_some_and(|life| life.is_paused)
    }

    fn of_process(&mut self, process: u64, change: impl Fn(&mut Life)) {
        let lives = self.lives.iter_mut();
        for (_, life) in lives.filter(|(own, _)| u64::from(own.process) == process) {
            change(life);
        }
    }
}
