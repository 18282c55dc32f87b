//! The frontier itself.

use std::fmt;
use std::ops::Range;

use super::beyond::Beyond;
use super::blocks::{Blocks, Closed};
use super::carried::Carried;
use super::encoding::{self, Encoded};
use super::error::DeliverError;
use super::limits::{HIGHEST, Limits};
use super::runs::joined;

/// The positions of one partition in one generation: which are open, and up to where everything is
/// settled. See the [module](super) for how to use it.
#[derive(Clone)]
pub struct Frontier {
    blocks: Blocks,
    /// What an earlier generation has settled from `end` on.
    carried: Carried,
    /// Nothing below will be delivered any more.
    end: u64,
    limits: Limits,
}

/// The state of a position that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is done must not be handled again"]
pub enum Delivered {
    /// It is open. Handle its message, then complete it.
    Open,
    /// It was settled in an earlier generation: there is nothing to do.
    Done,
}

/// The effect of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It was the first open position, and the frontier has moved.
    Advanced {
        /// The new [`position`](Frontier::position).
        to: u64,
    },
    /// Something below it is open.
    Beyond,
    /// Nothing has changed: it is settled already.
    AlreadyDone,
    /// Nothing has changed: it was not delivered.
    NotOpen,
}

impl Frontier {
    /// The highest position: 2^63 − 1. Offsets are below it, so the position after the highest
    /// offset fits into the signed number that logs such as Kafka have for it. Anything above
    /// counts as this.
    pub const HIGHEST: u64 = HIGHEST;

    /// Returns a frontier without deliveries, at the offset from which the log will deliver.
    pub fn new(at: u64) -> Self {
        Self::resume(at, Beyond::default())
    }

    /// Returns a frontier at the offset from which the log will deliver, where some of the
    /// following offsets are settled already. Offsets below `at` are left out.
    ///
    /// Offsets that are settled already count for neither of the limits before they are delivered.
    pub fn resume(at: u64, beyond: Beyond) -> Self {
        let at = at.min(HIGHEST);
        Self {
            blocks: Blocks::default(),
            carried: Carried::new(beyond, at),
            end: at,
            limits: Limits::default(),
        }
    }

    /// Sets the limits. The positions that it holds already stay.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Delivers an offset of the log: it is open from now on, unless it is done.
    ///
    /// Offsets that were passed over since the last one will never arrive. If nothing else is open,
    /// the position moves here.
    ///
    /// # Errors
    ///
    /// If a limit is reached, and if the offset is not higher than all that were delivered. Nothing
    /// has changed then.
    #[inline]
    pub fn deliver(&mut self, offset: u64) -> Result<Delivered, DeliverError> {
        if offset >= HIGHEST {
            return Err(DeliverError::TooHigh);
        }
        if offset < self.end {
            return Err(DeliverError::OutOfOrder);
        }
        let first_open = self.blocks.first_open();
        if first_open.is_some_and(|first| offset - first >= self.limits.span) {
            return Err(DeliverError::SpanTooWide);
        }
        let is_open = !self.carried.contains(offset);
        if is_open && self.blocks.open_len() >= self.limits.open {
            return Err(DeliverError::TooManyOpen);
        }
        self.skip_to(offset + 1);
        if is_open {
            self.blocks.push(offset, true);
            return Ok(Delivered::Open);
        }
        // With nothing open it is below the position.
        if first_open.is_some() {
            self.blocks.push(offset, false);
        }
        Ok(Delivered::Done)
    }

    /// Completes an open position: it is settled.
    ///
    /// Any offset is allowed: one that is not open changes nothing.
    #[inline]
    pub fn complete(&mut self, offset: u64) -> Completion {
        match self.blocks.close(offset) {
            Some(Closed::First) => Completion::Advanced {
                to: self.position(),
            },
            Some(Closed::Later) => Completion::Beyond,
            None => self.not_open(offset),
        }
    }

    #[cold]
    fn not_open(&self, offset: u64) -> Completion {
        if self.is_done(offset) {
            Completion::AlreadyDone
        } else {
            Completion::NotOpen
        }
    }

