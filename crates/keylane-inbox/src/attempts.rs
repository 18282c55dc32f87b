//! The file of start marks: which messages were being handled, and at which attempt.
//!
//! The mark of an attempt is written before its handler starts. When its message settles, the mark
//! is *stale*, and the next start overwrites it. When the source learns of settlements, it clears
//! the stale marks. After the death of the process the marks show its unfinished work, so that a
//! message that kills the process is not tried for ever.
//!
//! A mark is one positioned write of 32 bytes, without a sync: the operating system keeps it when
//! the process dies, at any moment. A power failure loses the marks that were written after the
//! last [`sync`](Marks::sync), which the store calls with its commits: the count may be short by
//! the attempts that started since then.
//!
//! ```text
//! page 0     magic:u64 · two stamps, 64 bytes apart: commits:u64 · history:u64 · crc32:u32
//! page 1..   slots of 32 bytes: sequence:u64 · attempt:u32 · crc32:u32 · 0…
//! ```

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

const MAGIC: [u8; 8] = *b"klstart1";

/// The header fills a page, so that no slot crosses a page boundary: the disk writes a page as a
/// whole or not at all.
const HEADER_BYTES: u64 = 4_096;
const SLOT_BYTES: u64 = 32;
const STAMPS_AT: [u64; 2] = [64, 128];

/// The most stale marks: messages that may count as started although they have settled, if the
/// process dies before the store knows it.
const MOST_STALE: usize = 64;

/// The file of start marks. All of its methods may be called from any thread.
///
/// A *slot* is a number that the caller gives to a message while it is being handled, and to
/// another message later. This type decides where the mark of a slot is in the file: marks that an
/// earlier life of the process left behind are not overwritten before their messages start again.
///
/// # Examples
///
/// ```
/// use keylane_inbox::attempts::Marks;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("starts");
/// let marks = Marks::open(&path, 64)?;
/// marks.start(0, 4711, 1)?;
/// // Here the process dies. The next one finds:
/// let marks = Marks::open(&path, 64)?;
/// assert_eq!(marks.recover()[&4711], 1);
/// # Ok(())
/// # }
/// ```
pub struct Marks {
    file: File,
    places: Mutex<Places>,
    /// Every write holds it for reading; `mend`, which rewrites what it has read, holds it for
    /// writing.
    writes: RwLock<()>,
    /// Set after a write, by any thread; cleared before a sync, by the writer. The next sync covers
    /// a mark that is written in between.
    dirty: AtomicBool,
    /// A sync has failed: earlier writes may be missing on the disk, and a later sync would not
    /// report it.
    suspect: AtomicBool,
}

#[derive(Default)]
struct Places {
    /// The started message of each slot, until it settles.
    slots: Vec<Option<Started>>,
    free: Vec<u32>,
    /// Places with a stale mark. The last one is used first.
    stale: Vec<u32>,
    /// The places from here on have never been used.
    end: u32,
    /// The marks that the file had when it was opened, of messages that have not started again.
    found: HashMap<u64, Found>,
    stamp: Option<Stamp>,
}

/// What this file knows about the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// The number of commits that were certainly durable.
    pub(crate) commits: u64,
    /// The history of the last of them. 0: unknown.
    pub(crate) history: u64,
}

#[derive(Clone, Copy)]
struct Started {
    sequence: u64,
    attempt: u32,
    place: u32,
}

#[derive(Default)]
struct Found {
    attempts: u32,
    places: Vec<u32>,
}

