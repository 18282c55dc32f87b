//! Each spoiler breaks a good history by one change.

use std::collections::BTreeMap;

use crate::check::rule::Rule;
use crate::events::{Acceptance, Event, Id, Key, Outcome, Record};

/// A spoiled history, and the rule that must report it.
pub(super) type Spoiled = (Rule, Vec<Record>);

/// Returns every way to spoil a history without crashes.
pub(super) fn spoilers(records: &[Record]) -> Vec<Spoiled> {
    let mut spoiler = Spoiler {
        records,
        sends: BTreeMap::new(),
        spoiled: Vec::new(),
    };
    for record in records {
        if let Event::Sent {
            key,
            id,
            acceptance,
            ..
        } = record.event
        {
            spoiler.sends.insert(id, (key, acceptance));
        }
    }
    for (at, record) in records.iter().enumerate() {
        match record.event {
            Event::Sent { id, .. } => spoiler.spoil_send(at, id),
            Event::Start { id, .. } => spoiler.spoil_start(at, id),
            Event::End {
                id,
                attempt,
                outcome,
            } => spoiler.spoil_end(at, id, attempt, outcome),
            Event::AckReq { id } => spoiler.spoil_ack(at, id),
            Event::Dead { id } => spoiler.spoil_letter(at, id),
            Event::SinkWrite { key, token, .. } => spoiler.spoil_write(key, token),
            _ => {}
        }
    }
    spoiler.spoiled
}

#[derive(Debug)]
struct Spoiler<'a> {
    records: &'a [Record],
    sends: BTreeMap<Id, (Option<Key>, Acceptance)>,
    spoiled: Vec<Spoiled>,
}

impl Spoiler<'_> {
    /// A message that was handled was never sent, or was refused.
    fn spoil_send(&mut self, at: usize, id: Id) {
        if self
            .place(|e| matches!(e, Event::Start { id: other, .. } if *other == id))
            .is_some()
        {
            self.spoiled.push((Rule::NoInvention, self.without(at)));
            let mut refused = self.records.to_vec();
            if let Event::Sent { acceptance, .. } = &mut refused[at].event {
                *acceptance = Acceptance::Fail;
            }
            self.spoiled.push((Rule::NoInvention, refused));
        }
    }

    /// This message and the one before it on its key change places, except for their sends.
    fn spoil_start(&mut self, at: usize, id: Id) {
        let earlier = self.records[..at]
            .iter()
            .rev()
            .find_map(|record| match record.event {
                Event::Start { id: other, .. } if self.same_key(other, id) => Some(other),
                _ => None,
            });
        let Some(before) = earlier.filter(|&before| before != id) else {
            return;
        };
        let mut swapped = self.records.to_vec();
        for record in &mut swapped {
            if let Event::Start { id: other, .. } | Event::End { id: other, .. } = &mut record.event
            {
                *other = match *other {
                    other if other == id => before,
                    other if other == before => id,
                    other => other,
                };
            }
        }
        self.spoiled.push((Rule::Order, swapped));
    }

    /// The next attempt of the key starts before this one ends. Or a settlement is forgotten. Or a
    /// settled message starts again after the drain.
    fn spoil_end(&mut self, at: usize, id: Id, attempt: u32, outcome: Outcome) {
        let next = self.records[at..]
            .iter()
            .position(|record| match record.event {
                Event::Start { id: other, .. } => self.same_key(other, id),
                _ => false,
            });
        if let Some(next) = next {
            self.spoiled
                .push((Rule::Exclusion, self.moved(at + next, at)));
        }
        if outcome == Outcome::Ok {
            let again = Event::Start {
                id,
                attempt: attempt + 1,
                token: 1,
            };
            self.spoiled.push((Rule::Duplicates, self.appended(again)));
            self.spoiled.push((Rule::Drain, self.appended(again)));
            self.spoiled.push((Rule::Drain, self.without(at)));
            self.lose(at, id);
        }
    }

    /// The ack is requested just before the event that allows it.
    fn spoil_ack(&mut self, at: usize, id: Id) {
        let settled = self.place(|event| match *event {
            Event::End {
                id: other,
                outcome: Outcome::Ok,
                ..
            } => other == id,
            Event::Dead { id: other } => other == id,
            _ => false,
        });
        if let Some(settled) = settled {
            self.spoiled.push((Rule::Acks, self.moved(at, settled)));
        }
    }

    /// The letter comes before the last attempt has ended, comes twice, or does not come.
    fn spoil_letter(&mut self, at: usize, id: Id) {
        let end = self.records[..at].iter().rposition(
            |record| matches!(record.event, Event::End { id: other, .. } if other == id),
        );
        if let Some(end) = end {
            self.spoiled.push((Rule::DeadLetters, self.moved(at, end)));
        }
        self.spoiled
            .push((Rule::DeadLetters, self.appended(Event::Dead { id })));
        self.lose(at, id);
    }

    /// At the end a write with an older token is accepted.
    fn spoil_write(&mut self, key: Key, token: u64) {
        let older = Event::SinkWrite {
            key,
            token: token - 1,
            accepted: true,
        };
        self.spoiled.push((Rule::Fencing, self.appended(older)));
    }

    fn lose(&mut self, at: usize, id: Id) {
        if self.sends[&id].1 == Acceptance::Ok {
            self.spoiled.push((Rule::NoLoss, self.without(at)));
        }
    }

    fn place(&self, is: impl Fn(&Event) -> bool) -> Option<usize> {
        self.records.iter().position(|record| is(&record.event))
    }

    fn same_key(&self, one: Id, other: Id) -> bool {
        self.sends[&one].0.is_some() && self.sends[&one].0 == self.sends[&other].0
    }

    fn without(&self, at: usize) -> Vec<Record> {
        let mut records = self.records.to_vec();
        records.remove(at);
        records
    }

    fn moved(&self, from: usize, to: usize) -> Vec<Record> {
        let mut records = self.without(from);
        records.insert(
            to,
            Record {
                at: self.records[to].at,
                ..self.records[from]
            },
        );
        records
    }

    fn appended(&self, event: Event) -> Vec<Record> {
        let mut records = self.records.to_vec();
        records.extend(
            self.records
                .last()
                .map(|last| Record { at: last.at, event }),
        );
        records
    }
}
