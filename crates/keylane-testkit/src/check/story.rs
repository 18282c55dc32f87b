//! Reads a history once, and indexes it by message and by key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use tokio::time::Instant;

use super::evidence::Evidence;
use crate::events::{Acceptance, Event, Id, Key, Outcome, Record, Token};

/// The most lines of an excerpt.
const LINES: usize = 16;
/// Events of the same key shown on either side of a marked one.
const AROUND: usize = 2;

/// A history with its indexes. Positions are places in `records`.
#[derive(Debug)]
pub(super) struct Story<'a> {
    pub(super) records: &'a [Record],
    pub(super) evidence: &'a Evidence,
    pub(super) messages: BTreeMap<Id, Message>,
    /// The ids of a key by their place in it.
    pub(super) keys: BTreeMap<Key, Vec<Id>>,
    /// Every attempt, in the order of the starts.
    pub(super) runs: Vec<Run>,
    pub(super) breaks: Vec<Break>,
    pub(super) sink_writes: Vec<SinkWrite>,
    /// Ends that match no start.
    pub(super) stray_ends: Vec<usize>,
    pub(super) has_acks: bool,
}

/// All events of one message.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) key: Option<Key>,
    pub(super) seq: u64,
    /// `None` if it was never sent.
    pub(super) acceptance: Option<Acceptance>,
    /// Where it was sent.
    pub(super) sent: Option<usize>,
    /// Where it was accepted a second time, which is never allowed.
    pub(super) sent_again: Vec<usize>,
    /// Its attempts, as indexes of [`Story::runs`].
    pub(super) runs: Vec<usize>,
    /// Where its handler succeeded.
    pub(super) done: Vec<usize>,
    /// Where its letter became durable.
    pub(super) dead: Vec<usize>,
    /// Where an ack was requested, confirmed or lost.
    pub(super) acks: Vec<usize>,
    /// Where an ack was first confirmed.
    pub(super) confirmed: Option<usize>,
    pub(super) coalesced: Option<(usize, Id)>,
    /// Where its first event other than a send is.
    pub(super) touched: Option<usize>,
}

impl Message {
    pub(super) fn is_accepted(&self) -> bool {
        self.acceptance == Some(Acceptance::Ok)
    }

    /// Returns whether its ack was not confirmed before `position`.
    pub(super) fn is_unconfirmed_at(&self, position: usize) -> bool {
        self.confirmed.is_none_or(|confirmed| confirmed > position)
    }
}

/// One attempt.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: Id,
    pub(super) attempt: u32,
    pub(super) token: Token,
    pub(super) start: usize,
    /// Where it ended, or where a crash ended it.
    pub(super) end: Option<usize>,
    /// How it ended. `None` while it runs, and after a crash.
    pub(super) outcome: Option<Outcome>,
}

impl Run {
    pub(super) fn is_open_at(&self, position: usize) -> bool {
        self.start < position && self.end.is_none_or(|end| end >= position)
    }
}

/// A crash, or a revoke if the epoch is `None`.
#[derive(Debug)]
pub(super) struct Break {
    pub(super) at: usize,
    pub(super) epoch: Option<Token>,
}

impl Break {
    /// Returns whether an attempt under `token` may be redelivered because of this break.
    pub(super) fn concerns(&self, token: Token) -> bool {
        self.epoch.is_none_or(|epoch| token <= epoch)
    }
}

/// A write to a sink.
#[derive(Debug)]
pub(super) struct SinkWrite {
    pub(super) at: usize,
    pub(super) key: Key,
    pub(super) token: Token,
    pub(super) accepted: bool,
}

impl<'a> Story<'a> {
    pub(super) fn read(records: &'a [Record], evidence: &'a Evidence) -> Self {
        let mut story = Self {
            records,
            evidence,
            messages: BTreeMap::new(),
            keys: BTreeMap::new(),
            runs: Vec::new(),
            breaks: Vec::new(),
            sink_writes: Vec::new(),
            stray_ends: Vec::new(),
            has_acks: false,
        };
        let mut open = HashMap::new();
        let mut killed = BTreeSet::new();
        for (at, record) in records.iter().enumerate() {
            story.turn(at, record.event, &mut open, &mut killed);
        }
        story.sort_keys();
        story
    }

    /// Returns the key of a message. `None` if it is keyless or was never sent.
    pub(super) fn key_of(&self, id: Id) -> Option<Key> {
        self.messages.get(&id).and_then(|message| message.key)
    }