impl Marks {
    /// Opens the file, or creates it with room for so many slots. It grows if there are more.
    ///
    /// # Errors
    ///
    /// An error of kind `InvalidData` if the file is not a file of start marks.
    pub fn open(path: &Path, slots: u32) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let length = HEADER_BYTES + u64::from(slots) * SLOT_BYTES;
        if file.metadata()?.len() < length {
            file.set_len(length)?;
        }
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, 0)?;
        match magic {
            MAGIC => {}
            // The file is new, or was created just before a power failure.
            [0, 0, 0, 0, 0, 0, 0, 0] => file.write_all_at(&MAGIC, 0)?,
            _ => {
                let reason = "it is not a file of start marks";
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
        }
        let places = Places::read(&file)?;
        Ok(Self {
            file,
            places: Mutex::new(places),
            writes: RwLock::new(()),
            dirty: AtomicBool::new(true),
            suspect: AtomicBool::new(false),
        })
    }

    /// Marks that an attempt at a message is about to start. The first attempt is 1.
    ///
    /// When this returns, the operating system has the mark, and it outlives the process.
    ///
    /// # Errors
    ///
    /// The error of the operating system. The attempt must not start then: it would not be counted.
    pub fn start(&self, slot: u32, sequence: u64, attempt: u32) -> io::Result<()> {
        let (place, found) = self.places().take(slot, sequence, attempt);
        self.write(place, &encode(sequence, attempt))?;
        // Only now: until here they were the only trace of the message.
        let mut others = found.into_iter().filter(|other| *other != place);
        others.try_for_each(|other| self.clear(other))
    }

    /// Settles the message of a slot: its mark is stale, and the slot is free for another message.
    ///
    /// # Errors
    ///
    /// The error of the operating system, if too many marks were stale and one was cleared at once.
    /// It does no harm: its message does not wait any more.
    pub fn settle(&self, slot: u32) -> io::Result<()> {
        let mut places = self.places();
        let Some(place) = places.settle(slot) else {
            return Ok(());
        };
        if places.stale.len() < MOST_STALE {
            places.stale.push(place);
            return Ok(());
        }
        drop(places);
        self.clear(place)
    }

    /// Clears the stale marks.
    ///
    /// # Errors
    ///
    /// The error of the operating system. The marks do no harm: their messages do not wait any
    /// more.
    pub fn clear_stale(&self) -> io::Result<()> {
        let stale = std::mem::take(&mut self.places().stale);
        let cleared = stale.into_iter().map(|place| self.clear(place));
        cleared.fold(Ok(()), io::Result::and)
    }

    /// Takes back the message of a slot unhandled, after so many attempts that count. The number is
    /// kept until the message comes again, and the slot is free for another message.
    ///
    /// # Errors
    ///
    /// The error of the operating system. The count may be one too high then.
    pub fn give_back(&self, slot: u32, sequence: u64, attempts: u32) -> io::Result<()> {
        if attempts == 0 {
            let place = self.places().settle(slot);
            return place.map_or(Ok(()), |place| self.clear(place));
        }
        let Some(place) = self.places().keep(slot, sequence, attempts) else {
            return Ok(());
        };
        self.write(place, &encode(sequence, attempts))
    }

    /// Returns the sequences whose handling started, with the number of attempts: before the file
    /// was opened, or before they were [given back](Self::give_back). Sequences that have started
    /// again since, or were forgotten, are left out.
    pub fn recover(&self) -> HashMap<u64, u32> {
        let places = self.places();
        let found = places.found.iter();
        found
            .map(|(sequence, found)| (*sequence, found.attempts))
            .collect()
    }

    /// Returns the sequences that are being handled, with the number of attempts that have ended.
    pub(crate) fn under_way(&self) -> HashMap<u64, u32> {
        let places = self.places();
        let started = places.slots.iter().flatten();
        let before = started.map(|one| (one.sequence, one.attempt.saturating_sub(1)));
        before.filter(|(_, attempts)| *attempts > 0).collect()
    }

    /// Forgets the marks of these messages that were found in the file: the messages have settled
    /// without another start.
    ///
    /// # Errors
    ///
    /// The error of the operating system. A mark that stays in the file is found again at the next
    /// open.
    pub fn forget(&self, sequences: &[u64]) -> io::Result<()> {
        for sequence in sequences {
            let found = self.places().found.remove(sequence);
            let mut places = found.unwrap_or_default().places.into_iter();
            places.try_for_each(|place| self.clear(place))?;
        }
        Ok(())
    }

    /// Makes every earlier mark durable, if there is any.
    ///
    /// # Errors
    ///
    /// The error of the operating system. The next call writes everything once more.
    pub fn sync(&self) -> io::Result<()> {
        // Relaxed: a mark that another thread is writing now is not promised to be in this sync.
        if !self.dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let synced = self.mend().and_then(|()| self.file.sync_data());
        if synced.is_err() {
            self.suspect.store(true, Ordering::Relaxed);
            self.dirty.store(true, Ordering::Relaxed);
        }
        synced
    }

    /// Notes which commits are durable.
    pub(crate) fn stamp(&self, stamp: Stamp) -> io::Result<()> {
        // Alternates between two places: one of the two stamps is whole at any moment.
        let at = STAMPS_AT[(stamp.commits % 2) as usize];
        let stamp = stamp.encode();
        let _write = self.writes.read().unwrap_or_else(PoisonError::into_inner);
        self.file.write_all_at(&stamp, at)
    }

    /// Returns the stamp that the file had when it was opened.
    pub(crate) fn stamped(&self) -> Option<Stamp> {
        self.places().stamp
    }

    /// Clears the mark of an otherwise unknown place, and frees the place. If that fails, the mark
    /// is stale.
    fn clear(&self, place: u32) -> io::Result<()> {
        let cleared = self.write(place, &[0; SLOT_BYTES as usize]);
        let mut places = self.places();
        match cleared {
            Ok(()) => places.free.push(place),
            Err(_) => places.stale.push(place),
        }
        cleared
    }

    fn write(&self, place: u32, mark: &[u8; SLOT_BYTES as usize]) -> io::Result<()> {
        let at = HEADER_BYTES + u64::from(place) * SLOT_BYTES;
        let write = self.writes.read().unwrap_or_else(PoisonError::into_inner);
        self.file.write_all_at(mark, at)?;
        drop(write);
        self.dirty.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Rewrites everything after a failed sync, so that the next sync covers it.
    fn mend(&self) -> io::Result<()> {
        if !self.suspect.load(Ordering::Relaxed) {
            return Ok(());
        }
        let writes = self.writes.write().unwrap_or_else(PoisonError::into_inner);
        let length = usize::try_from(self.file.metadata()?.len()).map_err(io::Error::other)?;
        let mut all = vec![0; length];
        self.file.read_exact_at(&mut all, 0)?;
        self.file.write_all_at(&all, 0)?;
        drop(writes);
        self.suspect.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks").finish_non_exhaustive()
    }
}

