//! Messages in the order they came, and an index that is written late.
//!
//! The newest part of the index is in memory. What is done before its turn to be written comes never
//! touches the stored index. What is not is written a stretch of neighbouring lanes at a time, so that a
//! commit changes few pages. After a crash the messages since the last two rounds of the lanes are read again.

use std::collections::{BTreeSet, HashSet};

use crate::stores::inbox::{Batch, number, place, put_messages, remove_by_sequence};
use crate::stores::message::{Claimed, key_of};
use crate::stores::store::{Reader, Result, Table, Writer};

/// The key under which it is stored from which message on the index may lack some.
const BOUND: &[u8] = b"bound";

/// The part of the index in memory.
#[derive(Debug)]
pub(super) struct Tail {
    keep: usize,
    entries: BTreeSet<(u64, u64)>,
    turn: (u64, u64),
    newest: u64,
    // The newest messages when this round of the lanes began, and the one before.
    rounds: [u64; 2],
}

impl Tail {
    pub(super) fn new(keep: usize) -> Self {
        Self {
            keep,
            entries: BTreeSet::new(),
            turn: (0, 0),
            newest: 0,
            rounds: [0; 2],
        }
    }

    pub(super) fn recover(&mut self, read: &dyn Reader) -> Result {
        let bound = read.get(Table::Lanes, BOUND)?;
        let bound = bound.map_or(0, |bound| number(&bound));
        let mut entries = Vec::new();
        read.scan(
            Table::Messages,
            &place(0, bound),
            &place(1, 0),
            &mut |key, record| {
                entries.push((lane_of(key_of(record)), number(&key[8..])));
                true
            },
        )?;
        for (lane, sequence) in entries {
            self.newest = sequence;
            if read.get(Table::Index, &place(lane, sequence))?.is_none() {
                self.entries.insert((lane, sequence));
            }
        }
        self.rounds = [bound, bound];
        Ok(())
    }

    pub(super) fn commit(&mut self, write: &mut dyn Writer, batch: &Batch) -> Result {
        let messages = batch
            .accepted
            .iter()
            .map(|message| (place(0, message.sequence), message.record.as_slice()));
        put_messages(write, messages.collect())?;
        remove_by_sequence(write, &batch.done)?;
        let mut attempted = HashSet::new();
        for done in &batch.done {
            if !self.entries.remove(&(done.lane, done.sequence)) {
                write.remove(Table::Index, &place(done.lane, done.sequence))?;
            }
            if attempted.insert(done.lane) {
                write.remove(Table::Attempts, &done.lane.to_be_bytes())?;
            }
        }
        self.spill(write, batch.accepted.len())?;
        for message in &batch.accepted {
            self.newest = message.sequence;
            self.entries
                .insert((lane_of(&message.key), message.sequence));
        }
        Ok(())
    }

    fn spill(&mut self, write: &mut dyn Writer, accepted: usize) -> Result {
        if self.entries.len() + accepted <= self.keep {
            return Ok(());
        }
        // Two for each that comes, until there is room: lanes early in the round would otherwise fill up.
        let some: Vec<_> = self
            .entries
            .range(self.turn..)
            .take(2 * accepted)
            .copied()
            .collect();
        for (lane, sequence) in &some {
            write.put(Table::Index, &place(*lane, *sequence), &[])?;
            self.entries.remove(&(*lane, *sequence));
        }
        match some.last() {
            Some((lane, sequence)) => self.turn = (*lane, *sequence + 1),
            None => {
                self.turn = (0, 0);
                write.put(Table::Lanes, BOUND, &self.rounds[1].to_be_bytes())?;
                self.rounds = [self.newest, self.rounds[0]];
            }
        }
        Ok(())
    }

    pub(super) fn claim(
        &self,
        read: &dyn Reader,
        cursor: &mut u64,
        window: usize,
        limit: usize,
    ) -> Result<Vec<Claimed>> {
        let mut places = BTreeSet::new();
        let mut next = *cursor;
        let mut more = true;
        while more && places.len() < limit {
            more = false;
            let mut share = Share::new(window);
            read.scan(
                Table::Index,
                &place(next, 0),
                &[u8::MAX; 16],
                &mut |key, _| {
                    let lane = number(key);
                    if !share.takes(lane) {
                        more = true;
                        return false;
                    }
                    next = lane.saturating_add(1);
                    places.insert((lane, number(&key[8..])));
                    places.len() < limit
                },
            )?;
        }
        let mut share = Share::new(window);
        let tail = self.entries.range((*cursor, 0)..);
        places.extend(tail.filter(|(lane, _)| share.takes(*lane)).take(limit));
        let mut share = Share::new(window);
        let mut claimed = Vec::with_capacity(limit);
        for (lane, sequence) in places {
            if !share.takes(lane) {
                continue;
            }
            let record = read
                .get(Table::Messages, &place(0, sequence))?
                .ok_or("an index without its message")?;
            claimed.push(Claimed {
                lane,
                sequence,
                key: key_of(&record).to_vec(),
            });
            *cursor = lane.saturating_add(1);
            if claimed.len() == limit {
                break;
            }
        }
        Ok(claimed)
    }
}

/// So many of each lane.
struct Share {
    window: usize,
    lane: Option<u64>,
    taken: usize,
}

impl Share {
    fn new(window: usize) -> Self {
        Self {
            window,
            lane: None,
            taken: 0,
        }
    }

    fn takes(&mut self, lane: u64) -> bool {
        if self.lane != Some(lane) {
            self.lane = Some(lane);
            self.taken = 0;
        }
        self.taken += 1;
        self.taken <= self.window
    }
}

/// FNV-1a, stirred.
fn lane_of(key: &[u8]) -> u64 {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 29)
}
