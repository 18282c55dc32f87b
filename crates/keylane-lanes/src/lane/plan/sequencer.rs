//! The versions of one key: what comes next, and what came too early.

use std::collections::BTreeMap;

use keylane_rt::clock::Instant;

use super::super::super::item::Item;
use super::super::super::rules::{SequenceRules, TICK, later};
use super::super::backlog::{Backlog, Spares};
use super::super::effects::{Effects, Gap};
use super::super::state::WaitReason;

/// Puts the messages of one key into the order of their versions, as a receiver of TCP does with
/// segments (RFC 9293, section 3.10.7.4): the next version goes on, an early one waits, and one
/// that came before is a duplicate.
///
/// The caller parks the next message in the lane; only the early ones are kept here.
#[derive(Debug)]
pub struct Sequencer<T> {
    position: Position,
    early: BTreeMap<u64, T>,
    /// Set while something waits for the version that is next.
    missed: Option<Missed>,
    /// The last version that is recorded outside, or was passed before anything was handled.
    recorded: Option<u64>,
}

/// How long the version that is next has been missed.
#[derive(Clone, Copy, Debug)]
struct Missed {
    since: Instant,
    /// Whether the timer of the gap has gone off.
    is_over: bool,
}

impl Missed {
    fn since(now: Instant) -> Self {
        Self {
            since: now,
            is_over: false,
        }
    }
}

/// Which version is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// The last version of this key has not been asked for yet.
    Unknown,
    /// This one.
    Next(u64),
    /// The last of all versions was there.
    Full,
}

/// The result of an arrival.
#[derive(Debug)]
#[must_use = "what is next must be parked, what is not must be settled"]
pub enum Came<T> {
    /// It is next: park it.
    Next(T),
    /// It waits here.
    Early,
    /// Its version came before, or is older than one that did.
    Duplicate(T),
}

impl<T> Sequencer<T> {
    /// Returns a sequencer that has seen no version.
    pub fn new() -> Self {
        Self {
            position: Position::Unknown,
            early: BTreeMap::new(),
            missed: None,
            recorded: None,
        }
    }

    /// Returns the last version that was in line; an early one was not.
    pub fn passed(&self) -> Option<u64> {
        match self.position {
            Position::Unknown => None,
            Position::Next(next) => next.checked_sub(1),
            Position::Full => Some(u64::MAX),
        }
    }

    /// Notes that the versions up to this one need not be recorded any more.
    pub fn record(&mut self, version: u64) {
        self.recorded = self.recorded.max(Some(version));
    }

    /// Returns the last version that was in line, if it is not known to be recorded.
    pub fn unrecorded(&self) -> Option<u64> {
        self.passed().filter(|passed| self.recorded < Some(*passed))
    }

    /// Returns whether a message of this version would have to wait for others.
    pub fn is_early(&self, version: u64, gaps: bool) -> bool {
        match self.position {
            Position::Unknown => true,
            Position::Next(next) => gaps && version > next,
            Position::Full => false,
        }
    }

    /// Returns whether the last version of this key must be asked for.
    pub fn is_unknown(&self) -> bool {
        self.position == Position::Unknown
    }

    /// Takes a message that came.
    pub fn come(&mut self, version: u64, item: T, gaps: bool, now: Instant) -> Came<T> {
        match self.position {
            Position::Full => Came::Duplicate(item),
            Position::Next(next) if version < next => Came::Duplicate(item),
            Position::Next(next) if version == next || !gaps => {
                self.pass(version);
                Came::Next(item)
            }
            Position::Next(_) | Position::Unknown => {
                if self.early.contains_key(&version) {
                    return Came::Duplicate(item);
                }
                self.early.insert(version, item);
                if self.position != Position::Unknown {
                    self.missed.get_or_insert(Missed::since(now));
                }
                Came::Early
            }
        }
    }

    /// Returns the next early message whose turn has come, to be parked.
    pub fn pop_next(&mut self, gaps: bool, now: Instant) -> Option<T> {
        let (&version, _) = self.early.first_key_value()?;
        if self.position != Position::Next(version) && (gaps || self.position == Position::Full) {
            return None;
        }
        let (_, item) = self.early.pop_first()?;
        self.pass(version);
        // What is still early waits for another version, from now on.
        self.missed = (!self.early.is_empty()).then_some(Missed::since(now));
        Some(item)
    }

