//! The tables of an inbox, the same in every store.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use clap::ValueEnum;

use crate::stores::message::{Claimed, Message, key_of};
use crate::stores::store::{Result, Store, Table, Writer};
use crate::stores::tail::Tail;

/// Which tables there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// A row per lane with its count and its first message, and an order of the lanes with work.
    Counted,
    /// A lane is numbered by the message that began it, so the messages themselves are the order of the
    /// lanes; its key is stored while it has messages. No count.
    Lean,
    /// Messages by sequence, read and removed in the order they came, and no lanes: what the store itself can
    /// do, and what an inbox costs that keeps rows per lane only for what it has to leave behind.
    Log,
    /// Messages by sequence, and an index of lane and sequence. The newest part of the index is kept in
    /// memory, and goes to the store a stretch of neighbouring lanes at a time. A lane is a hash of its key.
    Tail,
}

/// What one commit does.
#[derive(Debug, Default)]
pub struct Batch {
    /// What is accepted.
    pub accepted: Vec<Message>,
    /// What is done, by lane and sequence.
    pub done: Vec<Claimed>,
    /// What is begun: lanes and the sequences of their first messages.
    pub begun: Vec<(u64, u64)>,
    /// Up to which sequence ids are forgotten.
    pub forget: Option<u64>,
}

/// An inbox without a clock, without handlers and without replies.
#[derive(Debug)]
pub struct Inbox {
    layout: Layout,
    dedupe: bool,
    tail: RefCell<Tail>,
}

impl Inbox {
    /// An inbox with these tables, that keeps message ids or does not. `tail` is how much of the index
    /// is kept in memory.
    pub fn new(layout: Layout, dedupe: bool, tail: usize) -> Self {
        Self {
            layout,
            dedupe,
            tail: RefCell::new(Tail::new(tail)),
        }
    }

    /// Its tables.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether it keeps message ids.
    pub fn dedupes(&self) -> bool {
        self.dedupe
    }

    /// Reads what it has in memory.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub fn recover(&self, store: &dyn Store) -> Result {
        if self.layout == Layout::Tail {
            store.read(&mut |read| self.tail.borrow_mut().recover(read))?;
        }
        Ok(())
    }

    /// One commit.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub fn commit(&self, store: &dyn Store, batch: &Batch) -> Result {
        store.write(&mut |write| {
            match self.layout {
                Layout::Counted => counted(write, batch)?,
                Layout::Lean => lean(write, batch)?,
                Layout::Log => log(write, batch)?,
                Layout::Tail => self.tail.borrow_mut().commit(write, batch)?,
            }
            for &(lane, sequence) in &batch.begun {
                let mut attempts = [0; 12];
                attempts[..8].copy_from_slice(&sequence.to_be_bytes());
                attempts[11] = 1;
                write.put(Table::Attempts, &lane.to_be_bytes(), &attempts)?;
            }
            if self.dedupe {
                remember(write, batch)?;
            }
            Ok(())
        })
    }

    /// Reads messages of the lanes after a cursor: the most of one lane, and the most of all. The cursor
    /// comes back behind the last lane.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub fn claim(
        &self,
        store: &dyn Store,
        cursor: &mut u64,
        window: usize,
        limit: usize,
    ) -> Result<Vec<Claimed>> {
        let mut claimed: Vec<Claimed> = Vec::with_capacity(limit);
        store.read(&mut |read| {
            if self.layout == Layout::Tail {
                claimed = self.tail.borrow().claim(read, cursor, window, limit)?;
                return Ok(());
            }
            if self.layout == Layout::Log {
                return read.scan(
                    Table::Messages,
                    &place(0, *cursor),
                    &place(1, 0),
                    &mut |key, record| {
                        let mut one = claim_of(key, record);
                        one.lane = one.sequence;
                        *cursor = one.sequence + 1;
                        claimed.push(one);
                        claimed.len() < limit
                    },
                );
            }
            if self.layout == Layout::Counted {
                let mut lanes = Vec::new();
                read.scan(
                    Table::Order,
                    &cursor.to_be_bytes(),
                    &[u8::MAX; 9],
                    &mut |first, lane| {
                        lanes.push((number(first), number(lane)));
                        lanes.len() * window < limit
                    },
                )?;
                for (first, lane) in lanes {
                    let mut left = window;
                    read.scan(
                        Table::Messages,
                        &place(lane, first),
                        &place(lane + 1, 0),
                        &mut |key, record| {
                            claimed.push(claim_of(key, record));
                            left -= 1;
                            left > 0 && claimed.len() < limit
                        },
                    )?;
                    *cursor = first + 1;
                    if claimed.len() >= limit {
                        break;
                    }
                }
                return Ok(());
            }
            let mut more = true;
            while more && claimed.len() < limit {
                // Reads on until a lane has had its share, then steps over the rest of it.
                more = false;
                let mut of_lane = 0;
                let mut lane = None;
                read.scan(
                    Table::Messages,
                    &place(*cursor, 0),
                    &[u8::MAX; 16],
                    &mut |key, record| {
                        let this = number(key);
                        if lane != Some(this) {
                            lane = Some(this);
                            of_lane = 0;
                        } else if of_lane == window {
                            more = true;
                            return false;
                        }
                        claimed.push(claim_of(key, record));
                        of_lane += 1;
                        *cursor = this + 1;
                        claimed.len() < limit
                    },
                )?;
            }
            Ok(())
        })?;
        Ok(claimed)
    }

    /// How many messages there are.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    pub fn count(&self, store: &dyn Store) -> Result<u64> {
        let mut messages = 0;
        store.read(&mut |read| {
            read.scan(Table::Messages, &[0; 16], &[u8::MAX; 16], &mut |_, _| {
                messages += 1;
                true
            })
        })?;
        Ok(messages)
    }
}

