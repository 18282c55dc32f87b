//! One stream that is owned, as the source sees it: what was handed over, and what waits to be.
//! Pure.

use std::collections::{HashSet, VecDeque};

use keylane_source::Generation;

use super::id::EntryId;

/// What may be done with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is ours.
    Live,
    /// It is ours, and is read again from what is pending when its work here has ended.
    Rewinding,
    /// Another member has it when its work here has ended.
    Revoked,
}

#[derive(Debug)]
pub(super) struct Owned<T> {
    pub(super) generation: Generation,
    pub(super) phase: Phase,
    /// Counts how often the stream was read from what is pending.
    pub(super) round: u32,
    waiting: VecDeque<(EntryId, T)>,
    /// Handed over and not settled, or given back.
    open: HashSet<EntryId>,
    /// Open, and acked by the step that has written its letter.
    lettered: HashSet<EntryId>,
    has_returned: bool,
}

impl<T> Owned<T> {
    pub(super) fn new(generation: Generation) -> Self {
        Self {
            generation,
            phase: Phase::Live,
            round: 0,
            waiting: VecDeque::new(),
            open: HashSet::new(),
            lettered: HashSet::new(),
            has_returned: false,
        }
    }

    /// Whether what was read in this round is to be handed over.
    pub(super) fn takes(&self, round: u32) -> bool {
        self.phase == Phase::Live && self.round == round
    }

    pub(super) fn push(&mut self, id: EntryId, entry: T) {
        self.waiting.push_back((id, entry));
    }

    /// How many entries wait.
    pub(super) fn waiting(&self) -> usize {
        match self.phase == Phase::Live && !self.has_returned {
            true => self.waiting.len(),
            false => 0,
        }
    }

    /// The next one that is handed over. One that is here already is passed over, as `Err`.
    pub(super) fn next(&mut self) -> Option<Result<(EntryId, T), T>> {
        if self.waiting() == 0 {
            return None;
        }
        let (id, entry) = self.waiting.pop_front()?;
        Some(match self.open.insert(id) {
            true => Ok((id, entry)),
            false => Err(entry),
        })
    }

    /// It is handled. Whether that is to be told.
    pub(super) fn ack(&mut self, id: EntryId) -> bool {
        self.open.remove(&id) && !self.lettered.remove(&id)
    }

    /// Its letter is written, and it is acked.
    pub(super) fn letter_kept(&mut self, id: EntryId) {
        if self.open.contains(&id) {
            self.lettered.insert(id);
        }
    }

    pub(super) fn has_letter(&self, id: EntryId) -> bool {
        self.lettered.contains(&id)
    }

    /// It was given back: it comes again when the stream is read from what is pending.
    pub(super) fn give_back(&mut self) {
        self.has_returned = true;
    }

    pub(super) fn is_open(&self, id: EntryId) -> bool {
        self.open.contains(&id)
    }

    /// It goes. Returns what was not handed over.
    pub(super) fn end(&mut self, phase: Phase) -> impl Iterator<Item = T> {
        self.phase = phase;
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|(_, entry)| entry)
    }

    /// Whether it is to be read again from what is pending.
    pub(super) fn wants_rewind(&self) -> bool {
        self.phase == Phase::Live && self.has_returned
    }

    /// It begins again.
    pub(super) fn begin(&mut self, generation: Generation) {
        *self = Self {
            round: self.round + 1,
            ..Self::new(generation)
        };
    }

    /// Below this everything is settled, as the stream is read up to `last`.
    pub(super) fn settled_below(&self, last: EntryId) -> EntryId {
        let waiting = self.waiting.iter().map(|(id, _)| id);
        let lowest = self.open.iter().chain(waiting).min();
        lowest.map_or(last, |id| id.before())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> EntryId {
        EntryId::new(number, 0)
    }

    fn owned(numbers: std::ops::Range<u64>) -> Owned<u64> {
        let mut owned = Owned::new(Generation(1));
        numbers.for_each(|number| owned.push(id(number), number));
        owned
    }

    #[test]
    fn what_was_given_back_stops_the_stream_until_it_begins_again() {
        let mut owned = owned(1..5);
        assert_eq!(owned.next(), Some(Ok((id(1), 1))));
        owned.give_back();
        assert_eq!((owned.next(), owned.wants_rewind()), (None, true));
        assert_eq!(owned.end(Phase::Rewinding).collect::<Vec<_>>(), [2, 3, 4]);
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
    fn a_group_that_is_made_again_begins_below_what_is_open() {
        let mut owned = owned(3..6);
        assert_eq!(owned.settled_below(id(9)), id(3).before());
        while owned.next().is_some() {}
        owned.ack(id(3));
        assert_eq!(owned.settled_below(id(9)), id(4).before());
        owned.ack(id(4));
        owned.ack(id(5));
        assert_eq!(owned.settled_below(id(9)), id(9));
    }
}
