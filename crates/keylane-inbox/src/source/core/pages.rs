//! Decides which messages are handed over, and which are only remembered. Pure.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;

use super::super::config::SourceSettings;
use super::backlog::Backlog;

/// The messages behind the cursor.
#[derive(Debug)]
pub(crate) struct Pages {
    settings: SourceSettings,
    /// The keys with messages here. A key without any costs nothing.
    keys: HashMap<Bytes, Key>,
    /// Keys that have remembered messages, and room in their windows. Each at most once.
    ready: VecDeque<Bytes>,
    /// Everything below is known here, or settled.
    cursor: u64,
    /// Bytes of payloads that are handed over.
    bytes: usize,
    remembered: usize,
}

#[derive(Debug, Default)]
struct Key {
    out: BTreeMap<u64, Out>,
    backlog: Backlog,
    is_ready: bool,
}

/// A message that is handed over.
#[derive(Clone, Copy, Debug)]
struct Out {
    bytes: usize,
    version: Option<u64>,
    /// Its letter waits again, before the source was told that it became one.
    waits_again: bool,
}

impl Out {
    fn new(bytes: usize, version: Option<u64>) -> Self {
        Self {
            bytes,
            version,
            waits_again: false,
        }
    }
}

/// What to do with a message that was read in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageEntry {
    /// Hand it over.
    Over,
    /// Its key has no room for it: drop the message, its sequence is remembered.
    Remembered,
}

impl Pages {
    pub(crate) fn new(settings: SourceSettings) -> Self {
        Self {
            settings,
            keys: HashMap::new(),
            ready: VecDeque::new(),
            cursor: 1,
            bytes: 0,
            remembered: 0,
        }
    }

    /// Returns the sequence to read from.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Records that there is nothing to read below this sequence.
    pub(crate) fn advance(&mut self, to: u64) {
        self.cursor = self.cursor.max(to);
    }

