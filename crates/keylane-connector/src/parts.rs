//! Parts of a source that fail while the others go on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use keylane_source::Deliveries;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;

/// How often the same failure is reported at most.
const REPORTED_EVERY: Duration = Duration::from_secs(1);

/// An error that the next try may clear counts as a failure after so many in a row.
const IN_A_ROW: u32 = 3;

/// The failing parts of a source. The source shares them with its tasks.
///
/// A failure of a part is reported at once, and at most once a second while its reason stays the
/// same; its end is reported at once. `P` names a part, by what works when it is healthy.
#[derive(Debug)]
pub struct Parts<P> {
    failing: Mutex<BTreeMap<P, Failing>>,
    news: Notify,
}

#[derive(Debug)]
struct Failing {
    in_a_row: u32,
    /// When it began to fail, and when it has failed last.
    since: Instant,
    last: Instant,
    why: String,
    now: Now,
    /// When its failure was reported, and why.
    reported: Option<(Instant, String)>,
}

/// What is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    /// Nothing: the next try may clear it, or it is reported already.
    Nothing,
    Fails,
    Works,
}

/// The failure of a part.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFailure {
    /// The reason of the last failure.
    pub why: String,
    /// When it began to fail.
    pub since: Instant,
    /// When it has failed last.
    pub last: Instant,
}

impl<P> Default for Parts<P> {
    fn default() -> Self {
        Self {
            failing: Mutex::default(),
            news: Notify::new(),
        }
    }
}

impl<P: Clone + Ord + fmt::Display> Parts<P> {
    /// Records that a part fails, and is tried again.
    pub fn fail(&self, part: P, why: impl fmt::Display) {
        self.record(part, why, false);
    }

    /// Records that a part fails with an error that the next try may clear. It is reported once it
    /// has come three times in a row.
    pub fn fail_for_now(&self, part: P, why: impl fmt::Display) {
        self.record(part, why, true);
    }

    fn record(&self, part: P, why: impl fmt::Display, may_pass: bool) {
        let now = Instant::now();
        tracing::debug!(
            target: "keylane",
            %part, error = %why,
            "a part of the source failed, will retry"
        );
        let mut failing = self.lock();
        let failing = failing.entry(part).or_insert_with(|| Failing {
            in_a_row: 0,
            since: now,
            last: now,
            why: String::new(),
            now: Now::Nothing,
            reported: None,
        });
        if failing.in_a_row == 0 {
            failing.since = now;
        }
        failing.in_a_row = failing.in_a_row.saturating_add(1);
        failing.last = now;
        if may_pass && failing.in_a_row < IN_A_ROW {
            return;
        }
        failing.why = why.to_string();
        failing.now = Now::Fails;
        self.news.notify_one();
    }

    /// Records that a part works, or does not belong to this process any more.
    pub fn recover(&self, part: &P) {
        let mut parts = self.lock();
        match parts.get_mut(part) {
            Some(Failing { reported: None, .. }) => drop(parts.remove(part)),
            Some(failing) => {
                (failing.in_a_row, failing.now) = (0, Now::Works);
                self.news.notify_one();
            }
            None => {}
        }
    }

    /// Records that all parts work, as far as is known: those that fail are found anew.
    pub fn recover_all(&self) {
        let parts = Vec::from_iter(self.lock().keys().cloned());
        parts.iter().for_each(|part| self.recover(part));
    }

    /// Reports every remaining failure anew, after the source was opened. `is_tried` says which
    /// parts are tried at once: they are forgotten.
    pub fn reopen(&self, is_tried: impl Fn(&P) -> bool) {
        self.lock().retain(|part, failing| {
            if failing.now != Now::Works && failing.reported.take().is_some() {
                failing.now = Now::Fails;
            }
            failing.now != Now::Works && !is_tried(part)
        });
    }

