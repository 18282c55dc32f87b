//! redb: copy-on-write B-trees in one file.

use std::path::Path;

use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    TableDefinition, TableError, WriteTransaction,
};

use crate::stores::store::{Reader, Result, Settings, Store, Table, Writer};

type Fixed<'a, const N: usize> = &'a [u8; N];
const MESSAGES: TableDefinition<'_, Fixed<'_, 16>, &[u8]> = TableDefinition::new("messages");
const INDEX: TableDefinition<'_, Fixed<'_, 16>, Fixed<'_, 0>> = TableDefinition::new("index");

/// From how many neighbours on they are removed by a range.
const RUN: usize = 4;

/// A redb database.
#[derive(Debug)]
pub struct Redb {
    database: Database,
    quick_repair: bool,
}

impl Redb {
    /// Opens or creates it.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened.
    pub fn open(directory: &Path, settings: &Settings, quick_repair: bool) -> Result<Self> {
        let database = Database::builder()
            .set_cache_size(usize::try_from(settings.cache)?)
            .set_repair_callback(|repair| {
                if repair.progress() == 0.0 {
                    eprintln!("redb repairs");
                }
            })
            .create(directory.join("inbox.redb"))?;
        Ok(Self {
            database,
            quick_repair,
        })
    }
}

impl Store for Redb {
    fn read(&self, work: &mut dyn FnMut(&dyn Reader) -> Result) -> Result {
        let read = self.database.begin_read()?;
        let messages = match read.open_table(MESSAGES) {
            Ok(table) => Some(table),
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(error.into()),
        };
        work(&Snapshot { read, messages })
    }

    fn write(&self, work: &mut dyn FnMut(&mut dyn Writer) -> Result) -> Result {
        let mut write = self.database.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        write.set_quick_repair(self.quick_repair);
        {
            let messages = write.open_table(MESSAGES)?;
            work(&mut Change {
                write: &write,
                messages,
                others: [const { None }; 7],
                index: None,
            })?;
        }
        write.commit()?;
        Ok(())
    }

    fn compact(&mut self) -> Result {
        self.database.compact()?;
        Ok(())
    }

    fn describe(&self) -> String {
        let stats = self
            .database
            .begin_write()
            .map_err(|error| error.to_string())
            .and_then(|write| write.stats().map_err(|error| error.to_string()));
        match stats {
            Ok(stats) => format!(
                "height {}, {} leaves, {} branches, stored {} bytes, metadata {}, fragmented {}, allocated pages {}",
                stats.tree_height(),
                stats.leaf_pages(),
                stats.branch_pages(),
                stats.stored_bytes(),
                stats.metadata_bytes(),
                stats.fragmented_bytes(),
                stats.allocated_pages(),
            ),
            Err(error) => error,
        }
    }

    fn close(self: Box<Self>) -> Result {
        self.database.close()?;
        Ok(())
    }
}

struct Snapshot {
    read: ReadTransaction,
    messages: Option<ReadOnlyTable<Fixed<'static, 16>, &'static [u8]>>,
}

