//! Limits how far a stream is read ahead.

use std::sync::Mutex;

use tokio::sync::Notify;

use super::super::id::EntryId;
use super::resume::Seen;
use keylane_connector::lock;

/// The approximate limit of bytes of a stream that wait here.
const MOST_BYTES: usize = 16 << 20;

/// The state between the task that reads a stream and the source that hands it over.
#[derive(Debug)]
pub(crate) struct Flow {
    most: usize,
    ahead: Mutex<Ahead>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Ahead {
    entries: usize,
    bytes: usize,
    /// The average size of an entry.
    size: Option<usize>,
    /// Counts how often the pending entries were read again.
    round: u32,
    /// The entry up to which the stream was read in this round.
    last: Option<EntryId>,
    /// The last entry that was seen in the stream.
    seen: Option<Seen>,
}

impl Flow {
    /// `seen`: an entry that the owner before has seen in the stream.
    pub(crate) fn new(most: usize, seen: Option<Seen>) -> Self {
        let ahead = Ahead {
            seen,
            ..Ahead::default()
        };
        Self {
            most,
            ahead: Mutex::new(ahead),
            wake: Notify::new(),
        }
    }

    /// Waits until there is room for half of all entries. Returns for how many there is room.
    pub(crate) async fn room(&self) -> usize {
        loop {
            let room = lock(&self.ahead).room(self.most);
            if let Some(room) = room {
                return room;
            }
            self.wake.notified().await;
        }
    }

    /// Records that this many entries were read in a round, up to this one, and the last one that
    /// was seen.
    pub(crate) fn read(
        &self,
        round: u32,
        (entries, bytes): (usize, usize),
        last: EntryId,
        seen: Option<Seen>,
    ) {
        let mut ahead = lock(&self.ahead);
        if seen.is_some() {
            ahead.seen = seen;
        }
        ahead.entries += entries;
        ahead.bytes += bytes;
        // The reader of the round before may not have heard yet that it is over.
        if round == ahead.round {
            ahead.last = Some(last);
        }
        if let Some(size) = bytes.checked_div(entries) {
            ahead.size = Some(ahead.size.map_or(size, |before| (before + size) / 2));
        }
    }

    /// Records that an entry was handed over or dropped.
    pub(crate) fn passed(&self, bytes: usize) {
        let mut ahead = lock(&self.ahead);
        ahead.entries = ahead.entries.saturating_sub(1);
        ahead.bytes = ahead.bytes.saturating_sub(bytes);
        let has_room = ahead.room(self.most).is_some();
        drop(ahead);
        if has_room {
            self.wake.notify_one();
        }
    }

    /// Records that the pending entries are read again, in this round.
    pub(crate) fn begin(&self, round: u32) {
        let mut ahead = lock(&self.ahead);
        ahead.round = round;
        ahead.last = None;
    }

    /// Returns how many entries were read and not handed over, and the entry up to which the stream
    /// was read in this round, if that has begun.
    pub(crate) fn ahead(&self) -> (usize, Option<EntryId>) {
        let ahead = lock(&self.ahead);
        (ahead.entries, ahead.last)
    }

    /// Returns the last entry that was seen.
    pub(crate) fn seen(&self) -> Option<Seen> {
        lock(&self.ahead).seen.clone()
    }
}

impl Ahead {
    fn room(&self, most: usize) -> Option<usize> {
        if self.entries > most / 2 || self.bytes > MOST_BYTES / 2 {
            return None;
        }
        // The first reads measure how large entries are.
        let by_size = match self.size {
            None => 64,
            Some(size) => (MOST_BYTES - self.bytes) / size.max(1),
        };
        Some((most - self.entries).min(by_size).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_a_number_and_for_bytes() {
        let flow = Flow::new(1_000, None);
        assert_eq!(flow.room().await, 64);
        flow.read(0, (64, 64 * 100), EntryId::new(7, 0), None);
        assert_eq!(flow.room().await, 936);
        flow.read(0, (936, 93_600), EntryId::new(8, 0), None);
        let waits = tokio::time::timeout(std::time::Duration::from_secs(1), flow.room());
        assert!(waits.await.is_err());
        (0..500).for_each(|_| flow.passed(100));
        assert_eq!(flow.room().await, 500);
    }

    #[test]
    fn it_is_not_known_how_far_it_is_read_until_that_has_begun() {
        let flow = Flow::new(1_000, None);
        assert_eq!(flow.ahead(), (0, None));
        flow.read(0, (2, 200), EntryId::new(7, 0), None);
        flow.passed(100);
        assert_eq!(flow.ahead(), (1, Some(EntryId::new(7, 0))));
        flow.begin(1);
        assert_eq!(flow.ahead(), (1, None));
        // Late, and of the round before.
        flow.read(0, (1, 100), EntryId::new(8, 0), None);
        assert_eq!(flow.ahead(), (2, None));
        flow.read(1, (0, 0), EntryId::new(3, 0), None);
        assert_eq!(flow.ahead(), (2, Some(EntryId::new(3, 0))));
    }

    #[tokio::test]
    async fn large_entries_are_read_one_by_one() {
        let flow = Flow::new(1_000, None);
        flow.read(0, (1, 16 << 20), EntryId::default(), None);
        flow.passed(16 << 20);
        assert_eq!(flow.room().await, 1);
    }
}
