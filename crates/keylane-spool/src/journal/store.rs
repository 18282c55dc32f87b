//! The journal in a redb file.

use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keylane_disk::{self, Displacement, Opener, Place, Watch, Watched, random};
use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    WriteTransaction,
};

use super::error::{DiskError, DiskErrorKind};
use super::record::{decode, encode};
use super::{Found, Journal};
use crate::id::Epoch;
use crate::message::Spooled;
use crate::size::OVERHEAD;

const FILE: &str = "spool.redb";
/// A new file has this name until it is complete, and is then renamed. So an empty file under the
/// right name was cut, and was written before.
const NEW_FILE: &str = "spool.redb.new";

const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

const FORMAT: u64 = 1;

/// The memory that the store may use.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

/// Numbers that are unique to this spool and to this opening.
#[derive(Clone, Copy)]
pub(crate) struct Drawn {
    spool: u64,
    epoch: u32,
}

impl Drawn {
    pub(crate) fn at_random() -> Self {
        Self {
            spool: random::bits(),
            epoch: random::bits() as u32,
        }
    }

    /// Returns the name of a spool without a directory.
    pub(crate) fn spool(self) -> u64 {
        self.spool
    }
}

/// The journal of a directory. It holds the lock on its file.
pub(crate) struct RedbJournal {
    path: PathBuf,
    spool: u64,
    opener: Opener,
    watch: Arc<Watch>,
    /// The path must name this file, which the database has open.
    place: Place,
    /// `None` after an error, until it is opened again.
    database: Option<Database>,
}

impl RedbJournal {
    /// Opens the journal of this directory, and creates both if they do not exist. Reads the whole
    /// file to verify it.
    ///
    /// `drawn` names a new spool, and this opening.
    pub(crate) fn open(dir: &Path, drawn: Drawn) -> Result<(Self, Found), DiskError> {
        // The working directory may change.
        let dir = &std::path::absolute(dir).map_err(|error| DiskError::from_io(dir, &error))?;
        fs::create_dir_all(dir).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                DiskError::new(DiskErrorKind::NotADirectory, dir, error)
            }
            _ => DiskError::from_io(dir, &error),
        })?;
        let path = dir.join(FILE);
        guarded(&path, || {
            if !path
                .try_exists()
                .map_err(|error| DiskError::from_io(&path, &error))?
            {
                create(dir, &path, drawn.spool)?;
            }
            let (opener, watch) = (keylane_disk::file(path.clone()), Arc::default());
            let database = open(&path, &opener, &watch, true)?;
            let place = Place::find(&path).map_err(|error| DiskError::from_io(&path, &error))?;
            let found = start_epoch(&database, drawn.epoch).map_err(|fault| fault.at(&path))?;
            let journal = Self {
                spool: found.spool,
                path: path.clone(),
                opener,
                watch,
                place,
                database: Some(database),
            };
            Ok((journal, found))
        })
    }

    /// Returns the path of its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the file is in its place, and is as this process wrote it.
    fn look(&self) -> Result<(), DiskError> {
        self.place.look()?;
        if !self.watch.is_header_of(self.place.file()) {
            // Closing the database would write as well.
            self.watch.seal();
            return Err(self.place.displaced(Displacement::Overwritten).into());
        }
        Ok(())
    }

    fn database(&self) -> Result<&Database, DiskError> {
        self.database
            .as_ref()
            .ok_or_else(|| DiskError::new(DiskErrorKind::Io, &self.path, "closed after an error"))
    }
}

impl Journal for RedbJournal {
    fn commit(&mut self, appends: &[Spooled], removals: &[u64]) -> Result<(), DiskError> {
        let database = self.database()?;
        let committed = guarded(&self.path, || {
            commit(database, appends, removals).map_err(|fault| fault.at(&self.path))
        });
        if committed.is_err() {
            // The database takes no more writes, and only the next opening knows the remains of the
            // failed one.
            self.database = None;
        }
        committed?;
        // An answer must be about a file that the next opening finds.
        Ok(self.place.look()?)
    }

    fn read(&self, range: RangeInclusive<u64>, bytes: usize) -> Result<Vec<Spooled>, DiskError> {
        let database = self.database()?;
        guarded(&self.path, || {
            read(database, self.spool, range, bytes).map_err(|fault| fault.at(&self.path))
        })
    }

    fn reopen(&mut self) -> Result<(), DiskError> {
        self.look()?;
        if self.database.is_none() {
            let (path, opener, watch) = (&self.path, &self.opener, &self.watch);
            self.database = Some(guarded(path, || open(path, opener, watch, false))?);
        }
        Ok(())
    }
}

fn create(dir: &Path, path: &Path, spool: u64) -> Result<(), DiskError> {
    let new = dir.join(NEW_FILE);
    let io = |error| DiskError::from_io(&new, &error);
    let database = match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create(&new)
            .map_err(|error| Fault::from(error).at(&new))?,
    };
    let write = || -> Result<(), Fault> {
        let transaction = begin(&database)?;
        {
            let mut meta = transaction.open_table(META)?;
            for (name, value) in [
                ("format", FORMAT),
                ("spool", spool),
                ("epoch", 0),
                ("messages", 0),
                ("bytes", 0),
            ] {
                meta.insert(name, value)?;
            }
            transaction.open_table(RECORDS)?;
        }
        transaction.commit().map_err(redb::Error::from)?;
        Ok(())
    };
    write().map_err(|fault| fault.at(&new))?;
    drop(database);
    // The name is safe when the directory is.
    fs::rename(&new, path).map_err(io)?;
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| DiskError::from_io(dir, &error))
}

