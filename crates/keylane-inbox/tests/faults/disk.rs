//! A disk in memory that remembers every write and sync, and can be told to fail.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use redb::StorageBackend;

/// What was asked of a disk.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write { at: u64, bytes: Arc<[u8]> },
    Length(u64),
    Sync,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    now: Arc<Mutex<Vec<u8>>>,
    events: Arc<Mutex<Vec<Event>>>,
    fails: Arc<Fails>,
    answers: Arc<Answers>,
}

/// Whether syncs are answered.
#[derive(Debug, Default)]
struct Answers {
    is_silent: Mutex<bool>,
    again: Condvar,
    waiting: AtomicU64,
}

/// A disk that answers no sync until this is dropped.
pub(crate) struct Silence(Disk);

impl Silence {
    /// How many syncs wait for their answers.
    pub(crate) fn waiting(&self) -> u64 {
        self.0.answers.waiting.load(Ordering::SeqCst)
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        *self.0.answers.is_silent.lock().unwrap() = false;
        self.0.answers.again.notify_all();
    }
}

/// What is to fail next: 0 for nothing, n for the n-th from now and all after it.
#[derive(Debug, Default)]
pub(crate) struct Fails {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) full: AtomicU64,
}

impl Disk {
    /// A disk with these bytes on it.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        let disk = Self::default();
        *disk.now() = bytes;
        disk
    }

    pub(crate) fn now(&self) -> MutexGuard<'_, Vec<u8>> {
        self.now.lock().unwrap()
    }

    pub(crate) fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap()
    }

    pub(crate) fn fails(&self) -> &Fails {
        &self.fails
    }

    pub(crate) fn is_silent(&self) -> Silence {
        *self.answers.is_silent.lock().unwrap() = true;
        Silence(self.clone())
    }

    fn await_answer(&self) {
        let answers = &self.answers;
        answers.waiting.fetch_add(1, Ordering::SeqCst);
        let is_silent = answers.is_silent.lock().unwrap();
        drop(answers.again.wait_while(is_silent, |silent| *silent));
        answers.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn note(&self, event: Event) {
        self.events().push(event);
    }
}

impl Fails {
    /// Nothing fails any more.
    pub(crate) fn mend(&self) {
        for counter in [&self.reads, &self.writes, &self.syncs, &self.full] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn strike(counter: &AtomicU64, kind: io::ErrorKind) -> io::Result<()> {
        match counter.load(Ordering::Relaxed) {
            0 => Ok(()),
            1 => Err(io::Error::new(kind, "told to fail")),
            left => {
                counter.store(left - 1, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.now().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Fails::strike(&self.fails.reads, io::ErrorKind::Other)?;
        let now = self.now();
        let from = offset as usize;
        let bytes = now.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Fails::strike(&self.fails.writes, io::ErrorKind::Other)?;
        self.now().resize(len as usize, 0);
        self.note(Event::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Fails::strike(&self.fails.syncs, io::ErrorKind::Other)?;
        self.await_answer();
        self.note(Event::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Fails::strike(&self.fails.writes, io::ErrorKind::Other)?;
        Fails::strike(&self.fails.full, io::ErrorKind::StorageFull)?;
        let from = offset as usize;
        self.now()[from..from + data.len()].copy_from_slice(data);
        self.note(Event::Write {
            at: offset,
            bytes: data.into(),
        });
        Ok(())
    }
}

/// The bytes that a power failure leaves: everything synced, and of the rest what is chosen.
#[derive(Clone, Default)]
pub(crate) struct Platter {
    bytes: Vec<u8>,
}

/// What becomes of a write that was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lost,
    Whole,
    /// Only so many bytes from its start.
    Torn(usize),
    /// All but so many bytes from its start.
    TornAtStart(usize),
}

impl Platter {
    pub(crate) fn apply(&mut self, event: &Event, fate: Fate) {
        match event {
            Event::Sync => {}
            Event::Length(_) if fate == Fate::Lost => {}
            Event::Length(length) => self.bytes.resize(*length as usize, 0),
            Event::Write { at, bytes } => {
                let kept = match fate {
                    Fate::Lost => 0..0,
                    Fate::Whole => 0..bytes.len(),
                    Fate::Torn(most) => 0..most.min(bytes.len()),
                    Fate::TornAtStart(least) => least.min(bytes.len())..bytes.len(),
                };
                let at = *at as usize;
                // Data may reach the disk before the length does.
                if !kept.is_empty() && self.bytes.len() < at + kept.end {
                    self.bytes.resize(at + kept.end, 0);
                }
                if !kept.is_empty() {
                    self.bytes[at + kept.start..at + kept.end].copy_from_slice(&bytes[kept]);
                }
            }
        }
    }

    pub(crate) fn into_disk(self) -> Disk {
        Disk::of(self.bytes)
    }
}

/// Where the syncs are, as numbers of events; the last is the end.
pub(crate) fn syncs(events: &[Event]) -> Vec<usize> {
    let syncs = events.iter().enumerate();
    let syncs = syncs.filter(|(_, event)| matches!(event, Event::Sync));
    syncs.map(|(at, _)| at).chain([events.len()]).collect()
}