    /// Skips to this offset: the log will deliver nothing below it any more. The next delivery has
    /// this offset or a higher one. Open positions stay open. If none is open, the position moves
    /// here.
    ///
    /// So the position reaches the end of a log whose last offsets hold no messages, for example
    /// the mark at the end of a transaction. A lower offset than [`end`](Self::end) changes
    /// nothing.
    pub fn skip_to(&mut self, offset: u64) {
        self.end = self.end.max(offset.min(HIGHEST));
        self.carried.pass(self.end);
    }

    /// Returns the position below which everything is settled. Commit it, and read on from it after
    /// a restart. It never moves back.
    ///
    /// It is the first open position. If there is none, it is the end, or behind what was settled
    /// in an earlier generation without a gap from there.
    #[inline]
    pub fn position(&self) -> u64 {
        let after_all = || {
            self.carried
                .run_at(self.end)
                .map_or(self.end, |run| run.end)
        };
        self.blocks.first_open().unwrap_or_else(after_all)
    }

    /// Returns one past the last offset that was delivered or skipped.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of offsets from the first open position to the end, delivered or not; 0
    /// if nothing is open.
    pub fn span(&self) -> u64 {
        self.blocks.first_open().map_or(0, |first| self.end - first)
    }

    /// Returns the lowest open position.
    pub fn first_open(&self) -> Option<u64> {
        self.blocks.first_open()
    }

    /// Returns the number of open positions.
    pub fn open_len(&self) -> usize {
        self.blocks.open_len()
    }

    /// Returns the open positions, the lowest first.
    pub fn open(&self) -> impl Iterator<Item = u64> {
        self.blocks.open()
    }

    /// Returns the number of positions beyond: settled, and above the position. Every offset counts
    /// that was settled in an earlier generation and is not delivered yet.
    pub fn beyond_len(&self) -> u64 {
        let below = match self.blocks.first_open() {
            Some(_) => None,
            None => self.carried.run_at(self.end),
        };
        let carried = self.carried.len() - below.map_or(0, |run| run.end - run.start);
        self.blocks.beyond_len() + carried
    }

    /// Returns the settled offsets above the position, in sorted ranges that do not touch.
    ///
    /// A range goes on over a gap in the log if the offsets before and after it are settled. So it
    /// may have offsets that will never arrive, and none that is open.
    pub fn beyond(&self) -> impl Iterator<Item = Range<u64>> {
        let position = self.position();
        let carried = self.carried.runs().filter(move |run| run.start >= position);
        joined(self.blocks.settled_runs().chain(carried))
    }

    /// Returns whether this offset is settled: below the position, or beyond it.
    ///
    /// For an offset above the position that the log has passed over it returns `false`.
    pub fn is_done(&self, offset: u64) -> bool {
        offset < self.position() || self.blocks.is_settled(offset) || self.carried.contains(offset)
    }

    /// Writes the settled offsets beyond the position into at most `most_bytes` bytes, for
    /// [`Beyond::decode`].
    ///
    /// It writes run lengths or bits, whichever is shorter. If not all offsets fit, it writes the
    /// lowest ones, in the form that holds more of them, and [`Encoded::left_out`] is the first one
    /// that is missing. If nothing is beyond, or nothing fits, there are no bytes; from 25 bytes on
    /// something fits.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane::source::frontier::{Beyond, Frontier};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut frontier = Frontier::new(0);
    /// for offset in 0..2_000 {
    ///     frontier.deliver(offset)?;
    ///     if offset >= 1_000 {
    ///         let _ = frontier.complete(offset);
    ///     }
    /// }
    /// let encoded = frontier.encode(100);
    /// assert_eq!((encoded.bytes.len(), encoded.left_out), (10, None));
    /// assert!(Beyond::decode(&encoded.bytes)?.runs().eq([1_000..2_000]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn encode(&self, most_bytes: usize) -> Encoded {
        encoding::encode(self.position(), || self.beyond(), most_bytes)
    }

    /// Ends the generation, and returns the positions that were open, the lowest first.
    pub fn abandon(self) -> Vec<u64> {
        let mut open = Vec::with_capacity(self.open_len());
        open.extend(self.open());
        open
    }
}

// What it holds may be a million positions.
impl fmt::Debug for Frontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frontier")
            .field("position", &self.position())
            .field("end", &self.end)
            .field("open", &self.open_len())
            .field("beyond", &self.beyond_len())
            .field("limits", &self.limits)
            .finish()
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
#[expect(clippy::single_range_in_vec_init, reason = "lists of runs")]
mod tests {
    use super::*;

