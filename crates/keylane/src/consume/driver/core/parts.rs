//! The parts of a source that fail while the others go on. Pure: time is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_rt::cut;
use keylane_source::PartNews;

use super::super::super::report::FailedPart;

/// Most parts that are known to have failed. Of others the log hears once, each time.
const MOST: usize = 1_024;

/// Most characters kept of a reason or a name.
const LONGEST: usize = 256;

/// After what time a part that still fails is in the log again. Then after twice the time before.
const FIRST_REMINDER: Duration = Duration::from_secs(10);
const LAST_REMINDER: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Parts {
    failed: BTreeMap<String, Failed>,
}

#[derive(Debug)]
struct Failed {
    why: String,
    since: Instant,
    last: Instant,
    times: u64,
    remind_at: Instant,
    pause: Duration,
}

/// What is to be said of a part.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Saying {
    /// It fails, or for another reason than before.
    Failed {
        part: String,
        why: String,
    },
    /// It fails still.
    Fails {
        part: String,
        why: String,
        lasted: Duration,
        times: u64,
    },
    Recovered {
        part: String,
        lasted: Duration,
    },
}

impl Parts {
    /// Takes what the source says of a part.
    pub(super) fn hear(&mut self, news: PartNews, now: Instant) -> Option<Saying> {
        match news {
            PartNews::Failed { part, why } => self.fail(cut(part, LONGEST), cut(why, LONGEST), now),
            PartNews::Recovered { part } => {
                let part = cut(part, LONGEST);
                let failed = self.failed.remove(&part)?;
                let lasted = now.saturating_duration_since(failed.since);
                Some(Saying::Recovered { part, lasted })
            }
        }
    }

    fn fail(&mut self, part: String, why: String, now: Instant) -> Option<Saying> {
        if let Some(failed) = self.failed.get_mut(&part) {
            failed.last = now;
            failed.times = failed.times.saturating_add(1);
            if failed.why == why {
                return None;
            }
            failed.why.clone_from(&why);
            return Some(Saying::Failed { part, why });
        }
        if self.failed.len() < MOST {
            let failed = Failed {
                why: why.clone(),
                since: now,
                last: now,
                times: 1,
                remind_at: now + FIRST_REMINDER,
                pause: FIRST_REMINDER,
            };
            self.failed.insert(part.clone(), failed);
        }
        Some(Saying::Failed { part, why })
    }

    /// Those that are to be in the log again.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Saying> {
        let due = self.failed.iter_mut();
        let due = due.filter(|(_, failed)| failed.remind_at <= now);
        let remind = |(part, failed): (&String, &mut Failed)| {
            failed.pause = (2 * failed.pause).min(LAST_REMINDER);
            failed.remind_at = now + failed.pause;
            Saying::Fails {
                part: part.clone(),
                why: failed.why.clone(),
                lasted: now.saturating_duration_since(failed.since),
                times: failed.times,
            }
        };
        due.map(remind).collect()
    }

    /// When one of them is to be in the log again.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.failed.values().map(|failed| failed.remind_at).min()
    }

    pub(super) fn seen(&self) -> Vec<FailedPart> {
        let parts = self.failed.iter().map(|(part, failed)| FailedPart {
            part: part.clone(),
            why: failed.why.clone(),
            since: failed.since.into(),
            last: failed.last.into(),
            times: failed.times,
        });
        parts.collect()
    }

    /// The source was opened: it finds out anew which of its parts fail. True: some had failed.
    pub(super) fn forget(&mut self) -> bool {
        !std::mem::take(&mut self.failed).is_empty()
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn failed(why: &str) -> PartNews {
        PartNews::Failed {
            part: "orders/1".into(),
            why: why.into(),
        }
    }

    fn recovered() -> PartNews {
        PartNews::Recovered {
            part: "orders/1".into(),
        }
    }

    #[test]
    fn it_is_said_once_and_when_the_reason_is_another_one() {
        let (mut parts, start) = (Parts::default(), Instant::now());
        let first = parts.hear(failed("no leader"), start);
        assert!(matches!(first, Some(Saying::Failed { .. })), "{first:?}");
        assert_eq!(parts.hear(failed("no leader"), start + SECOND), None);
        let other = parts.hear(failed("no codec"), start + 2 * SECOND);
        assert!(matches!(other, Some(Saying::Failed { .. })), "{other:?}");
        let [seen] = &parts.seen()[..] else {
            panic!("one has failed");
        };
        assert_eq!(
            (seen.part.as_str(), seen.why.as_str()),
            ("orders/1", "no codec")
        );
        assert_eq!(seen.last.duration_since(seen.since), 2 * SECOND);
        assert_eq!(seen.times, 3);
    }

    #[test]
    fn it_recovers_and_what_has_not_failed_cannot() {
        let (mut parts, start) = (Parts::default(), Instant::now());
        assert_eq!(parts.hear(recovered(), start), None);
        parts.hear(failed("no leader"), start);
        let well = parts.hear(recovered(), start + 3 * SECOND);
        let (part, lasted) = ("orders/1".into(), 3 * SECOND);
        assert_eq!(well, Some(Saying::Recovered { part, lasted }));
        assert!(parts.seen().is_empty());
        assert_eq!(parts.wake_at(), None);
    }

    #[test]
    fn reminders_come_at_growing_intervals() {
        let (mut parts, start) = (Parts::default(), Instant::now());
        parts.hear(failed("no leader"), start);
        let mut said = Vec::new();
        while let Some(at) = parts.wake_at().filter(|at| *at < start + 3_000 * SECOND) {
            assert!(parts.due(at - SECOND).is_empty());
            assert_eq!(parts.due(at).len(), 1);
            said.push((at - start).as_secs());
        }
        assert_eq!(said, [10, 30, 70, 150, 310, 630, 1_230, 1_830, 2_430]);
    }

    #[test]
    fn more_than_a_thousand_are_said_and_not_kept() {
        let (mut parts, start) = (Parts::default(), Instant::now());
        for n in 0..2 * MOST {
            let news = PartNews::Failed {
                part: n.to_string(),
                why: "no leader".into(),
            };
            assert!(parts.hear(news, start).is_some());
        }
        assert_eq!(parts.seen().len(), MOST);
        assert!(parts.forget());
        assert!(parts.seen().is_empty());
    }
}