    /// Parks the early messages whose turn has come.
    pub(in super::super) fn park_next(
        &mut self,
        parked: &mut Backlog<T>,
        gaps: bool,
        now: Instant,
        spares: &Spares<T>,
    ) {
        while let Some(next) = self.pop_next(gaps, now) {
            parked.push(next, spares);
        }
    }

    /// Gives the missing versions up: the lane goes on with what is there.
    pub(in super::super) fn give_gap_up(
        &mut self,
        parked: &mut Backlog<T>,
        now: Instant,
        spares: &Spares<T>,
    ) {
        self.skip_gap();
        let gaps = true;
        self.park_next(parked, gaps, now, spares);
    }

    /// Learns where this key stands: the last version that was handled, or the first one to handle.
    /// Returns early messages that turn out to be old.
    pub fn learn(&mut self, last: Option<u64>, first: Option<u64>, now: Instant) -> Vec<T> {
        let seen = || self.early.first_key_value().map(|(version, _)| *version);
        self.position = match (last, first.or_else(seen)) {
            (Some(last), _) => last.checked_add(1).map_or(Position::Full, Position::Next),
            (None, Some(first)) => Position::Next(first),
            // Nothing is here, so nothing can be first.
            (None, None) => Position::Unknown,
        };
        let keep = match self.position {
            Position::Next(next) => self.early.split_off(&next),
            Position::Full => BTreeMap::new(),
            Position::Unknown => return Vec::new(),
        };
        self.recorded = self.passed();
        let old = std::mem::replace(&mut self.early, keep);
        self.missed = (!self.early.is_empty()).then_some(Missed::since(now));
        old.into_values().collect()
    }

    /// Returns the missing versions, if any message waits for them.
    pub fn gap(&self) -> Option<Gap> {
        let Position::Next(first) = self.position else {
            return None;
        };
        let (&waits, _) = self.early.first_key_value()?;
        Some(Gap {
            first,
            last: waits.checked_sub(1).filter(|last| *last >= first)?,
            since: self.missed?.since,
        })
    }

    /// Returns what the lane waits for while nothing in it is next.
    pub fn missing(
        &self,
        sequence: &SequenceRules,
        now: Instant,
    ) -> Option<(WaitReason, Option<Instant>)> {
        if self.is_unknown() {
            return Some((WaitReason::Load, None));
        }
        let until = later(self.gap()?.since, sequence.patience);
        // As early as its timer may be; and `now` may have been read before its timer went off.
        let is_over = until <= now + TICK || self.is_gap_over();
        if is_over && sequence.halts() {
            return Some((WaitReason::HaltedGap, None));
        }
        Some((WaitReason::Gap, Some(until)))
    }

    /// Arms the timer of a gap that was not there before.
    pub(in super::super) fn arm_gap<H, G>(
        &self,
        sequence: &SequenceRules,
        had_gap: Option<Instant>,
        effects: &mut Effects<T, H, G>,
    ) where
        T: Item,
    {
        let gap = self.gap().map(|gap| gap.since);
        if let Some(since) = gap.filter(|_| gap != had_gap) {
            effects.rare_mut().gap_until = Some((since, later(since, sequence.patience)));
        }
    }

    /// Makes this version the next one again. Returns `false` if it was not in line before.
    pub fn rewind(&mut self, version: u64) -> bool {
        let was_in_line = self.passed().is_some_and(|passed| passed >= version);
        if was_in_line {
            self.position = Position::Next(version);
        }
        was_in_line
    }

    /// Keeps a message that was in line, and is early now.
    pub fn keep_early(&mut self, version: u64, item: T, now: Instant) {
        self.early.insert(version, item);
        self.missed.get_or_insert(Missed::since(now));
    }