    use Completion::{Advanced, AlreadyDone, NotOpen};

    fn delivered(at: u64, offsets: impl IntoIterator<Item = u64>) -> Frontier {
        let mut frontier = Frontier::new(at).with_limits(Limits::default().span(u64::MAX));
        for offset in offsets {
            assert_eq!(frontier.deliver(offset), Ok(Delivered::Open));
        }
        frontier
    }

    #[test]
    fn the_position_follows_the_first_open_one() {
        let mut frontier = delivered(10, 10..15);
        assert_eq!(
            (frontier.position(), frontier.end(), frontier.span()),
            (10, 15, 5)
        );
        assert_eq!(frontier.complete(12), Completion::Beyond);
        assert_eq!(frontier.complete(11), Completion::Beyond);
        assert_eq!((frontier.open_len(), frontier.beyond_len()), (3, 2));
        assert_eq!(frontier.complete(10), Advanced { to: 13 });
        assert_eq!((frontier.open_len(), frontier.beyond_len()), (2, 0));
        assert_eq!(frontier.complete(14), Completion::Beyond);
        assert_eq!(frontier.complete(13), Advanced { to: 15 });
        assert_eq!((frontier.first_open(), frontier.span()), (None, 0));
    }

    #[test]
    fn a_gap_holds_nothing_up() {
        let mut frontier = Frontier::new(0);
        // The log has nothing below 100.
        assert_eq!(frontier.deliver(100), Ok(Delivered::Open));
        assert_eq!(frontier.position(), 100);
        assert_eq!(frontier.deliver(1_000), Ok(Delivered::Open));
        assert_eq!(frontier.deliver(5_000), Ok(Delivered::Open));
        assert_eq!(frontier.complete(100), Advanced { to: 1_000 });
        assert_eq!(frontier.complete(5_000), Completion::Beyond);
        assert_eq!(frontier.complete(1_000), Advanced { to: 5_001 });
        // A mark of a transaction is at 5,001.
        frontier.skip_to(5_002);
        assert_eq!((frontier.position(), frontier.end()), (5_002, 5_002));
        frontier.skip_to(3);
        assert_eq!(frontier.position(), 5_002);
    }

    #[test]
    fn what_is_not_open_changes_nothing() {
        let mut frontier = delivered(10, [10, 12, 13, 500, 100_000]);
        let _ = frontier.complete(13);
        let before = format!("{frontier:?}");
        for offset in [11, 14, 499, 501, 65_536, 99_999, 100_001, u64::MAX] {
            assert_eq!(frontier.complete(offset), NotOpen, "{offset}");
        }
        for offset in [0, 9, 13] {
            assert_eq!(frontier.complete(offset), AlreadyDone, "{offset}");
        }
        assert_eq!(format!("{frontier:?}"), before);
        assert_eq!(Frontier::new(5).complete(5), NotOpen);
        assert_eq!(Frontier::new(5).complete(4), AlreadyDone);
    }

    #[test]
    fn offsets_only_grow() {
        let mut frontier = delivered(10, [10, 20]);
        for offset in [0, 9, 10, 15, 20] {
            assert_eq!(frontier.deliver(offset), Err(DeliverError::OutOfOrder));
        }
        for offset in [HIGHEST, HIGHEST + 1, u64::MAX] {
            assert_eq!(frontier.deliver(offset), Err(DeliverError::TooHigh));
        }
        frontier.skip_to(30);
        assert_eq!(frontier.deliver(29), Err(DeliverError::OutOfOrder));
        assert_eq!(frontier.complete(10), Advanced { to: 20 });
        assert_eq!(
            frontier.deliver(HIGHEST - 1),
            Err(DeliverError::SpanTooWide)
        );
        assert_eq!(frontier.complete(20), Advanced { to: 30 });
        assert_eq!(frontier.deliver(HIGHEST - 1), Ok(Delivered::Open));
        assert_eq!(frontier.complete(HIGHEST - 1), Advanced { to: HIGHEST });
        assert_eq!(frontier.deliver(HIGHEST), Err(DeliverError::TooHigh));
    }