    /// Returns whether more bytes may be handed over.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes < self.settings.bytes
    }

    /// Returns whether more may be read from the cursor on.
    pub(crate) fn reads_on(&self) -> bool {
        self.has_room() && self.remembered < self.settings.remembered
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Decides about a message that was read at the cursor.
    pub(crate) fn meet(
        &mut self,
        sequence: u64,
        key: &Bytes,
        version: Option<u64>,
        bytes: usize,
    ) -> PageEntry {
        self.cursor = self.cursor.max(sequence + 1);
        let state = match self.keys.get_mut(key) {
            Some(state) => state,
            // A copy: the key must not keep the whole message in memory.
            None => self.keys.entry(Bytes::copy_from_slice(key)).or_default(),
        };
        let has_place = state.out.len() < self.settings.window && state.backlog.is_empty();
        // If its version is lower than one that is out, the others may wait for it.
        let is_awaited = version.is_some_and(|version| {
            let highest = state.out.values().filter_map(|out| out.version).max();
            highest.is_some_and(|highest| version < highest)
        });
        if has_place || is_awaited {
            state.out.insert(sequence, Out::new(bytes, version));
            self.bytes += bytes;
            PageEntry::Over
        } else {
            state.backlog.push(sequence, version);
            self.remembered += 1;
            PageEntry::Remembered
        }
    }

    /// Returns the next messages to read again and hand over, up to `most`, each with its key.
    /// Report each by [`hand_over`](Self::hand_over), or as [settled](Self::settle) if it does not
    /// wait any more.
    pub(crate) fn take_ready(&mut self, most: usize) -> Vec<(u64, Bytes)> {
        let mut taken = Vec::new();
        // One of each key in turn.
        while taken.len() < most
            && let Some(key) = self.ready.pop_front()
        {
            let Some(state) = self.keys.get_mut(&key) else {
                continue;
            };
            state.is_ready = false;
            if state.out.len() >= self.settings.window {
                continue;
            }
            if let Some(sequence) = state.backlog.pop() {
                self.remembered -= 1;
                state.out.insert(sequence, Out::new(0, None));
                taken.push((sequence, key.clone()));
            }
            self.note_ready(&key);
        }
        taken
    }

    /// Records that a [taken](Self::take_ready) message is handed over.
    pub(crate) fn hand_over(
        &mut self,
        sequence: u64,
        key: &Bytes,
        version: Option<u64>,
        bytes: usize,
    ) {
        if let Some(out) = self
            .keys
            .get_mut(key)
            .and_then(|state| state.out.get_mut(&sequence))
        {
            *out = Out::new(bytes, version);
            self.bytes += bytes;
        }
    }

    /// Records that a message that was handed over has settled, or comes back.
    pub(crate) fn settle(&mut self, sequence: u64, key: &Bytes, comes_back: bool) {
        let Some(state) = self.keys.get_mut(key) else {
            return;
        };
        let Some(out) = state.out.remove(&sequence) else {
            return;
        };
        self.bytes -= out.bytes;
        if comes_back || out.waits_again {
            state.backlog.put_back(sequence, out.version);
            self.remembered += 1;
        }
        let key = key.clone();
        self.note_ready(&key);
        self.forget_if_empty(&key);
    }

    /// Records a message that waits again and is not known here, or not yet. Returns the messages
    /// of its key that are out, which must be recalled.
    pub(crate) fn wait_again(
        &mut self,
        sequence: u64,
        key: &Bytes,
        version: Option<u64>,
    ) -> Vec<u64> {
        if sequence >= self.cursor {
            return Vec::new();
        }
        let state = self.keys.entry(Bytes::copy_from_slice(key)).or_default();
        match state.out.get_mut(&sequence) {
            Some(out) => out.waits_again = true,
            None => {
                state.backlog.put_back(sequence, version);
                self.remembered += 1;
            }
        }
        let later = state.out.range(sequence + 1..).map(|(later, _)| *later);
        let later = later.collect();
        self.note_ready(key);
        later
    }

    /// Returns how many sequences are remembered.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.remembered
    }

    fn note_ready(&mut self, key: &Bytes) {
        let window = self.settings.window;
        if let Some((key, state)) = self.keys.get_key_value(key)
            && !state.is_ready
            && !state.backlog.is_empty()
            && state.out.len() < window
        {
            let key = key.clone();
            self.ready.push_back(key.clone());
            if let Some(state) = self.keys.get_mut(&key) {
                state.is_ready = true;
            }
        }
    }

    fn forget_if_empty(&mut self, key: &Bytes) {
        let is_empty = |state: &Key| state.out.is_empty() && state.backlog.is_empty();
        if self.keys.get(key).is_some_and(is_empty) {
            self.keys.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(window: usize) -> Pages {
        Pages::new(SourceSettings::new().window(window))
    }

    fn key(name: &'static str) -> Bytes {
        Bytes::from_static(name.as_bytes())
    }

    fn ready(pages: &mut Pages) -> Vec<u64> {
        let taken = pages.take_ready(9);
        taken.into_iter().map(|(sequence, _)| sequence).collect()
    }

    #[test]
    fn a_key_has_a_window_and_the_rest_is_remembered() {
        let (mut pages, a, b) = (pages(2), key("a"), key("b"));
        let turns: Vec<PageEntry> = (1..=4).map(|n| pages.meet(n, &a, None, 10)).collect();
        assert_eq!(
            turns,
            [
                PageEntry::Over,
                PageEntry::Over,
                PageEntry::Remembered,
                PageEntry::Remembered
            ]
        );
        assert_eq!(pages.meet(5, &b, None, 10), PageEntry::Over);
        assert_eq!((pages.cursor(), pages.remembered()), (6, 2));
        assert!(ready(&mut pages).is_empty());
        pages.settle(1, &a, false);
        assert_eq!(ready(&mut pages), [3]);
        pages.hand_over(3, &a, None, 10);
        assert_eq!(
            pages.meet(6, &a, None, 10),
            PageEntry::Remembered,
            "4 is before it"
        );
        pages.settle(2, &a, true);
        assert_eq!(ready(&mut pages), [2], "it came back");
        for done in [2, 3] {
            pages.settle(done, &a, false);
        }
        assert_eq!(ready(&mut pages), [4, 6]);
        for done in [4, 6] {
            pages.settle(done, &a, false);
        }
        pages.settle(5, &b, false);
        assert!(pages.keys.is_empty() && pages.bytes == 0 && pages.remembered == 0);
    }

    #[test]
    fn what_is_read_goes_behind_what_is_remembered() {
        let (mut pages, a) = (pages(1), key("a"));
        assert_eq!(pages.meet(1, &a, None, 1), PageEntry::Over);
        assert_eq!(pages.meet(2, &a, None, 1), PageEntry::Remembered);
        pages.settle(1, &a, false);
        // There is room, and it is for another message.
        assert_eq!(pages.meet(3, &a, None, 1), PageEntry::Remembered);
        assert_eq!(ready(&mut pages), [2]);
    }

    #[test]
    fn a_letter_that_waits_again_is_ahead_of_what_is_out() {
        let (mut pages, a) = (pages(4), key("a"));
        for n in [2, 3, 4] {
            assert_eq!(pages.meet(n, &a, None, 1), PageEntry::Over);
        }
        assert_eq!(pages.wait_again(1, &a, None), [2, 3, 4]);
        for recalled in [3, 4] {
            pages.settle(recalled, &a, true);
        }
        assert_eq!(ready(&mut pages), [1, 3, 4]);
        assert!(
            pages.wait_again(9, &a, None).is_empty(),
            "it is read in its turn"
        );
    }

    #[test]
    fn a_letter_that_waits_again_before_it_has_settled_comes_back() {
        let (mut pages, a) = (pages(4), key("a"));
        for n in [1, 2] {
            assert_eq!(pages.meet(n, &a, None, 1), PageEntry::Over);
        }
        assert_eq!(pages.wait_again(1, &a, None), [2]);
        pages.settle(1, &a, false);
        pages.settle(2, &a, true);
        assert_eq!(ready(&mut pages), [1, 2]);
        for n in [1, 2] {
            pages.settle(n, &a, false);
        }
        assert!(pages.keys.is_empty() && pages.remembered == 0);
    }

    #[test]
    fn a_version_that_others_wait_for_is_handed_over_beyond_the_window() {
        let (mut pages, a) = (pages(2), key("a"));
        for (n, version) in [(1, 5), (2, 6)] {
            assert_eq!(pages.meet(n, &a, Some(version), 1), PageEntry::Over);
        }
        assert_eq!(pages.meet(3, &a, Some(7), 1), PageEntry::Remembered);
        assert_eq!(pages.meet(4, &a, Some(4), 1), PageEntry::Over);
    }
}
