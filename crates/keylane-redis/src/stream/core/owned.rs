//! One owned stream, from the view of the source: open and waiting entries. Pure.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use keylane_source::Generation;

use super::super::id::EntryId;

/// The phase of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is ours.
    Live,
    /// It is ours, and its pending entries are read again when its work here has ended.
    Rewinding,
    /// Another member gets it when its work here has ended.
    Revoked,
}

#[derive(Debug)]
pub(crate) struct Owned<T> {
    pub(crate) generation: Generation,
    pub(crate) phase: Phase,
    /// Counts how often the pending entries were read again.
    pub(crate) round: u32,
    waiting: VecDeque<(EntryId, T)>,
    /// How many entries were handed over.
    handed: u64,
    /// Entries that were handed over and have not settled, or were returned, with how many were
    /// handed over before.
    open: HashMap<EntryId, u64>,
    /// Open entries that were acked in the step that has written their letter.
    lettered: HashSet<EntryId>,
    has_returned: bool,
    /// The last entry that came in this round.
    came: Option<EntryId>,
    /// Of a round that goes on, an entry up to which all had settled when it began. Of one that has
    /// ended, the entry up to which all have settled when none is open.
    settled: EntryId,
}

impl<T> Owned<T> {
    /// `settled`: an entry up to which all had settled before.
    pub(crate) fn new(generation: Generation, settled: EntryId) -> Self {
        Self {
            generation,
            phase: Phase::Live,
            round: 0,
            waiting: VecDeque::new(),
            handed: 0,
            open: HashMap::new(),
            lettered: HashSet::new(),
            has_returned: false,
            came: None,
            settled,
        }
    }

    /// Whether to hand over entries that were read in this round.
    pub(crate) fn takes(&self, round: u32) -> bool {
        self.phase == Phase::Live && self.round == round
    }

    pub(crate) fn push(&mut self, id: EntryId, entry: T) {
        self.came = Some(id);
        self.waiting.push_back((id, entry));
    }

    /// How many entries wait.
    pub(crate) fn waiting(&self) -> usize {
        match self.phase == Phase::Live && !self.has_returned {
            true => self.waiting.len(),
            false => 0,
        }
    }

    /// Takes the next entry to hand over. Skips one that is here already, as `Err`.
    pub(crate) fn next(&mut self) -> Option<Result<(EntryId, T), T>> {
        if self.waiting() == 0 {
            return None;
        }
        let (id, entry) = self.waiting.pop_front()?;
        Some(match self.open.entry(id) {
            Entry::Occupied(_) => Err(entry),
            Entry::Vacant(open) => {
                open.insert(self.handed);
                self.handed += 1;
                Ok((id, entry))
            }
        })
    }

    /// Acks an entry. Returns whether to tell the server.
    pub(crate) fn ack(&mut self, id: EntryId) -> bool {
        self.open.remove(&id).is_some() && !self.lettered.remove(&id)
    }

    /// Records that the letter of an entry is written, and the entry acked.
    pub(crate) fn letter_kept(&mut self, id: EntryId) {
        if self.open.contains_key(&id) {
            self.lettered.insert(id);
        }
    }

    pub(crate) fn has_letter(&self, id: EntryId) -> bool {
        self.lettered.contains(&id)
    }

    /// Records that an entry was returned: it comes again when the pending entries are read again.
    pub(crate) fn give_back(&mut self) {
        self.has_returned = true;
    }

    /// Whether no entry is open.
    pub(crate) fn is_free(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn is_open(&self, id: EntryId) -> bool {
        self.open.contains_key(&id)
    }

    /// Ends the stream. Returns the entries that were not handed over. `read`: see
    /// [`settled`](Self::settled).
    pub(crate) fn end(&mut self, phase: Phase, read: Option<EntryId>) -> impl Iterator<Item = T> {
        if self.phase == Phase::Live {
            let lowest = self.waiting.iter().map(|(id, _)| *id).min();
            self.settled = lowest.map_or_else(|| self.came_up_to(read), EntryId::before);
        }
        self.phase = phase;
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|(_, entry)| entry)
    }

    /// Whether the pending entries are to be read again.
    pub(crate) fn wants_rewind(&self) -> bool {
        self.phase == Phase::Live && self.has_returned
    }

    /// Begins a new generation.
    pub(crate) fn begin(&mut self, generation: Generation) {
        *self = Self {
            round: self.round + 1,
            ..Self::new(generation, self.settled(None))
        };
    }

    /// How many entries are open.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// How many entries have settled that were handed over after one that is open.
    pub(crate) fn beyond(&self) -> u64 {
        let first = self.open.values().min();
        let from_it = first.map_or(0, |first| self.handed - first);
        from_it.saturating_sub(self.open.len() as u64)
    }

    /// Returns the lowest entry that is open or waits.
    pub(crate) fn lowest(&self) -> Option<EntryId> {
        let waiting = self.waiting.iter().map(|(id, _)| *id);
        self.open.keys().copied().chain(waiting).min()
    }

    /// Returns an entry up to which all have settled. `read`: the one up to which the stream was
    /// read in this round, if all that was read has come.
    ///
    /// A round begins with the pending entries, which are below what was read before. And a stream
    /// that ends has dropped entries.
    pub(crate) fn settled(&self, read: Option<EntryId>) -> EntryId {
        let most = match self.phase {
            Phase::Live => self.came_up_to(read),
            Phase::Rewinding | Phase::Revoked => self.settled,
        };
        self.lowest()
            .map_or(most, |lowest| lowest.before().min(most))
    }