    /// Offsets that a log or a commit may name and no log has: nothing is opened there, and nothing
    /// is lost below.
    #[test]
    fn what_is_above_the_highest_position_counts_as_it() {
        for at in [HIGHEST, HIGHEST + 1, u64::MAX] {
            let beyond: Beyond = [5..7, at - 1..u64::MAX].into_iter().collect();
            let mut frontier = Frontier::resume(at, beyond);
            assert_eq!((frontier.position(), frontier.end()), (HIGHEST, HIGHEST));
            assert_eq!((frontier.beyond_len(), frontier.span()), (0, 0));
            assert!(frontier.encode(usize::MAX).bytes.is_empty());
            for offset in [at, u64::MAX] {
                assert_eq!(frontier.deliver(offset), Err(DeliverError::TooHigh));
                assert_eq!(frontier.complete(offset), NotOpen);
            }
            let mut frontier = delivered(3, [3]);
            frontier.skip_to(at);
            assert_eq!((frontier.position(), frontier.end()), (3, HIGHEST));
            assert_eq!(frontier.complete(3), Advanced { to: HIGHEST });
        }
    }

    #[test]
    fn a_full_frontier_takes_more_once_something_is_settled() {
        let limits = Limits::default().open(2).span(100);
        let mut frontier = Frontier::new(0).with_limits(limits);
        assert!(frontier.deliver(0).is_ok() && frontier.deliver(1).is_ok());
        assert_eq!(frontier.deliver(2), Err(DeliverError::TooManyOpen));
        let _ = frontier.complete(1);
        assert_eq!(frontier.deliver(100), Err(DeliverError::SpanTooWide));
        assert_eq!(frontier.end(), 2, "it was not delivered");
        assert_eq!(frontier.deliver(99), Ok(Delivered::Open));
        assert_eq!((frontier.span(), frontier.open_len()), (100, 2));
        assert_eq!(frontier.complete(0), Advanced { to: 99 });
        assert_eq!(frontier.deliver(198), Ok(Delivered::Open));
    }

    #[test]
    fn what_was_carried_over_is_not_handled_again() {
        let beyond: Beyond = [90..95, 98..101, 103..106, 200..210].into_iter().collect();
        let mut frontier = Frontier::resume(100, beyond);
        assert_eq!(frontier.position(), 101, "100 is done");
        assert_eq!(frontier.end(), 100);
        assert_eq!((frontier.beyond_len(), frontier.open_len()), (13, 0));
        assert!(frontier.beyond().eq([103..106, 200..210]));
        for offset in [0, 99, 100, 104, 209] {
            assert!(frontier.is_done(offset), "{offset}");
            assert_eq!(frontier.complete(offset), AlreadyDone);
        }
        assert!(
            ![101, 102, 106, 210]
                .iter()
                .any(|offset| frontier.is_done(*offset))
        );
        assert_eq!(frontier.deliver(100), Ok(Delivered::Done));
        assert_eq!((frontier.position(), frontier.end()), (101, 101));
        assert_eq!(frontier.deliver(101), Ok(Delivered::Open));
        assert_eq!(frontier.deliver(103), Ok(Delivered::Done));
        assert_eq!(frontier.deliver(104), Ok(Delivered::Done));
        assert_eq!(frontier.beyond_len(), 13);
        assert!(frontier.beyond().eq([103..106, 200..210]));
        assert_eq!(frontier.complete(104), AlreadyDone);
        // Up to 105, which is still to come.
        assert_eq!(frontier.complete(101), Advanced { to: 106 });
        assert_eq!((frontier.end(), frontier.beyond_len()), (105, 10));
        assert_eq!(frontier.deliver(105), Ok(Delivered::Done));
        // The log has none of 200 to 204.
        assert_eq!(frontier.deliver(150), Ok(Delivered::Open));
        assert_eq!(frontier.deliver(205), Ok(Delivered::Done));
        assert_eq!((frontier.position(), frontier.beyond_len()), (150, 5));
        assert!(frontier.beyond().eq(std::iter::once(205..210)));
        frontier.skip_to(300);
        assert_eq!(frontier.beyond_len(), 1);
        assert_eq!(frontier.complete(150), Advanced { to: 300 });
        assert_eq!(frontier.beyond_len(), 0);
    }

