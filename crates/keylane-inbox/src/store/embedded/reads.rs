//! Reads, within one transaction each.

use bytes::Bytes;
use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata};

use super::apply::damaged;
use super::fault::Wrapped;
use super::tables::{KNOWN, LETTERS, MESSAGES, Totals, VERSIONS};
use crate::letter::{self, Letter};
use crate::message::StoredMessage;
use crate::record;
use crate::store::Stats;

pub(super) fn scan(
    transaction: &ReadTransaction,
    from: u64,
    count: usize,
    bytes: usize,
) -> Result<Vec<StoredMessage>, Wrapped> {
    let messages = transaction.open_table(MESSAGES)?;
    let (mut found, mut found_bytes) = (Vec::new(), 0);
    for row in messages.range(from..)?.take(count) {
        let (sequence, record) = row?;
        found.push(message(sequence.value(), record.value())?);
        found_bytes += record.value().len();
        if found_bytes >= bytes {
            break;
        }
    }
    Ok(found)
}

pub(super) fn read(
    transaction: &ReadTransaction,
    sequences: &[u64],
) -> Result<Vec<Option<StoredMessage>>, Wrapped> {
    let messages = transaction.open_table(MESSAGES)?;
    let one = |sequence: &u64| match messages.get(sequence)? {
        Some(record) => message(*sequence, record.value()).map(Some),
        None => Ok(None),
    };
    sequences.iter().map(one).collect()
}

pub(super) fn letters(
    transaction: &ReadTransaction,
    after: u64,
    limit: usize,
) -> Result<Vec<Letter>, Wrapped> {
    let Some(from) = after.checked_add(1) else {
        return Ok(Vec::new());
    };
    let letters = transaction.open_table(LETTERS)?;
    let rows = letters.range(from..)?.take(limit);
    rows.map(|row| {
        let (sequence, letter) = row?;
        decoded(sequence.value(), letter.value())
    })
    .collect()
}

pub(super) fn letter(
    transaction: &ReadTransaction,
    sequence: u64,
) -> Result<Option<Letter>, Wrapped> {
    let letters = transaction.open_table(LETTERS)?;
    match letters.get(sequence)? {
        Some(letter) => decoded(sequence, letter.value()).map(Some),
        None => Ok(None),
    }
}

pub(super) fn version(transaction: &ReadTransaction, key: &[u8]) -> Result<Option<u64>, Wrapped> {
    let versions = transaction.open_table(VERSIONS)?;
    Ok(versions.get(key)?.map(|version| version.value()))
}

/// Returns the statistics that the database has.
pub(super) fn stats(transaction: &ReadTransaction) -> Result<Stats, Wrapped> {
    let totals = Totals::read(transaction)?;
    let messages = transaction.open_table(MESSAGES)?;
    let oldest = messages.first()?.map(|(sequence, _)| sequence.value());
    Ok(Stats {
        waiting: messages.len()?,
        waiting_bytes: totals.message_bytes,
        oldest,
        tail: totals.next_sequence - 1,
        letters: transaction.open_table(LETTERS)?.len()?,
        letters_bytes: totals.letter_bytes,
        known: transaction.open_table(KNOWN)?.len()?,
        versions: transaction.open_table(VERSIONS)?.len()?,
        live_bytes: totals.live_bytes(),
        ..Stats::default()
    })
}

fn message(sequence: u64, record: &[u8]) -> Result<StoredMessage, Wrapped> {
    let record = record::decode(sequence, Bytes::copy_from_slice(record));
    record.map_err(|error| damaged(sequence, error))
}

fn decoded(sequence: u64, letter: &[u8]) -> Result<Letter, Wrapped> {
    let letter = letter::decode(sequence, Bytes::copy_from_slice(letter));
    letter.map_err(|error| damaged(sequence, error))
}
