//! Where the database keeps its bytes, with an eye on it.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// Opens the bytes of the database: once when the store is opened, and again after a failure.
pub(super) type Opener = Arc<dyn Fn() -> io::Result<Box<dyn StorageBackend>> + Send + Sync>;

/// Opens a file that is there already.
pub(super) fn file(path: PathBuf) -> Opener {
    Arc::new(move || {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let backend = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Box::new(backend))
    })
}

/// What is known about the bytes without asking for them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Written by the backend, read by the writer and by `stats`: a number, and nothing follows
    /// from it about other memory.
    length: AtomicU64,
    /// Set by the backend during a commit, read by the writer after it, in the same thread.
    sync_failed: AtomicBool,
}

impl Watch {
    pub(super) fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    pub(super) fn sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::Relaxed)
    }
}

/// A backend that tells [`Watch`] what happens to it.
pub(super) struct Watched {
    inner: Box<dyn StorageBackend>,
    watch: Arc<Watch>,
}

impl Watched {
    /// Opens the bytes. If they are suspect, they are all written and synced once more first.
    pub(super) fn open(opener: &Opener, watch: &Arc<Watch>) -> io::Result<Self> {
        let inner = opener()?;
        if watch.sync_failed() {
            rewrite(&*inner)?;
            watch.sync_failed.store(false, Ordering::Relaxed);
        }
        watch.length.store(inner.len()?, Ordering::Relaxed);
        Ok(Self {
            inner,
            watch: Arc::clone(watch),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.watch.length() == 0
    }
}

/// Writes everything as it is, and syncs. After that the disk has what a read answers.
fn rewrite(backend: &dyn StorageBackend) -> io::Result<()> {
    let length = backend.len()?;
    let mut chunk = vec![0; 1 << 20];
    let mut at = 0;
    while at < length {
        let rest = usize::try_from(length - at).unwrap_or(usize::MAX);
        let chunk = &mut chunk[..rest.min(1 << 20)];
        backend.read(at, chunk)?;
        backend.write(at, chunk)?;
        at += chunk.len() as u64;
    }
    backend.sync_data()
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)?;
        self.watch.length.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.inner.sync_data();
        if synced.is_err() {
            self.watch.sync_failed.store(true, Ordering::Relaxed);
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.inner).finish()
    }
}
