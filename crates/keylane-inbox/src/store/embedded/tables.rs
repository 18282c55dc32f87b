//! The tables of the database, and the numbers about them.

use redb::{ReadTransaction, TableDefinition, WriteTransaction};

use super::fault::{Fault, Wrapped};
use crate::attempts::Stamp;

/// The format that this program writes. It reads a file of a lower format, and refuses a higher
/// one.
pub(super) const FORMAT: u64 = 1;

/// Sequence → record.
pub(super) const MESSAGES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("messages");
/// Sequence → letter.
pub(super) const LETTERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("letters");
/// Mark of a duplicate → sequence and accepted-at milliseconds of the first.
pub(super) const KNOWN: TableDefinition<'_, &[u8], (u64, u64)> = TableDefinition::new("known");
/// Accepted-at milliseconds, sequence, and `i` or `v` → the row in `known`.
pub(super) const KNOWN_BY_TIME: TableDefinition<'_, (u64, u64, u8), &[u8]> =
    TableDefinition::new("known_by_time");
/// Key → its highest recorded version.
pub(super) const VERSIONS: TableDefinition<'_, &[u8], u64> = TableDefinition::new("versions");
/// The format, and the totals.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

const FORMAT_ROW: &str = "format";
const HISTORY_ROW: &str = "history";
const HISTORY_BEFORE_ROW: &str = "history_before";
const COMMITS_BEFORE_ROW: &str = "commits_before";

/// The bytes of a row of `messages` or `letters` beside its value.
pub(super) const ROW_BYTES: u64 = 8;

/// Numbers about the tables that would take long to count. Written with every commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    /// The sequence of the next message.
    pub(super) next_sequence: u64,
    /// Commits since the store was created.
    pub(super) commits: u64,
    /// A number that each opening of the store draws, and its first commit writes: a copy or a
    /// backup goes on under another one. 0 before the first commit.
    pub(super) history: u64,
    /// The previous history, which the file of starts has until it gets the stamp of this one.
    pub(super) history_before: u64,
    /// How many commits there were at its end; the largest number if that is unknown.
    pub(super) commits_before: u64,
    /// Bytes of the rows, keys included, of each table.
    pub(super) message_bytes: u64,
    pub(super) letter_bytes: u64,
    pub(super) known_bytes: u64,
    pub(super) version_bytes: u64,
}

impl Totals {
    const NEW: Self = Self {
        next_sequence: 1,
        commits: 0,
        history: 0,
        history_before: 0,
        commits_before: 0,
        message_bytes: 0,
        letter_bytes: 0,
        known_bytes: 0,
        version_bytes: 0,
    };

    fn rows(&mut self) -> [(&'static str, &mut u64); 9] {
        [
            ("next_sequence", &mut self.next_sequence),
            ("commits", &mut self.commits),
            (HISTORY_ROW, &mut self.history),
            (HISTORY_BEFORE_ROW, &mut self.history_before),
            (COMMITS_BEFORE_ROW, &mut self.commits_before),
            ("message_bytes", &mut self.message_bytes),
            ("letter_bytes", &mut self.letter_bytes),
            ("known_bytes", &mut self.known_bytes),
            ("version_bytes", &mut self.version_bytes),
        ]
    }

    /// Returns the stamp for the file of starts, once the totals are durable.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp {
            commits: self.commits,
            history: self.history,
        }
    }

    /// Returns whether the file of starts may have this stamp: it may be behind by one opening, if
    /// the process died before it wrote its stamp. A stamp of the first format has no history.
    pub(super) fn is_stamped(&self, stamp: Stamp) -> bool {
        match stamp.history {
            0 => true,
            history if history == self.history => true,
            history => history == self.history_before && stamp.commits <= self.commits_before,
        }
    }

    /// Returns the same totals under the history of this opening, at its first commit.
    pub(super) fn under(self, history: u64) -> Self {
        if self.history == history {
            return self;
        }
        Self {
            history,
            history_before: self.history,
            // The next commit is the first one of this history.
            commits_before: self.commits - 1,
            ..self
        }
    }

    /// Returns the bytes of the rows, without the overhead of the database.
    pub(super) fn live_bytes(&self) -> u64 {
        self.message_bytes + self.letter_bytes + self.known_bytes + self.version_bytes
    }

    /// Writes the numbers that have changed; all of them, if there are none yet.
    pub(super) fn write(
        mut self,
        mut before: Option<Self>,
        transaction: &WriteTransaction,
    ) -> Result<(), Wrapped> {
        let mut meta = transaction.open_table(META)?;
        let before = before.as_mut().map(Self::rows);
        for (at, (name, number)) in self.rows().into_iter().enumerate() {
            if before.as_ref().is_none_or(|rows| *rows[at].1 != *number) {
                meta.insert(name, *number)?;
            }
        }
        Ok(())
    }

    /// Reads the totals of the last commit; an error if this is not the database of an inbox.
    pub(super) fn read(transaction: &ReadTransaction) -> Result<Self, Wrapped> {
        let meta = transaction.open_table(META)?;
        let row = |name| -> Result<u64, Wrapped> {
            match meta.get(name)? {
                Some(number) => Ok(number.value()),
                None => Err(Wrapped(Fault::Damaged(format!(
                    "the number `{name}` is missing"
                )))),
            }
        };
        let format = row(FORMAT_ROW)?;
        if format > FORMAT {
            return Err(Wrapped(Fault::Newer(format)));
        }
        let mut totals = Self::NEW;
        for (name, number) in totals.rows() {
            *number = match name {
                // The first files have no such rows.
                HISTORY_ROW | HISTORY_BEFORE_ROW => {
                    meta.get(name)?.map_or(0, |number| number.value())
                }
                COMMITS_BEFORE_ROW => meta.get(name)?.map_or(u64::MAX, |number| number.value()),
                _ => row(name)?,
            };
        }
        if totals.next_sequence == 0 {
            return Err(Wrapped(Fault::Damaged("its next sequence is 0".into())));
        }
        Ok(totals)
    }
}

/// Creates every table, so that no read meets a missing one.
pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Wrapped> {
    transaction.open_table(MESSAGES)?;
    transaction.open_table(LETTERS)?;
    transaction.open_table(KNOWN)?;
    transaction.open_table(KNOWN_BY_TIME)?;
    transaction.open_table(VERSIONS)?;
    transaction.open_table(META)?.insert(FORMAT_ROW, FORMAT)?;
    Totals::NEW.write(None, transaction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_of_this_history_or_of_the_one_before_it_up_to_its_end() {
        // The history 1 has 100 commits, and the first one of 2 follows them.
        let before = Totals {
            commits: 100,
            history: 1,
            ..Totals::NEW
        };
        let first = Totals {
            commits: 101,
            ..before
        };
        let totals = first.under(2);
        let is_stamped = |commits, history| totals.is_stamped(Stamp { commits, history });
        assert!(is_stamped(101, 2) && is_stamped(100, 1) && is_stamped(99, 1));
        // A stamp of the first format.
        assert!(is_stamped(101, 0));
        assert!(!is_stamped(101, 1), "the original has gone on under it");
        assert!(!is_stamped(100, 3));
    }
}
