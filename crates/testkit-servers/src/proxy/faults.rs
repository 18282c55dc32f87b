//! The decisions: which bytes may pass now. No socket, no clock; time is an argument.

use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::Instant;

use super::direction::Direction;
use super::traffic::Traffic;

/// The state of a proxy: its faults and its counters.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) to_server: Way,
    pub(super) to_client: Way,
    pub(super) refuses: bool,
    /// The number of resets. A connection that was accepted at another number is over.
    pub(super) resets: u64,
    /// How often all connections were forgotten. One that was accepted at another number passes no
    /// byte.
    pub(super) forgets: u64,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) open: u64,
}

/// One direction, for all connections together.
#[derive(Debug, Default)]
pub(super) struct Way {
    pub(super) is_cut: bool,
    pub(super) latency: Duration,
    /// The limit in bytes per second.
    bandwidth: Option<NonZeroU64>,
    /// When the bandwidth lets the next byte pass.
    free_at: Option<Instant>,
    /// How many bytes pass until the connection that carries the last of them is reset.
    pub(super) reset_after: Option<u64>,
    passed: u64,
}

/// Whether bytes may pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Permit {
    /// The first so many.
    Pass(usize),
    /// Not before this time, or not before the faults change.
    Wait(Option<Instant>),
    /// No: the connection must be reset.
    Reset,
}

impl Faults {
    pub(super) fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    pub(super) fn is_cut(&self, direction: Direction) -> bool {
        match direction {
            Direction::ToServer => self.to_server.is_cut,
            Direction::ToClient => self.to_client.is_cut,
        }
    }

    /// Counts a new connection. Returns the number of resets at this moment, or `None` if the
    /// connection is refused.
    pub(super) fn admit(&mut self) -> Option<u64> {
        if self.refuses {
            self.refused += 1;
            return None;
        }
        self.accepted += 1;
        self.open += 1;
        Some(self.resets)
    }

    /// Resets all connections, and refuses new ones.
    pub(super) fn close(&mut self) {
        self.resets += 1;
        self.refuses = true;
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            accepted: self.accepted,
            refused: self.refused,
            open: self.open,
            to_server: self.to_server.passed,
            to_client: self.to_client.passed,
        }
    }
}

impl Way {
    pub(super) fn throttle(&mut self, bandwidth: Option<NonZeroU64>) {
        self.bandwidth = bandwidth;
        self.free_at = None;
    }

    /// Returns whether the first of `len` bytes that were read at `read_at` may pass. `len` is 0
    /// for the end of the bytes, which costs no bandwidth.
    pub(super) fn permit(&mut self, now: Instant, read_at: Instant, len: usize) -> Permit {
        if self.is_cut {
            return Permit::Wait(None);
        }
        let Some(due) = read_at.checked_add(self.latency) else {
            return Permit::Wait(None); // later than the clock can say
        };
        if due > now {
            return Permit::Wait(Some(due));
        }
        if len == 0 {
            return Permit::Pass(0);
        }
        if let Some(free_at) = self.free_at.filter(|free_at| *free_at > now) {
            return Permit::Wait(Some(free_at));
        }
        if self.reset_after == Some(0) {
            self.reset_after = None;
            return Permit::Reset;
        }
        // A fiftieth of a second's bytes at once. Then even a low bandwidth has no long pauses.
        let share = self.bandwidth.map(|rate| (rate.get() / 50).max(1));
        let most = share.into_iter().chain(self.reset_after).min();
        let most = most.and_then(|most| usize::try_from(most).ok());
        Permit::Pass(most.map_or(len, |most| most.min(len)))
    }

    /// Counts bytes that have passed. Returns whether they were the last ones before a reset.
    #[must_use]
    pub(super) fn passed(&mut self, now: Instant, len: usize) -> bool {
        let len = len as u64;
        self.passed += len;
        if let Some(rate) = self.bandwidth {
            let cost = Duration::from_secs_f64(len as f64 / rate.get() as f64);
            // From when the way was free, not from now: a late timer must not lower the bandwidth.
            self.free_at = Some((self.free_at.unwrap_or(now) + cost).max(now));
        }
        self.reset_after = self.reset_after.map(|left| left.saturating_sub(len));
        self.reset_after.take_if(|left| *left == 0).is_some()
    }
}