fn open(
    path: &Path,
    opener: &Opener,
    watch: &Arc<Watch>,
    verify: bool,
) -> Result<Database, DiskError> {
    let bytes = Watched::open(opener, watch).map_err(|error| DiskError::from_io(path, &error))?;
    if bytes.is_empty() {
        // The store would treat it as a new file.
        return Err(Fault::Damaged("the file is empty").at(path));
    }
    Database::builder()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(verify)
        .create_with_backend(bytes)
        .map_err(|error| Fault::from(error).at(path))
}

/// Reads the content, and counts this opening.
fn start_epoch(database: &Database, drawn: u32) -> Result<Found, Fault> {
    let transaction = begin(database)?;
    let found = {
        let mut meta = transaction.open_table(META)?;
        let format = number(&meta, "format").map_err(|_| Fault::Foreign)?;
        if format != FORMAT {
            return Err(Fault::Version(format));
        }
        let records = transaction.open_table(RECORDS)?;
        let first = records.first()?.map(|(sequence, _)| sequence.value());
        let last = records.last()?.map(|(sequence, _)| sequence.value());
        let messages = number(&meta, "messages")?;
        if records.len()? != messages {
            return Err(Fault::Damaged("the number of messages is wrong"));
        }
        let count = u32::try_from(number(&meta, "epoch")? + 1)
            .map_err(|_| Fault::Damaged("it was opened too often"))?;
        meta.insert("epoch", u64::from(count))?;
        Found {
            spool: number(&meta, "spool")?,
            epoch: Epoch { count, drawn },
            range: first.zip(last),
            messages,
            bytes: number(&meta, "bytes")?,
        }
    };
    transaction.commit().map_err(redb::Error::from)?;
    Ok(found)
}

fn commit(database: &Database, appends: &[Spooled], removals: &[u64]) -> Result<(), Fault> {
    let transaction = begin(database)?;
    {
        let mut records = transaction.open_table(RECORDS)?;
        let mut meta = transaction.open_table(META)?;
        let mut messages = number(&meta, "messages")?;
        let mut bytes = number(&meta, "bytes")?;
        let size = |value: &[u8]| (value.len() + OVERHEAD) as u64;
        for message in appends {
            let value = encode(message);
            messages += 1;
            bytes += size(&value);
            // A failed commit may have come through, and is repeated.
            if let Some(old) = records.insert(message.id.sequence, value.as_slice())? {
                messages -= 1;
                bytes = bytes.saturating_sub(size(old.value()));
            }
        }
        for sequence in removals {
            // It may never have been appended, or a failed commit may have removed it.
            if let Some(old) = records.remove(sequence)? {
                messages = messages.saturating_sub(1);
                bytes = bytes.saturating_sub(size(old.value()));
            }
        }
        meta.insert("messages", messages)?;
        meta.insert("bytes", bytes)?;
    }
    transaction.commit().map_err(redb::Error::from)?;
    Ok(())
}

fn read(
    database: &Database,
    spool: u64,
    range: RangeInclusive<u64>,
    bytes: usize,
) -> Result<Vec<Spooled>, Fault> {
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let records = transaction.open_table(RECORDS)?;
    let mut messages = Vec::new();
    let mut taken = 0;
    for entry in records.range(range)? {
        let (sequence, value) = entry?;
        let value = value.value();
        taken += value.len() + OVERHEAD;
        if taken > bytes && !messages.is_empty() {
            break;
        }
        messages.push(decode(spool, sequence.value(), value).map_err(Fault::Damaged)?);
    }
    Ok(messages)
}

fn begin(database: &Database) -> Result<WriteTransaction, Fault> {
    Ok(database.begin_write().map_err(redb::Error::from)?)
}

fn number(meta: &impl ReadableTable<&'static str, u64>, name: &'static str) -> Result<u64, Fault> {
    let value = meta.get(name)?.map(|value| value.value());
    value.ok_or(Fault::Damaged("a number is missing"))
}

/// Runs work on the store, and turns a panic into an error. The store verifies a file when it is
/// opened, and yet a later change of the file may make it panic.
fn guarded<T>(path: &Path, run: impl FnOnce() -> Result<T, DiskError>) -> Result<T, DiskError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let detail = "the database panicked over its content";
        Err(DiskError::new(DiskErrorKind::Damaged, path, detail))
    })
}

/// An error of the store, without the name of its file.
enum Fault {
    Store(Box<redb::Error>),
    Damaged(&'static str),
    /// A database of redb, but not one of ours.
    Foreign,
    Version(u64),
}

impl Fault {
    fn at(self, path: &Path) -> DiskError {
        use redb::Error;
        let error = match self {
            Self::Store(error) => error,
            Self::Damaged(what) => return DiskError::new(DiskErrorKind::Damaged, path, what),
            Self::Foreign => {
                let detail = "it is the database of another program";
                return DiskError::new(DiskErrorKind::Foreign, path, detail);
            }
            Self::Version(version) => {
                let detail =
                    format_args!("it has format {version}, but this program knows only {FORMAT}");
                return DiskError::new(DiskErrorKind::OtherVersion, path, detail);
            }
        };
        let kind = match &*error {
            Error::Io(io) => return DiskError::from_io(path, io),
            Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => DiskErrorKind::Locked,
            Error::UpgradeRequired(_) => DiskErrorKind::OtherVersion,
            Error::TableDoesNotExist(_)
            | Error::TableTypeMismatch { .. }
            | Error::TableIsMultimap(_)
            | Error::TypeDefinitionChanged { .. } => DiskErrorKind::Foreign,
            Error::PreviousIo | Error::DatabaseClosed => DiskErrorKind::Io,
            _ => DiskErrorKind::Damaged,
        };
        DiskError::new(kind, path, error)
    }
}

impl<E: Into<redb::Error>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Store(Box::new(error.into()))
    }
}