    pub(super) fn time(&self, position: usize) -> Instant {
        self.records[position].at
    }

    /// Returns the time of the last record.
    pub(super) fn last_time(&self) -> Option<Instant> {
        let last = self.records.last().map(|record| record.at);
        self.evidence.quiescent.max(last)
    }

    /// Returns the attempts of each key, in the order of the starts.
    pub(super) fn runs_by_key(&self) -> BTreeMap<Key, Vec<&Run>> {
        let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for run in &self.runs {
            if let Some(key) = self.key_of(run.id) {
                runs.entry(key).or_default().push(run);
            }
        }
        runs
    }

    pub(super) fn runs_of<'s>(&'s self, message: &'s Message) -> impl Iterator<Item = &'s Run> {
        message.runs.iter().map(|&index| &self.runs[index])
    }

    /// Returns the breaks strictly between two positions.
    pub(super) fn breaks_between(&self, from: usize, to: usize) -> &[Break] {
        let first = self.breaks.partition_point(|b| b.at <= from);
        let last = self.breaks.partition_point(|b| b.at < to);
        &self.breaks[first..last.max(first)]
    }

    /// Returns where the message, or the message it was coalesced into, was first done or durably
    /// dead.
    pub(super) fn settled_at(&self, id: Id) -> Option<usize> {
        self.stand_ins(id).find_map(|id| {
            let message = self.messages.get(&id)?;
            message
                .done
                .first()
                .into_iter()
                .chain(message.dead.first())
                .min()
                .copied()
        })
    }

    /// Returns whether the message, or the message it was coalesced into, is settled in any way.
    pub(super) fn is_settled(&self, id: Id) -> bool {
        self.settled_at(id).is_some() || self.is_excused(id)
    }

    /// Returns whether the test says that the message, or the message it was coalesced into,
    /// settled without being handled: handed back, discarded, a duplicate, expired.
    pub(super) fn is_excused(&self, id: Id) -> bool {
        let Evidence {
            handed_back,
            discarded,
            duplicates,
            expired,
            ..
        } = self.evidence;
        let named =
            |ids: &Option<BTreeSet<Id>>, id: Id| ids.as_ref().is_some_and(|ids| ids.contains(&id));
        self.stand_ins(id).any(|id| {
            let by_policy = handed_back.contains(&id) || discarded.contains(&id);
            by_policy || named(duplicates, id) || named(expired, id)
        })
    }

    /// Returns the message, the message it was coalesced into, and so on, each once.
    fn stand_ins(&self, id: Id) -> impl Iterator<Item = Id> {
        let mut seen = BTreeSet::new();
        let next = |id: &Id| self.messages.get(id)?.coalesced.map(|(_, into)| into);
        std::iter::successors(Some(id), next).take_while(move |&id| seen.insert(id))
    }