    #[test]
    fn the_limits_hold_for_what_was_carried_over() {
        let limits = Limits::default().open(1).span(10);
        let beyond: Beyond = [1..100].into_iter().collect();
        let mut frontier = Frontier::resume(0, beyond).with_limits(limits);
        assert_eq!(frontier.deliver(0), Ok(Delivered::Open));
        // It takes no room among the open ones, and memory like any other.
        assert_eq!(frontier.deliver(9), Ok(Delivered::Done));
        assert_eq!(frontier.deliver(10), Err(DeliverError::SpanTooWide));
        assert_eq!(frontier.complete(0), Advanced { to: 100 });
        assert_eq!(frontier.deliver(10), Ok(Delivered::Done));
        assert_eq!(frontier.deliver(99), Ok(Delivered::Done), "nothing is open");
    }

    #[test]
    fn what_was_open_is_listed_at_the_end() {
        let mut frontier = delivered(0, [1, 2, 70, 5_000, 5_001]);
        let _ = frontier.complete(2);
        let _ = frontier.complete(5_000);
        assert!(frontier.open().eq([1, 70, 5_001]));
        assert_eq!(frontier.abandon(), [1, 70, 5_001]);
        assert_eq!(Frontier::new(7).abandon(), []);
    }

    #[test]
    fn a_frontier_is_shown_in_numbers() {
        let mut frontier = delivered(1, [1, 2, 3]);
        let _ = frontier.complete(2);
        let shown = format!("{frontier:?}");
        assert!(
            shown.starts_with("Frontier { position: 1, end: 4, open: 2, beyond: 1, limits: "),
            "{shown}"
        );
    }

    const MANY: u64 = 1_000_000;

    /// Offsets of which every third one is missing, and sometimes many.
    fn with_gaps() -> Vec<u64> {
        (0..MANY).map(|n| n + n / 2 + n / 1_000 * 5_000).collect()
    }

    #[test]
    fn a_million_in_order() {
        let offsets = with_gaps();
        let mut frontier = delivered(0, offsets.iter().copied());
        assert_eq!(frontier.open_len() as u64, MANY);
        assert_eq!(
            frontier.deliver(HIGHEST - 1),
            Err(DeliverError::SpanTooWide)
        );
        let next = offsets[1..].iter().copied().chain([frontier.end()]);
        for (offset, to) in offsets.iter().zip(next) {
            assert_eq!(frontier.complete(*offset), Advanced { to });
        }
        assert_eq!((frontier.open_len(), frontier.beyond_len()), (0, 0));
    }

    #[test]
    fn a_million_in_reverse() {
        let offsets = with_gaps();
        let mut frontier = delivered(0, offsets.iter().copied());
        for (offset, beyond) in offsets[1..].iter().rev().zip(1..) {
            assert_eq!(frontier.complete(*offset), Completion::Beyond);
            assert_eq!(frontier.beyond_len(), beyond);
        }
        assert!(
            frontier
                .beyond()
                .eq(std::iter::once(offsets[1]..frontier.end()))
        );
        assert_eq!(frontier.encode(16).left_out, None);
        assert_eq!(frontier.complete(0), Advanced { to: frontier.end() });
        assert_eq!((frontier.open_len(), frontier.beyond_len()), (0, 0));
    }

    #[test]
    fn a_million_in_random_order() {
        let offsets = with_gaps();
        let mut order: Vec<_> = (0..offsets.len()).collect();
        let mut random = 1_u64;
        for last in (1..order.len()).rev() {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            order.swap(last, (random >> 33) as usize % (last + 1));
        }
        let mut frontier = delivered(0, offsets.iter().copied());
        let mut settled = vec![false; offsets.len()];
        let mut first = 0;
        for place in order {
            settled[place] = true;
            let is_first = place == first;
            first += settled[first..]
                .iter()
                .take_while(|settled| **settled)
                .count();
            let to = offsets.get(first).copied().unwrap_or(frontier.end());
            let completion = frontier.complete(offsets[place]);
            if is_first {
                assert_eq!(completion, Advanced { to });
            } else {
                assert_eq!(completion, Completion::Beyond);
            }
            assert_eq!(frontier.complete(offsets[place]), AlreadyDone);
        }
        assert_eq!(
            (first, frontier.open_len(), frontier.beyond_len()),
            (offsets.len(), 0, 0)
        );
    }
}
