//! Applies calls to the tables, within one transaction.

use std::ops::Bound;

use bytes::Bytes;
use redb::{ReadableTable, ReadableTableMetadata, Table, TableDefinition, WriteTransaction};

use super::fault::{Fault, Wrapped};
use super::tables::{KNOWN, KNOWN_BY_TIME, LETTERS, MESSAGES, ROW_BYTES, Totals, VERSIONS};
use crate::letter::{self, Ending};
use crate::message::NewMessage;
use crate::record::{self, DecodeError};
use crate::store::{Accepted, Settled};

type Rows<'a, V> = Table<'a, u64, V>;
type TimeRow = (u64, u64, u8);

/// How long, and how many, ids and versions are remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) window_ms: u64,
    pub(super) most: u64,
}

/// The tables of one transaction. Most commits need one or two of them, and each costs a lookup.
pub(super) struct Applied<'a> {
    transaction: &'a WriteTransaction,
    before: Totals,
    totals: Totals,
    history: u64,
    now_ms: u64,
    memory: Memory,
    /// Whether there is anything to commit.
    changed: bool,
    remembered: u32,
    new: NewRecords,
    /// Messages that are done, and still in their table.
    done: Vec<u64>,
    messages: Rows<'a, &'static [u8]>,
    letters: Option<Rows<'a, &'static [u8]>>,
    known: Option<Known<'a>>,
    versions: Option<Table<'a, &'static [u8], u64>>,
}

/// Records that are not in their table yet. They become its last rows, whatever else the
/// transaction does: many of them are appended at the end, which costs half as much as one by one.
#[derive(Default)]
struct NewRecords {
    bytes: Vec<u8>,
    /// The sequence of each record, and its end.
    ends: Vec<(u64, usize)>,
}

/// A record above this size is written at once, and not copied once more.
const LARGE_RECORD: usize = 64 << 10;

/// From so many rows on a cursor appends them: it costs more to set up, and half as much for each
/// row.
const WORTH_A_CURSOR: usize = 16;

/// Rows that are no further apart than this are removed in one pass, which also reads the rows
/// between them.
const NEAR: u64 = 64;

struct Known<'a> {
    rows: Table<'a, &'static [u8], (u64, u64)>,
    by_time: Table<'a, TimeRow, &'static [u8]>,
}

impl<'a> Applied<'a> {
    pub(super) fn new(
        transaction: &'a WriteTransaction,
        totals: Totals,
        history: u64,
        now_ms: u64,
        memory: Memory,
    ) -> Result<Self, Wrapped> {
        Ok(Self {
            transaction,
            before: totals,
            totals,
            history,
            now_ms,
            memory,
            changed: false,
            remembered: 0,
            new: NewRecords::default(),
            done: Vec::new(),
            messages: transaction.open_table(MESSAGES)?,
            letters: None,
            known: None,
            versions: None,
        })
    }

    pub(super) fn accept(&mut self, message: &NewMessage) -> Result<Accepted, Wrapped> {
        let fingerprints = Fingerprints::of(message);
        for fingerprint in fingerprints.iter() {
            if let Some(sequence) = self.earlier(fingerprint)? {
                return Ok(Accepted::Duplicate(sequence));
            }
        }
        let sequence = self.totals.next_sequence;
        let length = record::encoded_len(message);
        if length > LARGE_RECORD {
            self.write_new()?;
            let mut row = self.messages.insert_reserve(sequence, length)?;
            record::encode(sequence, self.now_ms, message, row.as_mut());
        } else {
            let from = self.new.bytes.len();
            self.new.bytes.resize(from + length, 0);
            record::encode(sequence, self.now_ms, message, &mut self.new.bytes[from..]);
            self.new.ends.push((sequence, from + length));
        }
        self.totals.next_sequence += 1;
        self.totals.message_bytes += ROW_BYTES + length as u64;
        self.changed = true;
        for fingerprint in fingerprints.iter() {
            self.remember(sequence, fingerprint)?;
        }
        Ok(Accepted::Stored(sequence))
    }

    /// Settles a message. It is never one of the same transaction, whose sequences are not known
    /// yet.
    pub(super) fn settle(&mut self, settled: &Settled) -> Result<(), Wrapped> {
        match settled {
            Settled::Done(sequence) => {
                self.done.push(*sequence);
                Ok(())
            }
            Settled::DeadLetter {
                sequence,
                attempts,
                kind,
                error,
            } => {
                let ending = Ending {
                    attempts: *attempts,
                    kind: *kind,
                    error,
                    at_ms: self.now_ms,
                };
                self.dead_letter(*sequence, ending)
            }
        }
    }

