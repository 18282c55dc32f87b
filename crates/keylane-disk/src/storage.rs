//! Where a database keeps its bytes, with an eye on it.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// Opens the bytes of the database: once when the store is opened, and again after a failure.
pub type Opener = Arc<dyn Fn() -> io::Result<Box<dyn StorageBackend>> + Send + Sync>;

/// Opens a file that is there already.
pub fn file(path: PathBuf) -> Opener {
    Arc::new(move || {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let backend = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Box::new(backend))
    })
}

/// What is known about the bytes without asking for them.
#[derive(Debug, Default)]
pub struct Watch {
    /// Written by the backend, read by the writer and by `stats`: a number, and nothing follows
    /// from it about other memory.
    length: AtomicU64,
    /// Set by the backend during a commit, read by the writer after it, in the same thread.
    sync_failed: AtomicBool,
    /// The first bytes as they were written last; empty if that is not known. Every commit changes
    /// them. The lock is held for a copy only.
    header: Mutex<Vec<u8>>,
    /// The file has another content than was written: whatever is written into it is refused.
    /// Written and read in the thread that writes.
    sealed: AtomicBool,
}

/// As many bytes as redb's header has, and some more.
const HEADER_BYTES: usize = 512;

impl Watch {
    /// How long the file is, in bytes.
    pub fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    /// Whether a sync has failed, so that the bytes are suspect.
    pub fn sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::Relaxed)
    }

    /// Whether the file begins as it was written last. A file that cannot be read counts as one
    /// that does.
    pub fn is_header_of(&self, file: &File) -> bool {
        let header = self.header();
        let mut found = vec![0; header.len()];
        match file.read_exact_at(&mut found, 0) {
            Ok(()) => found == *header,
            Err(error) => error.kind() != io::ErrorKind::UnexpectedEof,
        }
    }

    /// Refuses every write until the bytes are opened anew.
    pub fn seal(&self) {
        self.sealed.store(true, Ordering::Relaxed);
    }

    fn check_seal(&self) -> io::Result<()> {
        match self.sealed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(io::Error::other("another program has written the file")),
        }
    }

    /// Something was written, or may have been.
    fn note(&self, offset: u64, data: &[u8], written: &io::Result<()>) {
        let mut header = self.header();
        let Some(at) = usize::try_from(offset).ok().filter(|at| *at < header.len()) else {
            return;
        };
        if written.is_err() {
            header.clear();
            return;
        }
        let end = header.len().min(at + data.len());
        header[at..end].copy_from_slice(&data[..end - at]);
    }

    fn header(&self) -> MutexGuard<'_, Vec<u8>> {
        // Bytes that a panic has left half written are noticed as those of another program.
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A backend that tells [`Watch`] what happens to it.
pub struct Watched {
    inner: Box<dyn StorageBackend>,
    watch: Arc<Watch>,
}

impl Watched {
    /// Opens the bytes. If they are suspect, they are all written and synced once more first.
    pub fn open(opener: &Opener, watch: &Arc<Watch>) -> io::Result<Self> {
        let inner = opener()?;
        if watch.sync_failed() {
            rewrite(&*inner)?;
            watch.sync_failed.store(false, Ordering::Relaxed);
        }
        let length = inner.len()?;
        watch.length.store(length, Ordering::Relaxed);
        let mut header = vec![0; HEADER_BYTES];
        match length < HEADER_BYTES as u64 {
            true => header.clear(),
            false => inner.read(0, &mut header)?,
        }
        *watch.header() = header;
        watch.sealed.store(false, Ordering::Relaxed);
        Ok(Self {
            inner,
            watch: Arc::clone(watch),
        })
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
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
        self.watch.check_seal()?;
        self.inner.set_len(len)?;
        self.watch.length.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.watch.check_seal()?;
        let synced = self.inner.sync_data();
        if synced.is_err() {
            self.watch.sync_failed.store(true, Ordering::Relaxed);
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.watch.check_seal()?;
        let written = self.inner.write(offset, data);
        self.watch.note(offset, data, &written);
        written
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
