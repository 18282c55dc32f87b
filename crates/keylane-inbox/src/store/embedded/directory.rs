//! The directory of an inbox: complete, and open only once.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylane_disk::{self, Place, Watch};

use super::database;
use super::tables::FORMAT;
use crate::error::OpenError;

const MARKER: &str = "keylane-inbox";
const LOCK: &str = "lock";
const DATABASE: &str = "messages.redb";
const STARTS: &str = "starts";
/// The suffix of unfinished files.
const NEW: &str = ".new";

/// The directory of an inbox, which is locked while this value lives.
pub(super) struct Directory {
    path: PathBuf,
    lock: Place,
}

impl Directory {
    /// Locks the directory, and creates the missing files of a new inbox. Waits this long for the
    /// lock.
    pub(super) fn open(path: &Path, create: bool, wait: Duration) -> Result<Self, OpenError> {
        if path.as_os_str().is_empty() {
            return Err(OpenError::Unnamed);
        }
        // The working directory may change.
        let path = &std::path::absolute(path).map_err(|e| OpenError::of(path, e))?;
        let is_new = !path.try_exists().map_err(|e| OpenError::of(path, e))?;
        if is_new {
            if !create {
                return Err(OpenError::Missing { path: path.into() });
            }
            make(path)?;
        }
        if !fs::metadata(path)
            .map_err(|e| OpenError::of(path, e))?
            .is_dir()
        {
            return Err(OpenError::NotADirectory { path: path.into() });
        }
        // Checked before anything is written into a foreign directory.
        let is_inbox = exists(&path.join(MARKER))? || exists(&path.join(DATABASE))?;
        if !is_inbox {
            if !create {
                return Err(OpenError::Missing {
                    path: path.join(DATABASE),
                });
            }
            check_empty(path)?;
        }
        let directory = Self {
            lock: lock(path, wait)?,
            path: path.clone(),
        };
        directory.prepare()?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file whose lock keeps other processes out.
    pub(super) fn lock(&self) -> &Place {
        &self.lock
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    pub(super) fn starts(&self) -> PathBuf {
        self.path.join(STARTS)
    }

    /// Looks again under the lock: another process may have created it meanwhile.
    fn prepare(&self) -> Result<(), OpenError> {
        let (marker, database) = (self.path.join(MARKER), self.database());
        let is_marked = check_marker(&marker)?;
        match (is_marked, exists(&database)?) {
            (true, true) => Ok(()),
            (true, false) => Err(OpenError::Missing { path: database }),
            // It was moved to its place when it was complete; only the marker is missing.
            (false, true) => self.mark(&marker),
            (false, false) => {
                self.make_database(&database)?;
                self.mark(&marker)
            }
        }
    }

    fn make_database(&self, path: &Path) -> Result<(), OpenError> {
        let new = with_suffix(path);
        let fails = |error| OpenError::of(&new, error);
        // It may be left over from a process that died here.
        File::create(&new).map_err(fails)?;
        let opener = keylane_disk::file(new.clone());
        let made = database::create(&opener, &Arc::new(Watch::default()));
        made.map_err(|fault| fault.unopened(&self.path, &new, FORMAT))?;
        let synced = File::open(&new).and_then(|file| file.sync_all());
        synced.map_err(fails)?;
        fs::rename(&new, path).map_err(fails)?;
        sync(&self.path)
    }

    fn mark(&self, path: &Path) -> Result<(), OpenError> {
        let new = with_suffix(path);
        let write = || {
            let mut file = File::create(&new)?;
            writeln!(file, "keylane-inbox {FORMAT}")?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(|error| OpenError::of(&new, error))?;
        sync(&self.path)
    }
}

/// Creates a directory and its parents, and makes them durable.
fn make(path: &Path) -> Result<(), OpenError> {
    let missing = |path: &&Path| !path.exists();
    let above = path.ancestors().filter(|path| !path.as_os_str().is_empty());
    let made: Vec<&Path> = above.take_while(missing).collect();
    fs::create_dir_all(path).map_err(|error| OpenError::of(path, error))?;
    for made in made {
        match made.parent() {
            None => {}
            Some(parent) if parent.as_os_str().is_empty() => sync(Path::new("."))?,
            Some(parent) => sync(parent)?,
        }
    }
    Ok(())
}

/// Makes the entries of a directory durable.
fn sync(path: &Path) -> Result<(), OpenError> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| OpenError::of(path, error))
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists()
        .map_err(|error| OpenError::of(path, error))
}

fn with_suffix(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(NEW);
    path.into()
}

/// Checks that the directory contains only files that this program may have left when it died while
/// it created an inbox, and files that a file system puts into its root.
fn check_empty(path: &Path) -> Result<(), OpenError> {
    let entries = || {
        let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
        names.collect::<io::Result<Vec<_>>>()
    };
    let names = entries().map_err(|error| OpenError::of(path, error))?;
    let is_ours = |name: &str| {
        name == LOCK || name == "lost+found" || name.strip_suffix(NEW).is_some_and(is_target)
    };
    match names
        .iter()
        .find(|name| !name.to_str().is_some_and(is_ours))
    {
        None => Ok(()),
        Some(name) => Err(OpenError::Foreign {
            directory: path.into(),
            found: name.to_string_lossy().into_owned(),
        }),
    }
}

fn is_target(name: &str) -> bool {
    name == MARKER || name == DATABASE
}

/// The pause before the next look at a locked directory.
const LOOK_AFTER: Duration = Duration::from_millis(20);

fn lock(directory: &Path, wait: Duration) -> Result<Place, OpenError> {
    let path = directory.join(LOCK);
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let file = file.map_err(|error| OpenError::of(&path, error))?;
    let began = Instant::now();
    let mut locked = file.try_lock();
    while matches!(locked, Err(TryLockError::WouldBlock)) {
        let left = wait.saturating_sub(began.elapsed());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(LOOK_AFTER));
        locked = file.try_lock();
    }
    match locked {
        Ok(()) => Ok(Place::of(&path, file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked {
            directory: directory.into(),
        }),
        Err(TryLockError::Error(error)) => Err(OpenError::of(&path, error)),
    }
}

/// Returns whether there is a marker; an error if it is not valid, or of a newer program.
fn check_marker(path: &Path) -> Result<bool, OpenError> {
    let mut text = Vec::new();
    // Our marker is short. A longer file is not a marker, and need not be read.
    let read = File::open(path).and_then(|file| file.take(100).read_to_end(&mut text));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(OpenError::of(path, error)),
    }
    let text = String::from_utf8_lossy(&text);
    let format = text.strip_prefix("keylane-inbox ").map(str::trim_end);
    match format.and_then(|format| format.parse::<u64>().ok()) {
        Some(1..=FORMAT) => Ok(true),
        Some(found) if found > FORMAT => Err(OpenError::Newer {
            path: path.into(),
            found,
            known: FORMAT,
        }),
        _ => Err(OpenError::Damaged {
            path: path.into(),
            reason: "it does not contain `keylane-inbox` and a format".into(),
        }),
    }
}
