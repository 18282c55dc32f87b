//! Parts of the source that fail while the others go on.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keylane_source::Deliveries;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::SqlError;

/// How often the same failure is reported at most.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// An error that the next try may clear counts as a failure after so many in a row.
const IN_A_ROW: u32 = 3;

/// A part of the source that can fail, named by what succeeds when it is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Messages are claimed, read and removed.
    Messages,
    /// Letters are written for handlers that have dropped their transactions.
    Letters,
    /// Claims are renewed.
    Claims,
    /// The lanes of dead workers are freed.
    Dead,
    Orphans,
    Known,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Letters => "letters",
            Self::Claims => "claims",
            Self::Dead => "keys of dead workers",
            Self::Orphans => "keys without a worker",
            Self::Known => "old ids",
        }
    }
}

/// The failures, which the source shares with the tasks of its session.
#[derive(Debug, Default)]
pub(super) struct Failures {
    parts: Mutex<BTreeMap<Part, Failed>>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Failed {
    in_a_row: u32,
    now: Now,
    /// When its failure was reported, and why.
    told: Option<(Instant, String)>,
}

#[derive(Debug, Default)]
enum Now {
    /// The next try may clear it; its reported state stays.
    #[default]
    AsBefore,
    /// It fails, and that is not reported yet.
    Fails(String),
    Well,
}

impl Failures {
    /// Records that a part fails and is tried again.
    pub(super) fn fail(&self, part: Part, error: &SqlError) {
        tracing::debug!(
            target: "keylane",
            part = part.name(), %error,
            "a part of the source failed, will retry"
        );
        let mut parts = self.lock();
        let failed = parts.entry(part).or_default();
        failed.in_a_row = failed.in_a_row.saturating_add(1);
        if error.is_made_again() && failed.in_a_row < IN_A_ROW {
            return;
        }
        failed.now = Now::Fails(error.to_string());
        self.news.notify_one();
    }

    pub(super) fn is_well(&self, part: Part) {
        let mut parts = self.lock();
        match parts.get_mut(&part) {
            Some(Failed { told: None, .. }) => drop(parts.remove(&part)),
            Some(failed) => {
                (failed.in_a_row, failed.now) = (0, Now::Well);
                self.news.notify_one();
            }
            None => {}
        }
    }

    /// Opens the source: every remaining failure is reported anew. Messages are tried at once.
    pub(super) fn open(&self) {
        self.lock().retain(|part, failed| {
            if let (Now::AsBefore, Some((_, why))) = (&failed.now, failed.told.take()) {
                failed.now = Now::Fails(why);
            }
            *part != Part::Messages && !matches!(failed.now, Now::Well)
        });
    }

    /// Begins another session, which finds out anew what fails.
    pub(super) fn begin(&self) {
        let parts = Vec::from_iter(self.lock().keys().copied());
        parts.into_iter().for_each(|part| self.is_well(part));
    }

    /// Reports what is not reported yet. Returns whether there was anything.
    pub(super) fn tell<M, P>(&self, into: &mut Deliveries<M, P>) -> bool {
        let now = Instant::now();
        let mut is_any = false;
        self.lock().retain(|part, failed| {
            match &failed.now {
                Now::AsBefore => {}
                Now::Well => {
                    into.part_recovered(part.name());
                    is_any = true;
                    return false;
                }
                Now::Fails(why) => {
                    let is_told = failed.told.as_ref().is_some_and(|(at, told)| {
                        told == why && now.saturating_duration_since(*at) < TOLD_EVERY
                    });
                    if !is_told {
                        into.part_failed(part.name(), why.clone());
                        failed.told = Some((now, why.clone()));
                        failed.now = Now::AsBefore;
                        is_any = true;
                    }
                }
            }
            true
        });
        is_any
    }

    /// Waits until there may be something to report. Safe to drop.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Part, Failed>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(failures: &Failures) -> bool {
        let mut into = Deliveries::<(), ()>::new(1, Instant::now());
        failures.tell(&mut into)
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_once_a_second_and_its_end_at_once() {
        let (failures, error) = (Failures::default(), SqlError::timed_out());
        failures.is_well(Part::Messages);
        assert!(!tell(&failures), "it has not failed");
        for _ in 0..2 {
            failures.fail(Part::Messages, &error);
            assert!(tell(&failures));
            failures.fail(Part::Messages, &error);
            assert!(!tell(&failures));
            tokio::time::advance(TOLD_EVERY).await;
        }
        failures.fail(Part::Messages, &SqlError::damaged(7));
        assert!(tell(&failures), "for another reason");
        failures.is_well(Part::Messages);
        assert!(tell(&failures) && !tell(&failures));
    }

    #[test]
    fn what_passes_is_no_failure() {
        let (failures, error) = (Failures::default(), SqlError::conflict());
        for _ in 0..3 {
            for _ in 1..IN_A_ROW {
                failures.fail(Part::Claims, &error);
            }
            failures.is_well(Part::Claims);
        }
        assert!(!tell(&failures));
        for _ in 0..IN_A_ROW {
            failures.fail(Part::Claims, &error);
        }
        assert!(tell(&failures));
    }

    #[test]
    fn a_source_that_is_opened_tells_what_fails_still() {
        let (failures, error) = (Failures::default(), SqlError::timed_out());
        let failing = || Vec::from_iter(failures.lock().keys().copied());
        failures.fail(Part::Known, &error);
        failures.fail(Part::Dead, &error);
        assert!(tell(&failures));
        failures.is_well(Part::Dead);
        failures.fail(Part::Messages, &error);
        failures.open();
        assert_eq!(failing(), [Part::Known]);
        assert!(tell(&failures) && !tell(&failures));
        // A part whose failure was reported recovers, and another failure was never reported.
        failures.fail(Part::Claims, &error);
        failures.begin();
        assert_eq!(failing(), [Part::Known]);
        assert!(tell(&failures));
        assert_eq!(failing(), []);
    }
}