    /// Returns the marked events and their neighbours: events of the same key and of the given
    /// messages, crashes and revokes.
    pub(super) fn excerpt(&self, key: Option<Key>, ids: &[Id], marked: &[usize]) -> String {
        let concerned: Vec<usize> = (0..self.records.len())
            .filter(|&at| marked.contains(&at) || self.concerns(at, key, ids))
            .collect();
        let mut shown = BTreeSet::new();
        for (place, at) in concerned.iter().enumerate() {
            if marked.contains(at) {
                let last = (place + AROUND + 1).min(concerned.len());
                shown.extend(&concerned[place.saturating_sub(AROUND)..last]);
            }
        }
        let mut text = String::new();
        let mut before = None;
        for &at in shown.iter().take(LINES) {
            let place = concerned.partition_point(|&other| other < at);
            if before.is_some_and(|before| place > before + 1) {
                text += "      …\n";
            }
            before = Some(place);
            self.write_line(&mut text, at, marked.contains(&at));
        }
        if shown.len() > LINES {
            text += "      …\n";
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn concerns(&self, at: usize, key: Option<Key>, ids: &[Id]) -> bool {
        match self.records[at].event {
            Event::Crash { .. } | Event::Revoke { .. } => true,
            Event::SinkWrite { key: written, .. } => key == Some(written),
            Event::Coalesced { id, into } if ids.contains(&into) || ids.contains(&id) => true,
            event => event
                .id()
                .is_some_and(|id| ids.contains(&id) || (key.is_some() && self.key_of(id) == key)),
        }
    }

    fn write_line(&self, text: &mut String, at: usize, marked: bool) {
        let record = &self.records[at];
        let mark = if marked { '>' } else { ' ' };
        let seconds = (record.at - self.records[0].at).as_secs_f64();
        let event = record.event;
        // Writing to a String cannot fail.
        let _ = write!(text, "  {mark} #{at} +{seconds:.3}s {event}");
        if !matches!(event, Event::Sent { .. })
            && let Some(message) = event.id().and_then(|id| self.messages.get(&id))
            && let Some(key) = message.key
        {
            let _ = write!(text, " (key {key} seq {})", message.seq);
        }
        text.push('\n');
    }

    /// Adds one event. `open` holds the running attempts of each message. `killed` holds the
    /// attempts that a crash ended; their futures may still report that they were dropped.
    fn turn(
        &mut self,
        at: usize,
        event: Event,
        open: &mut HashMap<Id, Vec<usize>>,
        killed: &mut BTreeSet<(Id, u32)>,
    ) {
        match event {
            Event::Sent {
                key,
                seq,
                id,
                acceptance,
            } => {
                self.messages
                    .entry(id)
                    .or_default()
                    .admit(at, key, seq, acceptance);
                return;
            }
            Event::Start { id, attempt, token } => {
                let run = self.runs.len();
                self.runs.push(Run {
                    id,
                    attempt,
                    token,
                    start: at,
                    end: None,
                    outcome: None,
                });
                self.messages.entry(id).or_default().runs.push(run);
                open.entry(id).or_default().push(run);
            }
            Event::End {
                id,
                attempt,
                outcome,
            } => {
                let of_id = open.entry(id).or_default();
                let place = of_id
                    .iter()
                    .rposition(|&run| self.runs[run].attempt == attempt);
                if let Some(place) = place {
                    let run = &mut self.runs[of_id.remove(place)];
                    run.end = Some(at);
                    run.outcome = Some(outcome);
                    if outcome == Outcome::Ok {
                        self.messages.entry(id).or_default().done.push(at);
                    }
                } else if !killed.remove(&(id, attempt)) {
                    self.stray_ends.push(at);
                }
            }
            Event::AckReq { id } | Event::AckUnknown { id } => {
                self.has_acks = true;
                self.messages.entry(id).or_default().acks.push(at);
            }
            Event::AckOk { id } => {
                self.has_acks = true;
                let message = self.messages.entry(id).or_default();
                message.acks.push(at);
                message.confirmed.get_or_insert(at);
            }
            Event::Dead { id } => self.messages.entry(id).or_default().dead.push(at),
            Event::Coalesced { id, into } => {
                self.messages
                    .entry(id)
                    .or_default()
                    .coalesced
                    .get_or_insert((at, into));
                self.messages
                    .entry(into)
                    .or_default()
                    .touched
                    .get_or_insert(at);
            }
            Event::Crash { epoch } => {
                self.breaks.push(Break {
                    at,
                    epoch: Some(epoch),
                });
                for of_id in open.values_mut() {
                    of_id.retain(|&run| {
                        let run = &mut self.runs[run];
                        let dies = run.token <= epoch;
                        if dies {
                            run.end = Some(at);
                            killed.insert((run.id, run.attempt));
                        }
                        !dies
                    });
                }
            }
            Event::Revoke { .. } => self.breaks.push(Break { at, epoch: None }),
            Event::SinkWrite {
                key,
                token,
                accepted,
            } => {
                self.sink_writes.push(SinkWrite {
                    at,
                    key,
                    token,
                    accepted,
                });
            }
        }
        if let Some(id) = event.id() {
            self.messages
                .entry(id)
                .or_default()
                .touched
                .get_or_insert(at);
        }
    }

    fn sort_keys(&mut self) {
        for (&id, message) in &self.messages {
            if let Some(key) = message.key {
                self.keys.entry(key).or_default().push(id);
            }
        }
        for ids in self.keys.values_mut() {
            ids.sort_by_key(|id| self.messages[id].seq);
        }
    }
}

impl Message {
    fn admit(&mut self, at: usize, key: Option<Key>, seq: u64, acceptance: Acceptance) {
        let was_refused = self
            .acceptance
            .is_none_or(|before| before == Acceptance::Fail);
        if !was_refused {
            if acceptance != Acceptance::Fail {
                self.sent_again.push(at);
            }
            return;
        }
        self.key = key;
        self.seq = seq;
        self.acceptance = Some(acceptance);
        self.sent = Some(at);
    }
}