fn log(write: &mut dyn Writer, batch: &Batch) -> Result {
    let messages = batch
        .accepted
        .iter()
        .map(|message| (place(0, message.sequence), message.record.as_slice()));
    put_messages(write, messages.collect())?;
    for done in &batch.done {
        write.remove(Table::Attempts, &done.lane.to_be_bytes())?;
    }
    remove_by_sequence(write, &batch.done)
}

/// Removes messages that are stored by sequence alone.
pub(super) fn remove_by_sequence(write: &mut dyn Writer, done: &[Claimed]) -> Result {
    let mut sequences: Vec<u64> = done.iter().map(|message| message.sequence).collect();
    sequences.sort_unstable();
    for run in sequences.chunk_by(|one, next| one + 1 == *next) {
        let places: Vec<_> = run.iter().map(|sequence| place(0, *sequence)).collect();
        write.remove_run(&places)?;
    }
    Ok(())
}

fn lean(write: &mut dyn Writer, batch: &Batch) -> Result {
    let mut lanes: HashMap<&[u8], u64> = HashMap::with_capacity(batch.accepted.len());
    let mut grown = HashSet::new();
    let mut messages = Vec::with_capacity(batch.accepted.len());
    for message in &batch.accepted {
        let lane = match lanes.get(message.key.as_slice()) {
            Some(lane) => *lane,
            None => {
                let lane = match write.get(Table::Lanes, &message.key)? {
                    Some(lane) => number(&lane),
                    None => {
                        let lane = message.sequence;
                        write.put(Table::Lanes, &message.key, &lane.to_be_bytes())?;
                        lane
                    }
                };
                lanes.insert(&message.key, lane);
                grown.insert(lane);
                lane
            }
        };
        messages.push((place(lane, message.sequence), message.record.as_slice()));
    }
    put_messages(write, messages)?;
    for done in batch.done.chunk_by(|one, next| one.lane == next.lane) {
        let last = remove_messages(write, done)?;
        let empty = !grown.contains(&last.lane) && first_after(write, last)?.is_none();
        if empty {
            write.remove(Table::Lanes, &last.key)?;
        }
    }
    Ok(())
}

struct Row {
    lane: u64,
    first: u64,
    count: u64,
    stored_first: Option<u64>,
}