impl Reader for Snapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if table == Table::Messages {
            return match &self.messages {
                Some(messages) => Ok(messages
                    .get(<Fixed<'_, 16>>::try_from(key)?)?
                    .map(|value| value.value().to_vec())),
                None => Ok(None),
            };
        }
        if table == Table::Index {
            return match self.read.open_table(INDEX) {
                Ok(table) => Ok(table
                    .get(<Fixed<'_, 16>>::try_from(key)?)?
                    .map(|_| Vec::new())),
                Err(TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
        match self.read.open_table(definition(table)) {
            Ok(table) => Ok(table.get(key)?.map(|value| value.value().to_vec())),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result {
        if table == Table::Messages {
            return match &self.messages {
                Some(messages) => scan_messages(messages, from, to, visit),
                None => Ok(()),
            };
        }
        if table == Table::Index {
            return match self.read.open_table(INDEX) {
                Ok(table) => scan_index(&table, from, to, visit),
                Err(TableError::TableDoesNotExist(_)) => Ok(()),
                Err(error) => Err(error.into()),
            };
        }
        match self.read.open_table(definition(table)) {
            Ok(table) => scan(&table, from, to, visit),
            Err(TableError::TableDoesNotExist(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

type Index<'txn> = redb::Table<'txn, Fixed<'static, 16>, Fixed<'static, 0>>;
type Other<'txn> = redb::Table<'txn, &'static [u8], &'static [u8]>;

struct Change<'txn> {
    write: &'txn WriteTransaction,
    messages: redb::Table<'txn, Fixed<'static, 16>, &'static [u8]>,
    others: [Option<Other<'txn>>; 7],
    index: Option<Index<'txn>>,
}

impl<'txn> Change<'txn> {
    fn index(&mut self) -> Result<&mut Index<'txn>> {
        if self.index.is_none() {
            self.index = Some(self.write.open_table(INDEX)?);
        }
        Ok(self.index.as_mut().expect("the table was just opened"))
    }

    fn other(&mut self, table: Table) -> Result<&mut Other<'txn>> {
        let other = &mut self.others[table as usize];
        if other.is_none() {
            *other = Some(self.write.open_table(definition(table))?);
        }
        Ok(other.as_mut().expect("the table was just opened"))
    }
}

impl Reader for Change<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(match (table, &self.others[table as usize]) {
            (Table::Index, _) => return Err("the index is only written".into()),
            (Table::Messages, _) => self
                .messages
                .get(<Fixed<'_, 16>>::try_from(key)?)?
                .map(|value| value.value().to_vec()),
            (_, Some(table)) => table.get(key)?.map(|value| value.value().to_vec()),
            (_, None) => self
                .write
                .open_table(definition(table))?
                .get(key)?
                .map(|value| value.value().to_vec()),
        })
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result {
        match (table, &self.others[table as usize]) {
            (Table::Index, _) => Err("the index is only written".into()),
            (Table::Messages, _) => scan_messages(&self.messages, from, to, visit),
            (_, Some(table)) => scan(table, from, to, visit),
            (_, None) => scan(&self.write.open_table(definition(table))?, from, to, visit),
        }
    }
}

impl Writer for Change<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result {
        if table == Table::Messages {
            self.messages
                .insert(<Fixed<'_, 16>>::try_from(key)?, value)?;
        } else if table == Table::Index {
            self.index()?.insert(<Fixed<'_, 16>>::try_from(key)?, &[])?;
        } else {
            self.other(table)?.insert(key, value)?;
        }
        Ok(())
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result {
        if table == Table::Messages {
            self.messages.remove(<Fixed<'_, 16>>::try_from(key)?)?;
        } else if table == Table::Index {
            self.index()?.remove(<Fixed<'_, 16>>::try_from(key)?)?;
        } else {
            self.other(table)?.remove(key)?;
        }
        Ok(())
    }

    fn remove_run(&mut self, keys: &[[u8; 16]]) -> Result {
        match keys {
            [first, .., last] if keys.len() >= RUN => {
                self.messages
                    .retain_in::<Fixed<'_, 16>, _>(first..=last, |_, _| false)?;
            }
            _ => {
                for key in keys {
                    self.messages.remove(key)?;
                }
            }
        }
        Ok(())
    }
}

fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

fn scan_messages(
    table: &impl ReadableTable<Fixed<'static, 16>, &'static [u8]>,
    from: &[u8],
    to: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result {
    let (from, to) = (
        <Fixed<'_, 16>>::try_from(from)?,
        <Fixed<'_, 16>>::try_from(to)?,
    );
    for entry in table.range::<Fixed<'_, 16>>(from..to)? {
        let (key, value) = entry?;
        if !visit(key.value(), value.value()) {
            break;
        }
    }
    Ok(())
}

fn scan_index(
    table: &impl ReadableTable<Fixed<'static, 16>, Fixed<'static, 0>>,
    from: &[u8],
    to: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result {
    let (from, to) = (
        <Fixed<'_, 16>>::try_from(from)?,
        <Fixed<'_, 16>>::try_from(to)?,
    );
    for entry in table.range::<Fixed<'_, 16>>(from..to)? {
        if !visit(entry?.0.value(), &[]) {
            break;
        }
    }
    Ok(())
}

fn scan(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    from: &[u8],
    to: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result {
    for entry in table.range::<&[u8]>(from..to)? {
        let (key, value) = entry?;
        if !visit(key.value(), value.value()) {
            break;
        }
    }
    Ok(())
}