#[cfg(test)]
mod tests {
    use keylane_testkit::scenario::{MS, SECOND};

    use super::*;

    #[test]
    fn a_cut_way_passes_nothing_not_even_the_end() {
        let now = Instant::now();
        let mut way = Way::default();
        assert_eq!(way.permit(now, now, 7), Permit::Pass(7));
        assert_eq!(way.permit(now, now, 0), Permit::Pass(0));
        way.is_cut = true;
        assert_eq!(way.permit(now, now, 7), Permit::Wait(None));
        assert_eq!(way.permit(now, now, 0), Permit::Wait(None));
    }

    #[test]
    fn latency_counts_from_when_the_bytes_were_read() {
        let now = Instant::now();
        let mut way = Way {
            latency: 50 * MS,
            ..Way::default()
        };
        for len in [0, 7] {
            let due = now + 50 * MS;
            assert_eq!(way.permit(now, now, len), Permit::Wait(Some(due)));
            assert_eq!(way.permit(due - MS, now, len), Permit::Wait(Some(due)));
            assert_eq!(way.permit(due, now, len), Permit::Pass(len));
        }
        way.latency = Duration::MAX;
        assert_eq!(way.permit(now, now, 7), Permit::Wait(None));
    }

    #[test]
    fn bandwidth_passes_a_share_and_then_waits_for_its_cost() {
        let start = Instant::now();
        let mut way = Way::default();
        way.throttle(NonZeroU64::new(1_000));
        assert_eq!(way.permit(start, start, 100), Permit::Pass(20));
        assert!(!way.passed(start, 20));
        let free_at = start + 20 * MS;
        assert_eq!(way.permit(start, start, 80), Permit::Wait(Some(free_at)));
        assert_eq!(way.permit(start, start, 0), Permit::Pass(0));
        assert_eq!(way.permit(free_at, start, 80), Permit::Pass(20));

        way.throttle(None);
        assert_eq!(way.permit(start, start, 80), Permit::Pass(80));
    }

    #[test]
    fn bandwidth_is_kept_by_late_timers_and_is_not_saved_up() {
        let start = Instant::now();
        let mut way = Way::default();
        way.throttle(NonZeroU64::new(1_000));
        let (mut now, mut bytes) = (start, 0);
        while now < start + 10 * SECOND {
            match way.permit(now, start, 1_000) {
                Permit::Pass(share) => {
                    bytes += share;
                    assert!(!way.passed(now, share));
                }
                Permit::Wait(free_at) => now = free_at.unwrap() + 3 * MS,
                Permit::Reset => unreachable!("no reset was ordered"),
            }
        }
        assert!((9_980..=10_040).contains(&bytes), "{bytes}");

        now += 60 * SECOND;
        bytes = 0;
        while let Permit::Pass(share) = way.permit(now, start, 1_000) {
            bytes += share;
            assert!(!way.passed(now, share));
        }
        assert_eq!(bytes, 40, "an idle minute saves up one share");
    }

    #[test]
    fn the_last_byte_before_a_reset_orders_it_once() {
        let now = Instant::now();
        let mut way = Way {
            reset_after: Some(10),
            ..Way::default()
        };
        assert_eq!(way.permit(now, now, 7), Permit::Pass(7));
        assert!(!way.passed(now, 7));
        assert_eq!(way.permit(now, now, 7), Permit::Pass(3));
        assert!(way.passed(now, 3));
        assert_eq!(way.permit(now, now, 7), Permit::Pass(7));
        assert!(!way.passed(now, 7));

        way.reset_after = Some(0);
        assert_eq!(way.permit(now, now, 0), Permit::Pass(0));
        assert_eq!(way.permit(now, now, 7), Permit::Reset);
        assert_eq!(way.permit(now, now, 7), Permit::Pass(7));
    }

    #[test]
    fn admits_until_it_is_closed() {
        let mut faults = Faults::default();
        assert_eq!(faults.admit(), Some(0));
        faults.resets += 1;
        assert_eq!(faults.admit(), Some(1));
        faults.close();
        assert_eq!((faults.admit(), faults.resets), (None, 2));
        let traffic = faults.traffic();
        assert_eq!((traffic.accepted, traffic.refused, traffic.open), (2, 1, 2));
    }
}