    /// Reports what is not reported yet. Returns whether there was anything.
    pub fn report<M, Q>(&self, into: &mut Deliveries<M, Q>) -> bool {
        let now = Instant::now();
        let mut is_any = false;
        self.lock().retain(|part, failing| {
            match failing.now {
                Now::Nothing => {}
                Now::Works => {
                    into.part_recovered(part.to_string());
                    is_any = true;
                    (failing.now, failing.reported) = (Now::Nothing, None);
                    failing.why.clear();
                    // Errors since that may pass count.
                    return failing.in_a_row > 0;
                }
                Now::Fails => {
                    let is_reported = failing.reported.as_ref().is_some_and(|(at, why)| {
                        *why == failing.why && now.saturating_duration_since(*at) < REPORTED_EVERY
                    });
                    if !is_reported {
                        into.part_failed(part.to_string(), failing.why.clone());
                        failing.reported = Some((now, failing.why.clone()));
                        failing.now = Now::Nothing;
                        is_any = true;
                    }
                }
            }
            true
        });
        is_any
    }

    /// Waits until there may be something to report. Safe to drop.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Returns whether any part fails.
    pub fn is_any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Returns the failure of a part.
    pub fn failure(&self, part: &P) -> Option<PartFailure> {
        let parts = self.lock();
        let failing = parts
            .get(part)
            .filter(|failing| failing.now != Now::Works)?;
        Some(PartFailure {
            why: failing.why.clone(),
            since: failing.since,
            last: failing.last,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<P, Failing>> {
        lock(&self.failing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(parts: &Parts<&str>) -> bool {
        parts.report(&mut Deliveries::<(), ()>::new(1, Instant::now()))
    }

    fn failing(parts: &Parts<&'static str>) -> Vec<&'static str> {
        parts.lock().keys().copied().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_reported_once_a_second_and_its_end_at_once() {
        let parts = Parts::default();
        parts.recover(&"messages");
        assert!(!report(&parts), "it has not failed");
        for _ in 0..2 {
            parts.fail("messages", "a time-out");
            assert!(report(&parts));
            parts.fail("messages", "a time-out");
            assert!(!report(&parts));
            tokio::time::advance(REPORTED_EVERY).await;
        }
        parts.fail("messages", "no right");
        assert!(report(&parts), "for another reason");
        assert_eq!(
            parts.failure(&"messages").map(|of| of.why),
            Some("no right".to_owned())
        );
        parts.recover(&"messages");
        assert!(parts.failure(&"messages").is_none() && parts.is_any());
        assert!(report(&parts) && !report(&parts) && !parts.is_any());
    }

    #[test]
    fn what_passes_is_no_failure() {
        let parts = Parts::default();
        for _ in 0..3 {
            for _ in 1..IN_A_ROW {
                parts.fail_for_now("claims", "a conflict");
            }
            assert!(!report(&parts));
            parts.recover(&"claims");
        }
        for _ in 0..IN_A_ROW {
            parts.fail_for_now("claims", "a conflict");
        }
        assert!(report(&parts));
    }

    #[test]
    fn a_source_that_is_opened_reports_what_fails_still() {
        let parts = Parts::default();
        parts.fail("old ids", "a time-out");
        parts.fail("dead workers", "a time-out");
        assert!(report(&parts));
        parts.recover(&"dead workers");
        parts.fail("messages", "a time-out");
        parts.reopen(|part| *part == "messages");
        assert_eq!(failing(&parts), ["old ids"]);
        assert!(report(&parts) && !report(&parts));
        // A part whose failure was reported recovers, and another failure was never reported.
        parts.fail("claims", "a time-out");
        parts.recover_all();
        assert_eq!(failing(&parts), ["old ids"]);
        assert!(report(&parts));
        assert_eq!(failing(&parts), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_is_opened_reports_a_failure_that_was_held_back() {
        let parts = Parts::default();
        parts.fail("old ids", "a time-out");
        assert!(report(&parts));
        parts.fail("old ids", "a time-out");
        assert!(!report(&parts), "within the same second");
        parts.reopen(|_| false);
        assert!(report(&parts));
    }

    #[test]
    fn failures_in_a_row_count_from_the_last_success() {
        let parts = Parts::default();
        parts.fail("claims", "a time-out");
        assert!(report(&parts));
        parts.recover(&"claims");
        parts.fail_for_now("claims", "a conflict");
        assert!(report(&parts), "it has recovered");
        for _ in 1..IN_A_ROW {
            parts.fail_for_now("claims", "a conflict");
        }
        assert!(report(&parts), "three in a row");
    }
}
