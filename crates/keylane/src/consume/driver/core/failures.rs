//! How often a source has failed, since when, when it is opened again, and how that is logged.

use std::time::Duration;

use keylane_rt::clock::Instant;

use super::super::super::report::IntakeStats;
use super::trouble::{Trouble, later};

/// The first pause before a source that failed is opened again.
const PAUSE: Duration = Duration::from_millis(100);

/// After what time a source that still fails is an error in the log. Then after twice the time
/// before.
const FIRST_REMINDER: Duration = Duration::from_secs(10);
const LAST_REMINDER: Duration = Duration::from_secs(600);

/// The level at which a failure is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Severity {
    /// It was logged before.
    Debug,
    /// The source recovers from it by itself.
    Warn,
    /// A person is needed.
    Error,
}

/// The failures since the source last was well: it confirmed something, or was idle.
#[derive(Debug)]
pub(super) struct Failures {
    in_a_row: u32,
    /// When the first of them came.
    since: Option<Instant>,
    /// Failures since the start.
    all: u64,
    /// Those in which the source did not answer in time.
    late: u64,
    longest_pause: Duration,
    /// When one was last in the log.
    logged: Option<Instant>,
    /// How long after that a failure that lasts is in the log again.
    pause: Duration,
}

impl Failures {
    pub(super) fn new(longest_pause: Duration) -> Self {
        Self {
            in_a_row: 0,
            since: None,
            all: 0,
            late: 0,
            longest_pause,
            logged: None,
            pause: FIRST_REMINDER,
        }
    }

    pub(super) fn any(&self) -> bool {
        self.in_a_row > 0
    }

    /// The source is well.
    pub(super) fn forget(&mut self) {
        (self.in_a_row, self.since) = (0, None);
    }

    pub(super) fn show(&self, stats: &mut IntakeStats) {
        stats.failures = self.all;
        stats.stalls = self.late;
        stats.failing_since = self.since.map(Into::into);
    }

    /// One more. Returns how it is logged, and when the source is opened again: after a pause that
    /// grows with each.
    pub(super) fn fail(&mut self, trouble: &Trouble, now: Instant) -> (Severity, Instant) {
        self.all += 1;
        self.late += u64::from(matches!(trouble, Trouble::Late(_)));
        self.since.get_or_insert(now);
        let severity = self.severity(now);
        let factor = 1_u32.checked_shl(self.in_a_row).unwrap_or(u32::MAX);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let pause = PAUSE.saturating_mul(factor).min(self.longest_pause);
        (severity, later(now, pause))
    }

    /// Most failures are over when the source is open again, or when its server is. One that lasts
    /// needs a person.
    fn severity(&mut self, now: Instant) -> Severity {
        let was_well = self.in_a_row == 0;
        let (severity, pause) = match was_well {
            true => (Severity::Warn, FIRST_REMINDER),
            false => (Severity::Error, self.pause),
        };
        self.pause = pause;
        if self.logged.is_some_and(|at| now < later(at, pause)) {
            return Severity::Debug;
        }
        self.logged = Some(now);
        if !was_well {
            self.pause = (2 * pause).min(LAST_REMINDER);
        }
        severity
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    fn fail(failures: &mut Failures, now: Instant) -> Severity {
        failures.fail(&Trouble::Late(PAUSE), now).0
    }

    #[test]
    fn it_fails_since_the_first_failure_after_it_was_well() {
        let start = Instant::now();
        let second = |n| start + Duration::from_secs(n);
        let mut failures = Failures::new(Duration::from_secs(1));
        let shown = |failures: &Failures| {
            let mut stats = IntakeStats::default();
            failures.show(&mut stats);
            (stats.failures, stats.failing_since.map(Instant::from))
        };
        assert_eq!(shown(&failures), (0, None));
        fail(&mut failures, second(1));
        fail(&mut failures, second(2));
        assert_eq!(shown(&failures), (2, Some(second(1))));
        failures.forget();
        assert_eq!(shown(&failures), (2, None));
        fail(&mut failures, second(3));
        assert_eq!(shown(&failures), (3, Some(second(3))));
    }

    #[test]
    fn the_first_failure_is_a_warning_and_one_that_lasts_an_error_now_and_then() {
        let start = Instant::now();
        let mut failures = Failures::new(Duration::from_secs(1));
        let logged =
            |failures: &mut Failures, second| fail(failures, start + Duration::from_secs(second));
        assert_eq!(logged(&mut failures, 0), Severity::Warn);
        let loud = (1..1_200).filter(|second| logged(&mut failures, *second) == Severity::Error);
        assert_eq!(Vec::from_iter(loud), [10, 30, 70, 150, 310, 630]);
        failures.forget();
        assert_eq!(logged(&mut failures, 1_200), Severity::Warn);
        // It is well for a moment, again and again.
        let often = (1_201..1_240).filter(|second| {
            failures.forget();
            logged(&mut failures, *second) == Severity::Warn
        });
        assert_eq!(Vec::from_iter(often), [1_210, 1_220, 1_230]);
    }
}