    fn dead_letter(&mut self, sequence: u64, ending: Ending<'_>) -> Result<(), Wrapped> {
        self.remove_done()?;
        let Some(row) = self.messages.remove(sequence)? else {
            return Ok(());
        };
        let letter = letter::encode(sequence, ending, row.value());
        let bytes = ROW_BYTES + row.value().len() as u64;
        drop(row);
        self.forget_bytes(bytes);
        self.changed = true;
        self.totals.letter_bytes += ROW_BYTES + letter.len() as u64;
        self.letters()?.insert(sequence, &letter[..])?;
        Ok(())
    }

    /// Removes done messages, in passes over the table: one by one, each removal would look its row
    /// up and rewrite its page. Every lookup or insert of a row calls this first.
    fn remove_done(&mut self) -> Result<(), Wrapped> {
        let mut done = std::mem::take(&mut self.done);
        done.sort_unstable();
        done.dedup();
        for near in done.chunk_by(|earlier, later| later - earlier <= NEAR) {
            let mut removed = 0;
            let mut expected = near.iter().peekable();
            self.messages
                .retain_in(near[0]..=near[near.len() - 1], |sequence, record| {
                    while expected.next_if(|done| **done < sequence).is_some() {}
                    if expected.next_if_eq(&&sequence).is_none() {
                        return true;
                    }
                    removed += ROW_BYTES + record.len() as u64;
                    false
                })?;
            self.forget_bytes(removed);
            self.changed |= removed > 0;
        }
        Ok(())
    }

    /// Subtracts so many bytes of messages.
    fn forget_bytes(&mut self, bytes: u64) {
        // Saturating: a wrong number must not keep messages from leaving.
        self.totals.message_bytes = self.totals.message_bytes.saturating_sub(bytes);
    }

    /// Redrives a letter. Returns whether there was one.
    pub(super) fn redrive(&mut self, sequence: u64) -> Result<bool, Wrapped> {
        self.remove_done()?;
        let Some(letter) = self.take_letter(sequence)? else {
            return Ok(false);
        };
        let record = letter::record_of(sequence, letter);
        let record = record.map_err(|error| damaged(sequence, error))?;
        self.messages.insert(sequence, &record[..])?;
        self.totals.message_bytes += ROW_BYTES + record.len() as u64;
        Ok(true)
    }

    /// Removes a letter. Returns whether there was one.
    pub(super) fn purge(&mut self, sequence: u64) -> Result<bool, Wrapped> {
        Ok(self.take_letter(sequence)?.is_some())
    }

    pub(super) fn record_version(&mut self, key: &[u8], version: u64) -> Result<(), Wrapped> {
        let versions = opened(&mut self.versions, self.transaction, VERSIONS)?;
        let last = versions.get(key)?.map(|last| last.value());
        if last.is_some_and(|last| last >= version) {
            return Ok(());
        }
        versions.insert(key, version)?;
        self.changed = true;
        if last.is_none() {
            self.totals.version_bytes += ROW_BYTES + key.len() as u64;
        }
        Ok(())
    }

    /// Writes the numbers about the tables, and forgets some old marks. Returns `None` if nothing
    /// was changed: there is nothing to commit.
    pub(super) fn finish(mut self) -> Result<Option<Totals>, Wrapped> {
        self.remove_done()?;
        if !self.changed {
            return Ok(None);
        }
        self.write_new()?;
        self.forget()?;
        self.totals.commits += 1;
        self.totals = self.totals.under(self.history);
        self.totals.write(Some(self.before), self.transaction)?;
        Ok(Some(self.totals))
    }

    fn write_new(&mut self) -> Result<(), Wrapped> {
        let NewRecords { bytes, ends } = &mut self.new;
        let mut from = 0;
        let rows = ends.drain(..).map(|(sequence, end)| {
            let record = &bytes[from..end];
            from = end;
            (sequence, record)
        });
        if rows.len() < WORTH_A_CURSOR {
            for (sequence, record) in rows {
                self.messages.insert(sequence, record)?;
            }
        } else {
            let mut cursor = self.messages.upper_bound_mut(Bound::<u64>::Unbounded)?;
            for (sequence, record) in rows {
                cursor.insert_before(sequence, record)?;
            }
            cursor.close()?;
        }
        bytes.clear();
        Ok(())
    }

    fn take_letter(&mut self, sequence: u64) -> Result<Option<Bytes>, Wrapped> {
        let Some(row) = self.letters()?.remove(sequence)? else {
            return Ok(None);
        };
        let letter = Bytes::copy_from_slice(row.value());
        drop(row);
        let bytes = ROW_BYTES + letter.len() as u64;
        self.totals.letter_bytes = self.totals.letter_bytes.saturating_sub(bytes);
        self.changed = true;
        Ok(Some(letter))
    }