impl Places {
    fn read(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut all = vec![0; length];
        file.read_exact_at(&mut all, 0)?;
        let (header, slots) = all.split_at(length.min(HEADER_BYTES as usize));
        let mut places = Self::default();
        let stamps = STAMPS_AT.iter().map(|at| &header[*at as usize..]);
        places.stamp = stamps.filter_map(Stamp::decode).max();
        for slot in slots.chunks_exact(SLOT_BYTES as usize) {
            match decode(slot) {
                None => places.free.push(places.end),
                Some((sequence, attempts)) => {
                    let found = places.found.entry(sequence).or_default();
                    found.attempts = found.attempts.max(attempts);
                    found.places.push(places.end);
                }
            }
            places.end += 1;
        }
        // The first places first: they are the part of the file that is in memory.
        places.free.reverse();
        Ok(places)
    }

    /// Returns the place of a slot, and the places where the message was found.
    fn take(&mut self, slot: u32, sequence: u64, attempt: u32) -> (u32, Vec<u32>) {
        let found = match self.found.is_empty() {
            true => Vec::new(),
            false => self.found.remove(&sequence).unwrap_or_default().places,
        };
        let slot = slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        let place = match &self.slots[slot] {
            Some(started) => started.place,
            // It overwrites its own mark: one write replaces it with a higher one.
            None => match found.first().copied() {
                Some(place) => place,
                None => self.any(),
            },
        };
        self.slots[slot] = Some(Started {
            sequence,
            attempt,
            place,
        });
        (place, found)
    }

    /// Returns a place whose mark is not needed.
    fn any(&mut self) -> u32 {
        let place = self.stale.pop().or_else(|| self.free.pop());
        place.unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    /// Takes the place of a slot whose message has settled. `None`: it was not started.
    fn settle(&mut self, slot: u32) -> Option<u32> {
        let started = self.slots.get_mut(slot as usize)?.take()?;
        Some(started.place)
    }

    /// Takes the place of a slot whose message is given back. `None`: it was not started in this
    /// slot.
    fn keep(&mut self, slot: u32, sequence: u64, attempts: u32) -> Option<u32> {
        let slot = self.slots.get_mut(slot as usize)?;
        let started = slot.take_if(|started| started.sequence == sequence)?;
        let found = self.found.entry(sequence).or_default();
        found.attempts = attempts;
        found.places.push(started.place);
        Some(started.place)
    }
}

fn encode(sequence: u64, attempt: u32) -> [u8; SLOT_BYTES as usize] {
    let mut mark = [0; SLOT_BYTES as usize];
    mark[..8].copy_from_slice(&sequence.to_le_bytes());
    mark[8..12].copy_from_slice(&attempt.to_le_bytes());
    let sum = crc32fast::hash(&mark[..12]);
    mark[12..16].copy_from_slice(&sum.to_le_bytes());
    mark
}

/// Decodes a mark. Never panics: other bytes are no mark. No message has the sequence 0, and no
/// attempt the number 0.
fn decode(mark: &[u8]) -> Option<(u64, u32)> {
    let sum = crc32fast::hash(mark.get(..12)?);
    let sequence = u64::from_le_bytes(mark.get(..8)?.try_into().ok()?);
    let attempt = u32::from_le_bytes(mark.get(8..12)?.try_into().ok()?);
    let is_whole = mark.get(12..16)? == sum.to_le_bytes();
    (is_whole && sequence > 0 && attempt > 0).then_some((sequence, attempt))
}

impl Stamp {
    const BYTES: usize = 20;

