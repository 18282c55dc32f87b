//! Opens a store, step by step.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock, mpsc};
use std::thread;
use std::time::Instant;

use keylane_disk::{self, Opener, Watch, random};
use redb::{Database, ReadableDatabase};
use tokio::sync::watch;

use super::compaction::Compaction;
use super::database;
use super::directory::Directory;
use super::fault::{Fault, guarded};
use super::group::Groups;
use super::identity::Identity;
use super::inner::Inner;
use super::redriven::RedrivenLog;
use super::settings::Settings;
use super::shared::{Counts, Shared, State};
use super::tables::{FORMAT, MESSAGES, Totals};
use super::writer::{LOOK_EVERY, Writer};
use crate::attempts::Marks;
use crate::error::OpenError;
use crate::store::Tail;

/// How many slots for start marks a new file has. It grows.
const SLOTS: u32 = 4_096;

/// Opens a directory: its lock, its marks, its database; then compares the two.
pub(super) fn directory(path: &Path, settings: Settings) -> Result<Inner, OpenError> {
    settings.check()?;
    let directory = Directory::open(path, settings.create, settings.wait_for_lock)?;
    let (place, starts) = (directory.database(), directory.starts());
    let marks = open_marks(&starts)?;
    let watch = Arc::default();
    let opener = keylane_disk::file(place.clone());
    let fails = |fault: Fault| fault.unopened(directory.path(), &place, FORMAT);
    let (database, totals) = database::open(&opener, &watch, &settings).map_err(fails)?;
    // Behind means that a commit was durable once, and is missing now.
    let stamped = marks.stamped().unwrap_or_default();
    if stamped.commits > totals.commits {
        return Err(OpenError::Behind {
            path: place,
            missing: stamped.commits - totals.commits,
            witness: starts,
        });
    }
    if !totals.is_stamped(stamped) {
        return Err(OpenError::OtherHistory {
            path: place,
            witness: starts,
        });
    }
    // So the file is never behind by two: each commit makes this file durable before itself.
    let stamped = marks.stamp(totals.stamp());
    stamped.map_err(|error| OpenError::of(&starts, error))?;
    let settled = settled(&database, &marks).map_err(fails)?;
    let forgotten = marks.forget(&settled);
    forgotten.map_err(|error| OpenError::of(&starts, error))?;
    let parts = Parts {
        place,
        opener,
        identity: Some(Identity::of(directory, &watch)?),
        watch,
        marks: Some(Arc::new(marks)),
        history: random::bits().max(1),
        settings,
    };
    start(parts, database, totals)
}

/// Opens a store whose bytes are not in a directory.
pub(super) fn backend(opener: Opener, settings: Settings) -> Result<Inner, OpenError> {
    settings.check()?;
    let place = PathBuf::from("the backend");
    let fails = |fault: Fault| fault.unopened(&place, &place, FORMAT);
    let watch: Arc<Watch> = Arc::default();
    let is_empty = || {
        let backend = opener()?;
        let length = backend.len()?;
        backend.close()?;
        Ok(length == 0)
    };
    if is_empty().map_err(|error| OpenError::of(&place, error))? {
        database::create(&opener, &watch).map_err(fails)?;
    }
    let (database, totals) = database::open(&opener, &watch, &settings).map_err(fails)?;
    let parts = Parts {
        place,
        opener,
        watch,
        marks: None,
        history: 0,
        identity: None,
        settings,
    };
    start(parts, database, totals)
}

struct Parts {
    place: PathBuf,
    opener: Opener,
    watch: Arc<Watch>,
    marks: Option<Arc<Marks>>,
    /// The number that this opening drew.
    history: u64,
    identity: Option<Identity>,
    settings: Settings,
}

/// Starts the writer.
fn start(parts: Parts, database: Database, totals: Totals) -> Result<Inner, OpenError> {
    let settings = parts.settings;
    let tail = Tail {
        sequence: totals.next_sequence - 1,
        redrives: 0,
    };
    let shared = Arc::new(Shared {
        place: parts.place.display().to_string(),
        state: RwLock::new(State::Open(database)),
        tail: watch::Sender::new(tail),
        redriven: Mutex::new(RedrivenLog::default()),
        watch: parts.watch,
        counts: Counts::default(),
        read_failed: AtomicBool::new(false),
    });
    let (calls, received) = mpsc::channel();
    let (ended, has_ended) = watch::channel(None);
    let inner = Inner::new(calls, &settings, &shared, parts.marks.clone(), has_ended);
    let writer = Writer {
        groups: Groups::new(received, &settings),
        compaction: Compaction::new(&settings),
        shared,
        settings,
        opener: parts.opener,
        marks: parts.marks,
        identity: parts.identity,
        look_at: Instant::now() + LOOK_EVERY,
        totals,
        durable: totals.stamp(),
        history: parts.history,
        stamped: totals.stamp(),
        unsynced: None,
        retry_at: None,
        ended,
    };
    let thread = thread::Builder::new().name("keylane-inbox".into());
    let spawned = thread.spawn(|| writer.run());
    spawned.map_err(|error| OpenError::of(parts.place, error))?;
    Ok(inner)
}

fn open_marks(path: &Path) -> Result<Marks, OpenError> {
    Marks::open(path, SLOTS).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => OpenError::Damaged {
            path: path.into(),
            reason: error.to_string(),
        },
        _ => OpenError::of(path, error),
    })
}

/// Returns messages whose handling had started, and that do not wait any more.
fn settled(database: &Database, marks: &Marks) -> Result<Vec<u64>, Fault> {
    let started = marks.recover();
    guarded(|| {
        let messages = database.begin_read()?.open_table(MESSAGES)?;
        let mut settled = Vec::new();
        for sequence in started.into_keys() {
            if messages.get(sequence)?.is_none() {
                settled.push(sequence);
            }
        }
        Ok(settled)
    })
}
