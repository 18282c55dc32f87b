//! fjall: LSM trees behind one journal.

use std::path::Path;
use std::time::{Duration, Instant};

use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot,
};

use crate::stores::store::{Reader, Result, Settings, Store, Table, Writer};

/// A fjall database.
pub struct Fjall {
    database: Database,
    keyspaces: [Keyspace; 7],
    weak: bool,
}

impl Fjall {
    /// Opens or creates it.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened.
    pub fn open(directory: &Path, settings: &Settings) -> Result<Self> {
        let database = Database::builder(directory.join("inbox.fjall"))
            .cache_size(settings.cache)
            .open()?;
        let mut keyspaces = Vec::new();
        for table in Table::ALL {
            keyspaces.push(database.keyspace(table.name(), || {
                KeyspaceCreateOptions::default().max_memtable_size(settings.memtable)
            })?);
        }
        Ok(Self {
            database,
            keyspaces: keyspaces
                .try_into()
                .map_err(|_| "a keyspace for each table")?,
            weak: settings.weak,
        })
    }
}

impl Store for Fjall {
    fn read(&self, work: &mut dyn FnMut(&dyn Reader) -> Result) -> Result {
        work(&View {
            snapshot: self.database.snapshot(),
            keyspaces: &self.keyspaces,
        })
    }

    fn write(&self, work: &mut dyn FnMut(&mut dyn Writer) -> Result) -> Result {
        let mut change = Change {
            view: View {
                snapshot: self.database.snapshot(),
                keyspaces: &self.keyspaces,
            },
            batch: self
                .database
                .batch()
                .durability(Some(PersistMode::SyncData)),
            weak: self.weak,
        };
        work(&mut change)?;
        let Change { view, batch, .. } = change;
        // An open snapshot holds up compaction.
        drop(view);
        batch.commit()?;
        Ok(())
    }

    fn compact(&mut self) -> Result {
        for keyspace in &self.keyspaces {
            keyspace.rotate_memtable_and_wait()?;
            keyspace.major_compact()?;
        }
        let started = Instant::now();
        while self.database.active_compactions() + self.database.outstanding_flushes() > 0
            && started.elapsed() < Duration::from_secs(30)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let tables: Vec<String> = Table::ALL
            .iter()
            .zip(&self.keyspaces)
            .map(|(table, keyspace)| {
                format!(
                    "{} {} bytes in {} tables",
                    table.name(),
                    keyspace.disk_space(),
                    keyspace.table_count()
                )
            })
            .collect();
        format!(
            "{}; {} journals of {} bytes; {} compactions in {:?}",
            tables.join(", "),
            self.database.journal_count(),
            self.database.journal_disk_space().unwrap_or_default(),
            self.database.compactions_completed(),
            self.database.time_compacting(),
        )
    }

    fn close(self: Box<Self>) -> Result {
        // Dropping it persists what is left, and swallows an error of that.
        self.database.persist(PersistMode::SyncAll)?;
        Ok(())
    }
}

struct View<'a> {
    snapshot: Snapshot,
    keyspaces: &'a [Keyspace; 7],
}

impl Reader for View<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.snapshot.get(&self.keyspaces[table as usize], key)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result {
        for entry in self
            .snapshot
            .range(&self.keyspaces[table as usize], from..to)
        {
            let (key, value) = entry.into_inner()?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}

struct Change<'a> {
    view: View<'a>,
    batch: OwnedWriteBatch,
    weak: bool,
}

impl Reader for Change<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.view.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result {
        self.view.scan(table, from, to, visit)
    }
}

impl Writer for Change<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result {
        self.batch
            .insert(&self.view.keyspaces[table as usize], key, value);
        Ok(())
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result {
        let keyspace = &self.view.keyspaces[table as usize];
        if self.weak && table == Table::Messages {
            self.batch.remove_weak(keyspace, key);
        } else {
            self.batch.remove(keyspace, key);
        }
        Ok(())
    }
}