    fn encode(self) -> [u8; Self::BYTES] {
        let mut stamp = [0; Self::BYTES];
        stamp[..8].copy_from_slice(&self.commits.to_le_bytes());
        stamp[8..16].copy_from_slice(&self.history.to_le_bytes());
        let sum = crc32fast::hash(&stamp[..16]);
        stamp[16..].copy_from_slice(&sum.to_le_bytes());
        stamp
    }

    /// Decodes a stamp. Never panics: other bytes are no stamp.
    fn decode(stamp: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(stamp.get(at..at + 8)?.try_into().ok()?));
        let is_whole = |length: usize| {
            let sum = crc32fast::hash(stamp.get(..length)?);
            Some(stamp.get(length..length + 4)? == sum.to_le_bytes())
        };
        let (commits, history) = match (is_whole(16)?, is_whole(8)?) {
            (true, _) => (number(0)?, number(8)?),
            // The first format.
            (false, true) => (number(0)?, 0),
            (false, false) => return None,
        };
        (commits > 0).then_some(Self { commits, history })
    }
}

#[cfg(test)]
impl Marks {
    /// Opens the file so that each write to it fails.
    pub(crate) fn read_only(path: &Path) -> Self {
        let marks = Self::open(path, 4).unwrap();
        Self {
            file: File::open(path).unwrap(),
            ..marks
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn path() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("starts");
        (directory, path)
    }

    fn found(path: &Path) -> Vec<(u64, u32)> {
        let mut found = Vec::from_iter(Marks::open(path, 4).unwrap().recover());
        found.sort_unstable();
        found
    }

    #[test]
    fn what_was_started_is_found() {
        let (_directory, path) = path();
        let marks = Marks::open(&path, 4).unwrap();
        assert!(marks.recover().is_empty());
        marks.start(0, 10, 1).unwrap();
        marks.start(1, 11, 1).unwrap();
        marks.start(1, 11, 2).unwrap();
        marks.start(2, 12, 1).unwrap();
        marks.settle(2).unwrap();
        marks.settle(3).unwrap();
        marks.clear_stale().unwrap();
        assert_eq!(found(&path), [(10, 1), (11, 2)]);
        marks.sync().unwrap();
    }

    #[test]
    fn a_start_is_written_over_a_stale_mark() {
        let (_directory, path) = path();
        let marks = Marks::open(&path, 4).unwrap();
        marks.start(0, 10, 1).unwrap();
        marks.start(1, 11, 1).unwrap();
        marks.settle(0).unwrap();
        marks.settle(1).unwrap();
        assert_eq!(found(&path), [(10, 1), (11, 1)], "not cleared yet");
        marks.start(2, 12, 1).unwrap();
        assert_eq!(found(&path), [(10, 1), (12, 1)]);
        marks.clear_stale().unwrap();
        assert_eq!(found(&path), [(12, 1)]);
    }

    #[test]
    fn little_is_stale() {
        let (_directory, path) = path();
        let marks = Marks::open(&path, 4).unwrap();
        for slot in 0..200 {
            marks.start(slot, 1 + u64::from(slot), 1).unwrap();
        }
        for slot in 0..200 {
            marks.settle(slot).unwrap();
        }
        assert_eq!(found(&path).len(), MOST_STALE);
    }

    #[test]
    fn more_slots_than_were_asked_for() {
        let (_directory, path) = path();
        let marks = Marks::open(&path, 0).unwrap();
        for slot in 0..1_000 {
            marks.start(slot, 1 + u64::from(slot), 1).unwrap();
        }
        assert_eq!(found(&path).len(), 1_000);
    }

    #[test]
    fn marks_of_an_earlier_life_stay_until_their_messages_start() {
        let (_directory, path) = path();
        let first = Marks::open(&path, 2).unwrap();
        first.start(0, 10, 2).unwrap();
        first.start(1, 11, 1).unwrap();
        drop(first);
        // Other messages get the slots first.
        let second = Marks::open(&path, 2).unwrap();
        second.start(0, 20, 1).unwrap();
        second.start(1, 21, 1).unwrap();
        assert_eq!(found(&path), [(10, 2), (11, 1), (20, 1), (21, 1)]);
        second.start(2, 10, 3).unwrap();
        assert_eq!(second.recover(), HashMap::from([(11, 1)]));
        second.start(0, 11, 2).unwrap();
        assert_eq!(found(&path), [(10, 3), (11, 2), (21, 1)]);
        for slot in 0..3 {
            second.settle(slot).unwrap();
        }
        second.clear_stale().unwrap();
        assert_eq!(found(&path), []);
    }

    #[test]
    fn what_is_given_back_keeps_its_count_while_others_use_its_slot() {
        let (_directory, path) = path();
        let marks = Marks::open(&path, 2).unwrap();
        marks.start(0, 10, 1).unwrap();
        marks.start(0, 10, 2).unwrap();
        // The second was dropped in the middle.
        marks.give_back(0, 10, 1).unwrap();
        marks.start(0, 11, 1).unwrap();
        marks.give_back(0, 11, 0).unwrap();
        marks.start(0, 12, 1).unwrap();
        assert_eq!(found(&path), [(10, 1), (12, 1)]);
        assert_eq!(marks.recover(), HashMap::from([(10, 1)]));
        // It is not started this time.
        marks.give_back(1, 10, 1).unwrap();
        assert_eq!(found(&path), [(10, 1), (12, 1)]);
        marks.start(1, 10, 2).unwrap();
        assert_eq!(found(&path), [(10, 2), (12, 1)]);
        marks.settle(1).unwrap();
        marks.clear_stale().unwrap();
        assert_eq!(found(&path), [(12, 1)]);
    }

    #[test]
    fn what_is_given_back_while_it_runs_on_elsewhere_changes_nothing() {
        let (_directory, path) = path();
        let marks = Marks::open(&path, 2).unwrap();
        marks.start(1, 11, 1).unwrap();
        marks.settle(1).unwrap();
        for attempt in 1..=3 {
            marks.start(0, 10, attempt).unwrap();
        }
        assert_eq!(marks.under_way(), HashMap::from([(10, 2)]));
        // It was handed over once more, and did not start there.
        marks.give_back(1, 10, 2).unwrap();
        assert_eq!(found(&path), [(10, 3)]);
        assert!(marks.recover().is_empty());
        marks.give_back(0, 10, 2).unwrap();
        assert_eq!(found(&path), [(10, 2)]);
        assert_eq!(marks.recover(), HashMap::from([(10, 2)]));
        assert!(marks.under_way().is_empty());
    }

    #[test]
    fn what_is_forgotten_is_not_found() {
        let (_directory, path) = path();
        let first = Marks::open(&path, 2).unwrap();
        first.start(0, 10, 2).unwrap();
        first.start(1, 11, 1).unwrap();
        let second = Marks::open(&path, 2).unwrap();
        second.forget(&[10, 99]).unwrap();
        assert_eq!(found(&path), [(11, 1)]);
    }

    #[test]
    fn a_torn_mark_is_none() {
        let whole = encode(10, 3);
        assert_eq!(decode(&whole), Some((10, 3)));
        for cut in 0..16 {
            assert_eq!(decode(&whole[..cut]), None);
        }
        let new = encode(1 << 40, 7);
        for cut in 1..16 {
            let torn = [&new[..cut], &whole[cut..]].concat();
            let mark = decode(&torn);
            assert!([None, Some((10, 3)), Some((1 << 40, 7))].contains(&mark));
        }
    }

    #[test]
    fn the_last_stamp_is_found() {
        let (_directory, path) = path();
        let marks = Marks::open(&path, 2).unwrap();
        assert_eq!(marks.stamped(), None);
        for commits in 1..=5 {
            let stamp = Stamp {
                commits,
                history: u64::MAX - commits,
            };
            marks.stamp(stamp).unwrap();
            assert_eq!(Marks::open(&path, 2).unwrap().stamped(), Some(stamp));
        }
    }

    #[test]
    fn a_stamp_of_the_first_format_knows_no_history() {
        let mut stamp = [0; 64];
        stamp[..8].copy_from_slice(&7_u64.to_le_bytes());
        let sum = crc32fast::hash(&stamp[..8]);
        stamp[8..12].copy_from_slice(&sum.to_le_bytes());
        let (commits, history) = (7, 0);
        assert_eq!(Stamp::decode(&stamp), Some(Stamp { commits, history }));
        stamp[3] ^= 1;
        assert_eq!(Stamp::decode(&stamp), None);
    }

    #[test]
    fn another_file_is_refused() {
        let (_directory, path) = path();
        std::fs::write(&path, b"something else").unwrap();
        let error = Marks::open(&path, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        std::fs::write(&path, b"").unwrap();
        assert_eq!(found(&path), []);
    }

    #[test]
    fn any_bytes_are_read() {
        let (_directory, path) = path();
        let mut bytes = MAGIC.to_vec();
        bytes.extend((0..20_011_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8));
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(found(&path), []);
    }
}