fn counted(write: &mut dyn Writer, batch: &Batch) -> Result {
    let mut rows: BTreeMap<&[u8], Row> = BTreeMap::new();
    let mut messages = Vec::with_capacity(batch.accepted.len());
    let mut accepted_first: HashMap<u64, u64> = HashMap::new();
    for message in &batch.accepted {
        if !rows.contains_key(message.key.as_slice()) {
            let row = read_row(write, &message.key)?.unwrap_or(Row {
                lane: message.sequence,
                first: message.sequence,
                count: 0,
                stored_first: None,
            });
            rows.insert(&message.key, row);
        }
        let row = rows
            .get_mut(message.key.as_slice())
            .expect("the row was just inserted");
        row.count += 1;
        accepted_first.entry(row.lane).or_insert(message.sequence);
        messages.push((place(row.lane, message.sequence), message.record.as_slice()));
    }
    for done in batch.done.chunk_by(|one, next| one.lane == next.lane) {
        let last = remove_messages(write, done)?;
        if !rows.contains_key(last.key.as_slice()) {
            let row = read_row(write, &last.key)?.ok_or("a message without a lane")?;
            rows.insert(&last.key, row);
        }
        let first = first_after(write, last)?;
        let row = rows
            .get_mut(last.key.as_slice())
            .expect("the row was just inserted");
        row.count -= done.len() as u64;
        if row.count > 0 {
            row.first = first
                .or_else(|| accepted_first.get(&row.lane).copied())
                .ok_or("a lane with a count and without messages")?;
        }
    }
    put_messages(write, messages)?;
    for (key, row) in rows {
        let first = (row.count > 0).then_some(row.first);
        if let Some(stored) = row.stored_first
            && first != Some(stored)
        {
            write.remove(Table::Order, &stored.to_be_bytes())?;
        }
        match first {
            Some(first) => {
                if row.stored_first != Some(first) {
                    write.put(Table::Order, &first.to_be_bytes(), &row.lane.to_be_bytes())?;
                }
                let mut value = [0; 24];
                value[..8].copy_from_slice(&row.lane.to_be_bytes());
                value[8..16].copy_from_slice(&first.to_be_bytes());
                value[16..].copy_from_slice(&row.count.to_be_bytes());
                write.put(Table::Lanes, key, &value)?;
            }
            None => write.remove(Table::Lanes, key)?,
        }
    }
    Ok(())
}

fn read_row(write: &dyn Writer, key: &[u8]) -> Result<Option<Row>> {
    Ok(write.get(Table::Lanes, key)?.map(|value| Row {
        lane: number(&value),
        first: number(&value[8..]),
        count: number(&value[16..]),
        stored_first: Some(number(&value[8..])),
    }))
}

pub(super) fn put_messages(write: &mut dyn Writer, mut messages: Vec<([u8; 16], &[u8])>) -> Result {
    messages.sort_unstable_by_key(|(place, _)| *place);
    for (place, record) in messages {
        write.put(Table::Messages, &place, record)?;
    }
    Ok(())
}

/// Removes messages of one lane and its attempts, and says which one was the last.
fn remove_messages<'a>(write: &mut dyn Writer, done: &'a [Claimed]) -> Result<&'a Claimed> {
    let places: Vec<_> = done
        .iter()
        .map(|message| place(message.lane, message.sequence))
        .collect();
    write.remove_run(&places)?;
    let last = done.last().ok_or("a lane without messages")?;
    write.remove(Table::Attempts, &last.lane.to_be_bytes())?;
    Ok(last)
}

/// The first message of the lane behind one. What the same commit accepts may or may not count.
fn first_after(write: &dyn Writer, message: &Claimed) -> Result<Option<u64>> {
    let mut first = None;
    write.scan(
        Table::Messages,
        &place(message.lane, message.sequence + 1),
        &place(message.lane + 1, 0),
        &mut |key, _| {
            first = Some(number(&key[8..]));
            false
        },
    )?;
    Ok(first)
}

/// Looks for duplicates, keeps the ids, and forgets old ones.
fn remember(write: &mut dyn Writer, batch: &Batch) -> Result {
    for message in &batch.accepted {
        if write.get(Table::Seen, &message.id)?.is_some() {
            return Err("no message is sent twice here".into());
        }
        let sequence = message.sequence.to_be_bytes();
        write.put(Table::Seen, &message.id, &sequence)?;
        write.put(Table::Expiry, &sequence, &message.id)?;
    }
    let Some(forget) = batch.forget else {
        return Ok(());
    };
    let mut old = Vec::new();
    let from = forget.saturating_sub(4 * batch.accepted.len() as u64);
    write.scan(
        Table::Expiry,
        &from.to_be_bytes(),
        &forget.to_be_bytes(),
        &mut |sequence, id| {
            old.push((sequence.to_vec(), id.to_vec()));
            true
        },
    )?;
    for (sequence, id) in old {
        write.remove(Table::Expiry, &sequence)?;
        write.remove(Table::Seen, &id)?;
    }
    Ok(())
}

pub(super) fn claim_of(key: &[u8], record: &[u8]) -> Claimed {
    Claimed {
        lane: number(key),
        sequence: number(&key[8..]),
        key: key_of(record).to_vec(),
    }
}

pub(super) fn place(lane: u64, sequence: u64) -> [u8; 16] {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&lane.to_be_bytes());
    place[8..].copy_from_slice(&sequence.to_be_bytes());
    place
}

pub(super) fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}