    fn letters(&mut self) -> Result<&mut Rows<'a, &'static [u8]>, Wrapped> {
        opened(&mut self.letters, self.transaction, LETTERS)
    }

    fn known(&mut self) -> Result<&mut Known<'a>, Wrapped> {
        if self.known.is_none() {
            self.known = Some(Known {
                rows: self.transaction.open_table(KNOWN)?,
                by_time: self.transaction.open_table(KNOWN_BY_TIME)?,
            });
        }
        Ok(self.known.as_mut().expect("it was opened above"))
    }

    /// Returns the earlier message with this fingerprint, unless it is too old.
    fn earlier(&mut self, fingerprint: &[u8]) -> Result<Option<u64>, Wrapped> {
        let oldest = self.now_ms.saturating_sub(self.memory.window_ms);
        let row = self.known()?.rows.get(fingerprint)?.map(|row| row.value());
        Ok(row
            .filter(|(_, at_ms)| *at_ms >= oldest)
            .map(|(sequence, _)| sequence))
    }

    fn remember(&mut self, sequence: u64, fingerprint: &[u8]) -> Result<(), Wrapped> {
        let (now_ms, kind) = (self.now_ms, fingerprint[0]);
        let known = self.known()?;
        // An existing row was too old to count, or its message would have been absorbed. Its row by
        // time would take this one with it.
        let old = known.rows.insert(fingerprint, (sequence, now_ms))?;
        let old = old.map(|row| row.value());
        if let Some((sequence, at_ms)) = old {
            known.by_time.remove((at_ms, sequence, kind))?;
        }
        known
            .by_time
            .insert((now_ms, sequence, kind), fingerprint)?;
        if old.is_none() {
            self.totals.known_bytes += known_bytes(fingerprint);
        }
        self.remembered += 1;
        Ok(())
    }

    /// Forgets marks that are too old, and the oldest ones above the limit: twice as many as this
    /// transaction added, and some more. So the table shrinks while it is in use, and no commit
    /// pays for a whole day.
    fn forget(&mut self) -> Result<(), Wrapped> {
        const SOME: u32 = 64;
        if self.remembered == 0 && self.totals.known_bytes == 0 {
            return Ok(());
        }
        let oldest = self.now_ms.saturating_sub(self.memory.window_ms);
        let (most, mut forgotten) = (self.memory.most, 0);
        let budget = self.remembered * 2 + SOME;
        let known = self.known()?;
        for _ in 0..budget {
            let Some((time, row)) = known.by_time.first()? else {
                break;
            };
            let (at, fingerprint) = (time.value(), row.value().to_vec());
            drop((time, row));
            if at.0 >= oldest && known.by_time.len()? <= most {
                break;
            }
            known.by_time.remove(at)?;
            known.rows.remove(&fingerprint[..])?;
            forgotten += known_bytes(&fingerprint);
        }
        self.totals.known_bytes = self.totals.known_bytes.saturating_sub(forgotten);
        Ok(())
    }
}

/// Returns the bytes of the rows of a fingerprint in both tables.
fn known_bytes(fingerprint: &[u8]) -> u64 {
    2 * fingerprint.len() as u64 + 16 + 17
}

fn opened<'t, 'a, K: redb::Key + 'static, V: redb::Value + 'static>(
    table: &'t mut Option<Table<'a, K, V>>,
    transaction: &'a WriteTransaction,
    definition: TableDefinition<'_, K, V>,
) -> Result<&'t mut Table<'a, K, V>, Wrapped> {
    if table.is_none() {
        *table = Some(transaction.open_table(definition)?);
    }
    Ok(table.as_mut().expect("it was opened above"))
}

pub(super) fn damaged(sequence: u64, error: DecodeError) -> Wrapped {
    Wrapped(Fault::Damaged(format!("message {sequence}: {error}")))
}

/// What a message shares with its duplicates.
struct Fingerprints([Option<Vec<u8>>; 2]);

impl Fingerprints {
    fn of(message: &NewMessage) -> Self {
        // The letter in front tells an id from a version and a key; it is also the last part of the
        // row by time.
        let id = message.id.as_ref().map(|id| [b"i", id.as_bytes()].concat());
        let version = message.version;
        let version = version.map(|v| [b"v".as_slice(), &v.to_be_bytes(), &message.key].concat());
        Self([id, version])
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flatten().map(Vec::as_slice)
    }
}