    /// Takes out the early messages that are chosen, in the order of their versions.
    pub fn extract_early(&mut self, mut chosen: impl FnMut(&T) -> bool) -> Vec<T> {
        let (out, early) = std::mem::take(&mut self.early)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, item)| chosen(item));
        self.early = early;
        if self.early.is_empty() {
            self.missed = None;
        }
        out.into_values().collect()
    }

    /// Gives the missing versions up: the first early message is next.
    pub fn skip_gap(&mut self) {
        if let Some((&version, _)) = self.early.first_key_value() {
            self.position = Position::Next(version);
        }
    }

    /// Notes that the time of the gap has come.
    pub fn end_gap(&mut self) {
        if let Some(missed) = &mut self.missed {
            missed.is_over = true;
        }
    }

    /// Returns whether the time of the gap has come: its timer does not go off again.
    pub fn is_gap_over(&self) -> bool {
        self.missed.is_some_and(|missed| missed.is_over)
    }

    /// Waits anew for the missing versions.
    pub fn wait_anew(&mut self, now: Instant) {
        self.missed = (!self.early.is_empty()).then_some(Missed::since(now));
    }

    /// Takes all early messages, in the order of the versions.
    pub fn take_early(&mut self) -> Vec<T> {
        self.missed = None;
        std::mem::take(&mut self.early).into_values().collect()
    }

    /// Returns whether a message of this version waits here.
    pub fn has(&self, version: u64) -> bool {
        self.early.contains_key(&version)
    }

    /// Returns whether the line goes on with this version, or it came before: it waits for no
    /// others.
    pub fn is_awaited(&self, version: u64) -> bool {
        match self.position {
            Position::Unknown => false,
            Position::Next(next) => version <= next,
            Position::Full => true,
        }
    }

    /// Returns the message of this version, if it waits here.
    pub fn early_mut(&mut self, version: u64) -> Option<&mut T> {
        self.early.get_mut(&version)
    }

    /// Returns the first early message.
    pub fn first_early(&self) -> Option<&T> {
        self.early.first_key_value().map(|(_, item)| item)
    }

    /// Returns the early messages, in the order of the versions.
    pub fn early(&self) -> impl Iterator<Item = &T> {
        self.early.values()
    }

    /// Returns how many messages wait for a version that is missing.
    pub fn early_len(&self) -> usize {
        self.early.len()
    }

    /// The version is in position: the one behind it is next.
    fn pass(&mut self, version: u64) {
        self.position = version
            .checked_add(1)
            .map_or(Position::Full, Position::Next);
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use keylane_rt::clock;

    use super::*;

    /// A sequencer whose next version is this one.
    fn at(next: u64) -> Sequencer<u64> {
        let mut sequencer = Sequencer::new();
        let old = sequencer.learn(None, Some(next), clock::now());
        assert!(old.is_empty());
        sequencer
    }

    fn full() -> Sequencer<u64> {
        let mut sequencer = Sequencer::new();
        let _ = sequencer.learn(Some(u64::MAX), None, clock::now());
        sequencer
    }

    #[test]
    fn what_is_behind_the_next_one_is_early() {
        let versions = [4, 5, 6];
        let early = |sequencer: &Sequencer<u64>, gaps| {
            versions.map(|version| sequencer.is_early(version, gaps))
        };
        assert_eq!(early(&at(5), true), [false, false, true]);
        assert_eq!(early(&at(5), false), [false; 3], "none is missed");
        assert_eq!(
            early(&Sequencer::new(), false),
            [true; 3],
            "nothing is known"
        );
        assert_eq!(early(&full(), true), [false; 3], "all were there");
    }

    #[test]
    fn a_line_waits_for_the_next_one() {
        let awaited =
            |sequencer: &Sequencer<u64>| [4, 5, 6].map(|version| sequencer.is_awaited(version));
        assert_eq!(awaited(&at(5)), [true, true, false]);
        assert_eq!(awaited(&Sequencer::new()), [false; 3]);
        assert_eq!(awaited(&full()), [true; 3]);
    }

    #[test]
    fn what_passed_is_unrecorded_until_it_is_recorded() {
        let mut sequencer = at(5);
        assert_eq!(
            (sequencer.passed(), sequencer.unrecorded()),
            (Some(4), None)
        );
        assert!(matches!(
            sequencer.come(5, 5, true, clock::now()),
            Came::Next(5)
        ));
        assert_eq!(
            (sequencer.passed(), sequencer.unrecorded()),
            (Some(5), Some(5))
        );
        sequencer.record(4);
        assert_eq!(sequencer.unrecorded(), Some(5));
        sequencer.record(5);
        assert_eq!(sequencer.unrecorded(), None);
        sequencer.record(3);
        assert_eq!(sequencer.unrecorded(), None, "an older one");
        assert_eq!(Sequencer::<u64>::new().passed(), None);
        assert_eq!(at(0).passed(), None);
        assert_eq!(full().passed(), Some(u64::MAX));
    }

    #[test]
    fn what_is_early_waits_for_what_is_missed() {
        let now = clock::now();
        let mut sequencer = at(5);
        for version in [9, 7] {
            assert!(matches!(
                sequencer.come(version, version, true, now),
                Came::Early
            ));
        }
        assert!(matches!(
            sequencer.come(7, 0, true, now),
            Came::Duplicate(0)
        ));
        assert!(matches!(
            sequencer.come(4, 0, true, now),
            Came::Duplicate(0)
        ));
        assert!(sequencer.has(7) && !sequencer.has(8));
        assert_eq!(sequencer.early_mut(9), Some(&mut 9));
        assert_eq!(sequencer.early_mut(8), None);
        assert_eq!(
            (sequencer.first_early(), sequencer.early_len()),
            (Some(&7), 2)
        );
        let gap = sequencer.gap().expect("5 and 6 are missed");
        assert_eq!((gap.first, gap.last, gap.since), (5, 6, now));
        assert_eq!(sequencer.pop_next(true, now), None);
        let later = now + std::time::Duration::from_secs(1);
        sequencer.skip_gap();
        assert_eq!(sequencer.pop_next(true, later), Some(7));
        let gap = sequencer.gap().expect("8 is missed");
        assert_eq!((gap.first, gap.last, gap.since), (8, 8, later));
        sequencer.wait_anew(now);
        assert_eq!(sequencer.gap().map(|gap| gap.since), Some(now));
        assert_eq!(sequencer.take_early(), [9]);
        assert_eq!(sequencer.gap(), None);
        sequencer.wait_anew(now);
        assert!(sequencer.missed.is_none(), "nothing waits");
    }

    #[test]
    fn the_last_version_of_all_ends_the_line() {
        let now = clock::now();
        let mut sequencer = at(u64::MAX);
        assert!(matches!(
            sequencer.come(u64::MAX, 1, true, now),
            Came::Next(1)
        ));
        assert!(matches!(
            sequencer.come(u64::MAX, 2, true, now),
            Came::Duplicate(2)
        ));
        assert_eq!(sequencer.gap(), None);
    }

    #[test]
    fn what_came_before_anything_was_known_is_sorted_then() {
        let now = clock::now();
        let early = || {
            let mut sequencer = Sequencer::new();
            for version in [3, 7, u64::MAX] {
                assert!(matches!(
                    sequencer.come(version, version, false, now),
                    Came::Early
                ));
            }
            assert!(sequencer.is_unknown() && sequencer.gap().is_none());
            sequencer
        };
        let mut sequencer = early();
        assert_eq!(sequencer.learn(Some(3), Some(1), now), [3]);
        assert_eq!(
            sequencer.gap().map(|gap| (gap.first, gap.last)),
            Some((4, 6))
        );
        let mut sequencer = early();
        assert_eq!(
            sequencer.learn(None, None, now),
            [],
            "the first that was seen"
        );
        assert_eq!(sequencer.pop_next(true, now), Some(3));
        let mut sequencer = early();
        assert_eq!(sequencer.learn(Some(u64::MAX), None, now), [3, 7, u64::MAX]);
        assert_eq!(sequencer.pop_next(false, now), None);
        let mut nothing = Sequencer::<u64>::new();
        assert_eq!(nothing.learn(None, None, now), []);
        assert!(nothing.is_unknown());
    }
}