    /// Returns the entry up to which all have come.
    fn came_up_to(&self, read: Option<EntryId>) -> EntryId {
        read.or(self.came).unwrap_or(self.settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> EntryId {
        EntryId::new(number, 0)
    }

    fn owned(numbers: std::ops::Range<u64>) -> Owned<u64> {
        let mut owned = Owned::new(Generation(1), EntryId::default());
        numbers.for_each(|number| owned.push(id(number), number));
        owned
    }

    #[test]
    fn what_was_given_back_stops_the_stream_until_it_begins_again() {
        let mut owned = owned(1..5);
        assert_eq!(owned.next(), Some(Ok((id(1), 1))));
        owned.give_back();
        assert_eq!((owned.next(), owned.wants_rewind()), (None, true));
        assert_eq!(
            owned.end(Phase::Rewinding, None).collect::<Vec<_>>(),
            [2, 3, 4]
        );
        assert!(!owned.takes(0) && !owned.wants_rewind());
        owned.begin(Generation(2));
        assert!(owned.takes(1) && !owned.takes(0) && !owned.is_open(id(1)));
    }

    #[test]
    fn what_is_here_is_not_handed_over_twice() {
        let mut owned = owned(1..3);
        owned.push(id(1), 7);
        owned.next();
        owned.next();
        assert_eq!(owned.next(), Some(Err(7)));
        assert!(owned.ack(id(1)) && !owned.ack(id(1)));
    }

    #[test]
    fn what_has_a_letter_is_not_acked_again() {
        let mut owned = owned(1..3);
        while owned.next().is_some() {}
        owned.letter_kept(id(1));
        owned.letter_kept(id(7));
        assert!(owned.has_letter(id(1)) && !owned.has_letter(id(7)));
        assert!(!owned.ack(id(1)) && owned.ack(id(2)));
        assert!(!owned.is_open(id(1)) && !owned.has_letter(id(1)));
    }

    #[test]
    fn what_has_settled_above_an_open_entry_is_counted() {
        let mut owned = owned(1..7);
        assert_eq!((owned.open(), owned.beyond()), (0, 0));
        (1..=5).for_each(|number| assert_eq!(owned.next(), Some(Ok((id(number), number)))));
        assert_eq!((owned.open(), owned.beyond()), (5, 0));
        owned.ack(id(3));
        owned.ack(id(5));
        assert_eq!((owned.beyond(), owned.lowest()), (2, Some(id(1))));
        owned.ack(id(1));
        assert_eq!((owned.beyond(), owned.lowest()), (2, Some(id(2))));
        owned.ack(id(2));
        assert_eq!((owned.beyond(), owned.lowest()), (1, Some(id(4))));
        owned.ack(id(4));
        assert_eq!((owned.beyond(), owned.lowest()), (0, Some(id(6))));
    }

    #[test]
    fn a_group_that_is_made_again_begins_below_what_is_open() {
        let mut owned = owned(3..6);
        assert_eq!(owned.settled(None), id(3).before());
        while owned.next().is_some() {}
        owned.ack(id(3));
        assert_eq!(owned.settled(None), id(4).before());
        owned.ack(id(4));
        owned.ack(id(5));
        assert_eq!(owned.settled(Some(id(9))), id(9));
        // Others are read, and have not come.
        assert_eq!(owned.settled(None), id(5));
    }

    #[test]
    fn what_had_settled_before_is_known_until_an_entry_comes() {
        let mut owned = Owned::new(Generation(1), id(7));
        assert_eq!(owned.settled(None), id(7));
        owned.begin(Generation(2));
        assert_eq!(owned.settled(None), id(7));
        owned.push(id(9), 9);
        assert_eq!(owned.settled(None), id(9).before());
        // What the server had lost is pending again.
        owned.push(id(5), 5);
        assert_eq!(owned.settled(None), id(5).before());
    }

    #[test]
    fn a_group_that_is_made_again_begins_below_what_was_dropped() {
        let mut owned = owned(3..6);
        owned.next();
        owned.ack(id(3));
        // 4 and 5 wait.
        assert_eq!(owned.end(Phase::Revoked, None).count(), 2);
        assert_eq!(owned.settled(Some(id(9))), id(4).before());

        // Nothing is dropped, and what is in flight ends.
        let mut owned = self::owned(3..5);
        while owned.next().is_some() {}
        owned.ack(id(3));
        assert_eq!(owned.end(Phase::Revoked, Some(id(9))).count(), 0);
        assert_eq!(owned.settled(None), id(4).before());
        owned.ack(id(4));
        assert_eq!(owned.settled(None), id(9));

        let mut owned = self::owned(3..6);
        while owned.next().is_some() {}
        owned.ack(id(3));
        owned.give_back();
        owned.ack(id(5));
        assert_eq!(owned.end(Phase::Rewinding, Some(id(9))).count(), 0);
        owned.begin(Generation(2));
        // 4 is pending, and has not come again.
        assert_eq!(owned.settled(None), id(4).before());
        owned.push(id(4), 4);
        owned.next();
        owned.ack(id(4));
        assert_eq!(owned.settled(None), id(4));
    }
}
