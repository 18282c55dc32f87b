//! What an inbox asks of a store.

use std::error::Error;
use std::path::Path;

use clap::ValueEnum;

use crate::stores::fjall::Fjall;
use crate::stores::redb::Redb;

/// Whatever a store says went wrong.
pub type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// redb as it comes.
    Redb,
    /// redb that saves its allocator's state with every commit, and need not walk the file after a crash.
    RedbQuick,
    /// fjall with an fdatasync in every commit.
    Fjall,
    /// A file that grows, and an fdatasync: no index, no removal. Appends only.
    Floor,
}

/// How a store is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The most bytes of its cache.
    pub cache: u64,
    /// The most bytes a memtable of fjall has.
    pub memtable: u64,
    /// Whether fjall removes messages by weak tombstones.
    pub weak: bool,
}

/// The tables of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Lane and sequence to the message.
    Messages,
    /// Key to lane, for keys with messages.
    Lanes,
    /// The first sequence of a lane to the lane.
    Order,
    /// Lane to the attempts of its first message.
    Attempts,
    /// Message id to sequence.
    Seen,
    /// Sequence to message id.
    Expiry,
    /// Lane and sequence to nothing, where messages are stored by sequence alone.
    Index,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Messages,
        Self::Lanes,
        Self::Order,
        Self::Attempts,
        Self::Seen,
        Self::Expiry,
        Self::Index,
    ];

    /// Its name in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Lanes => "lanes",
            Self::Order => "order",
            Self::Attempts => "attempts",
            Self::Seen => "seen",
            Self::Expiry => "expiry",
            Self::Index => "index",
        }
    }
}

/// Looks at what is stored.
pub trait Reader {
    /// The value of a key.
    ///
    /// # Errors
    ///
    /// Where the store cannot read.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Visits the entries between two keys, the second one excluded, until told to stop by `false`.
    ///
    /// # Errors
    ///
    /// Where the store cannot read.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result;
}

/// Changes what is stored. Whether it sees its own changes is up to the store.
pub trait Writer: Reader {
    /// Stores a value.
    ///
    /// # Errors
    ///
    /// Where the store cannot write.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result;

    /// Removes a value.
    ///
    /// # Errors
    ///
    /// Where the store cannot write.
    fn remove(&mut self, table: Table, key: &[u8]) -> Result;

    /// Removes messages that are neighbours.
    ///
    /// # Errors
    ///
    /// Where the store cannot write.
    fn remove_run(&mut self, keys: &[[u8; 16]]) -> Result {
        keys.iter()
            .try_for_each(|key| self.remove(Table::Messages, key))
    }
}

/// A store.
pub trait Store {
    /// Reads in one snapshot.
    ///
    /// # Errors
    ///
    /// Where the store or the work fails.
    fn read(&self, work: &mut dyn FnMut(&dyn Reader) -> Result) -> Result;

    /// Writes in one commit, which is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// Where the store or the work fails.
    fn write(&self, work: &mut dyn FnMut(&mut dyn Writer) -> Result) -> Result;

    /// Gives back what room it can.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    fn compact(&mut self) -> Result;

    /// What it says about itself.
    fn describe(&self) -> String;

    /// Closes it in order.
    ///
    /// # Errors
    ///
    /// Where the store fails.
    fn close(self: Box<Self>) -> Result;
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redb => "redb",
            Self::RedbQuick => "redb-quick",
            Self::Fjall => "fjall",
            Self::Floor => "floor",
        }
    }

    /// Opens it, and creates it where it is not there yet.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened.
    pub fn open(self, directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(directory)?;
        Ok(match self {
            Self::Redb => Box::new(Redb::open(directory, settings, false)?),
            Self::RedbQuick => Box::new(Redb::open(directory, settings, true)?),
            Self::Fjall => Box::new(Fjall::open(directory, settings)?),
            Self::Floor => return Err("the floor has no tables".into()),
        })
    }
}
