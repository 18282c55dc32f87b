//! The limits of a frontier.

/// The widest span that can be asked for. The index of the blocks counts in 31 bits.
const WIDEST: u64 = 1 << 37;

/// See [`Frontier::HIGHEST`](super::Frontier::HIGHEST).
pub(super) const HIGHEST: u64 = i64::MAX as u64;

/// The limits of a [`Frontier`](super::Frontier), and with them its memory.
///
/// | limit | default | at the limit |
/// | --- | --- | --- |
/// | [`open`](Self::open) | 1,000,000 positions | `deliver` fails until one is completed |
/// | [`span`](Self::span) | 16,777,216 offsets | `deliver` fails until the position has moved |
///
/// # Examples
///
/// ```
/// use keylane::source::frontier::{DeliverError, Frontier, Limits};
///
/// let limits = Limits::default().open(2).span(1_000);
/// let mut frontier = Frontier::new(0).with_limits(limits);
/// assert!(frontier.deliver(0).is_ok());
/// assert_eq!(frontier.deliver(1_000), Err(DeliverError::SpanTooWide));
/// assert!(frontier.deliver(998).is_ok());
/// assert_eq!(frontier.deliver(999), Err(DeliverError::TooManyOpen));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(super) open: usize,
    pub(super) span: u64,
}

impl Limits {
    /// Sets the maximum number of positions that are open at once. 0 counts as 1.
    #[must_use]
    pub const fn open(mut self, positions: usize) -> Self {
        self.open = if positions == 0 { 1 } else { positions };
        self
    }

    /// Sets the maximum number of offsets from the first open position to the last one that was
    /// delivered, both included. 0 counts as 1, and more than 2^37 as 2^37.
    ///
    /// A position that stays open while others are completed counts only once for
    /// [`open`](Self::open). The span bounds what is kept beyond that position, and what would be
    /// delivered again if that could not be stored. In a log with wide gaps the span is wide
    /// although there are few positions.
    #[must_use]
    pub const fn span(mut self, offsets: u64) -> Self {
        self.span = match offsets {
            0 => 1,
            1..=WIDEST => offsets,
            _ => WIDEST,
        };
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            open: 1_000_000,
            span: 1 << 24,
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[test]
    fn limits_are_brought_into_their_range() {
        let least = Limits::default().open(0).span(0);
        assert_eq!((least.open, least.span), (1, 1));
        let most = Limits::default().open(usize::MAX).span(u64::MAX);
        assert_eq!((most.open, most.span), (usize::MAX, 1 << 37));
        assert_eq!(
            Limits::default().span(1 << 37),
            Limits::default().span((1 << 37) + 1)
        );
        assert_eq!(Limits::default().span(7).span, 7);
    }
}
