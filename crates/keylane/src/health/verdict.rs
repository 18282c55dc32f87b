//! Ready, live, or why not. Pure: time is an argument.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::limits::HealthLimits;
use super::reason::HealthReason;
use crate::consume::{IntakeState, IntakeStats};

/// Whether a dispatcher, a source, or several of them can work.
///
/// *Ready* means that messages are taken and handled: a process that is not ready should get no
/// more requests. *Live* is false only if a restart of the process mends it, and nothing else does.
/// A server that is away ends the readiness, and not the liveness.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use keylane::Dispatcher;
/// use keylane::watching::Health;
///
/// let orders = Dispatcher::builder(|order: &u64| *order)
///     .name("orders")
///     .spawn(|_: u64| async move { Ok::<(), std::io::Error>(()) })?;
/// let bills = Dispatcher::builder(|bill: &u64| *bill)
///     .spawn(|_: u64| async move { Ok::<(), std::io::Error>(()) })?;
/// assert!(Health::of([orders.health(), bills.health()]).ready);
///
/// let closed = orders.clone();
/// orders.drain().await;
/// let health = Health::of([closed.health(), bills.health()]);
/// assert!(!health.ready && health.live);
/// assert_eq!(
///     health.to_string(),
///     "not ready: dispatcher `orders` is closed: start another one to take messages"
/// );
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether messages are taken and handled.
    pub ready: bool,
    /// Whether it works, or can work again without a restart of the process.
    pub live: bool,
    /// Why it is not ready, or not live; empty if it is both.
    pub reasons: Vec<HealthReason>,
}

impl Health {
    /// Returns the health of several dispatchers and sources together: it is ready if all of them
    /// are, and live if all of them are.
    pub fn of(parts: impl IntoIterator<Item = Self>) -> Self {
        parts
            .into_iter()
            .flat_map(|part| part.reasons)
            .collect::<Vec<_>>()
            .into()
    }
}

impl From<Vec<HealthReason>> for Health {
    fn from(reasons: Vec<HealthReason>) -> Self {
        Self {
            ready: reasons.is_empty(),
            live: !reasons.iter().any(HealthReason::needs_restart),
            reasons,
        }
    }
}

/// The readiness or the liveness that it lacks, and each reason: one line for a log.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.live, self.ready) {
            (false, _) => "not live",
            (true, false) => "not ready",
            (true, true) => "ready",
        })?;
        for (at, reason) in self.reasons.iter().enumerate() {
            let separator = if at == 0 { ": " } else { "; " };
            write!(f, "{separator}{reason}")?;
        }
        Ok(())
    }
}

/// What is observed of a dispatcher.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DispatcherView<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) is_closed: bool,
    pub(crate) panicked: bool,
    /// For how long it has been full, with nothing settled.
    pub(crate) full: Option<Duration>,
    /// How many handlers block their threads, and for how long the first of them does.
    pub(crate) blocked: Option<(usize, Duration)>,
}

impl DispatcherView<'_> {
    pub(crate) fn verdict(&self, limits: &HealthLimits) -> Health {
        let dispatcher = || self.name.map(str::to_owned);
        let mut reasons = Vec::new();
        if self.panicked {
            let dispatcher = dispatcher();
            reasons.push(HealthReason::Panicked { dispatcher });
        } else if self.is_closed {
            let dispatcher = dispatcher();
            reasons.push(HealthReason::Closed { dispatcher });
        } else if let Some(lasted) = self.full.filter(|lasted| *lasted >= limits.full) {
            let dispatcher = dispatcher();
            reasons.push(HealthReason::Full { dispatcher, lasted });
        }
        let blocked = self.blocked.filter(|(_, lasted)| *lasted >= limits.blocked);
        if let Some((handlers, lasted)) = blocked {
            reasons.push(HealthReason::Blocked {
                dispatcher: dispatcher(),
                handlers,
                lasted,
            });
        }
        reasons.into()
    }
}

/// What is observed of an intake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntakeView<'a> {
    pub(crate) source: &'a str,
    pub(crate) stats: &'a IntakeStats,
    /// A panic outside the handlers has ended it.
    pub(crate) panicked: bool,
}

impl IntakeView<'_> {
    pub(crate) fn verdict(&self, limits: &HealthLimits, now: Instant) -> Health {
        Vec::from_iter(self.reason(limits, now)).into()
    }

    fn reason(&self, limits: &HealthLimits, now: Instant) -> Option<HealthReason> {
        let source = self.source.to_owned();
        let error = self.stats.last_error.clone();
        match self.stats.state {
            IntakeState::Ended if self.panicked => Some(HealthReason::SourcePanicked { source }),
            IntakeState::Stopping | IntakeState::Ended => {
                Some(HealthReason::SourceStopped { source })
            }
            // An operator has paused it, and knows.
            IntakeState::Running | IntakeState::Paused => None,
            IntakeState::Opening if self.stats.opened == 0 => {
                Some(HealthReason::SourceUnopened { source, error })
            }
            IntakeState::Opening => {
                let since = self.stats.failing_since?;
                let lasted = now.saturating_duration_since(since);
                (lasted >= limits.failing).then_some(HealthReason::SourceFailing {
                    source,
                    lasted,
                    error,
                })
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: HealthLimits = HealthLimits::new();

    /// Ready, live, and the variants of the reasons.
    fn shown(health: &Health) -> String {
        let reasons = health.reasons.iter().map(|reason| {
            let text = format!("{reason:?}");
            text.split([' ', '{']).next().unwrap_or_default().to_owned()
        });
        let reasons: Vec<String> = reasons.collect();
        format!("{} {} {}", health.ready, health.live, reasons.join("+"))
    }

    #[test]
    fn a_dispatcher_is_ready_and_live_by_this_table() {
        let view = DispatcherView::default();
        let full = |seconds| DispatcherView {
            full: Some(seconds * SECOND),
            ..view
        };
        let blocked = |seconds| DispatcherView {
            blocked: Some((2, seconds * SECOND)),
            ..view
        };
        let closed = DispatcherView {
            is_closed: true,
            ..full(60)
        };
        let panicked = DispatcherView {
            panicked: true,
            ..closed
        };
        let both = DispatcherView {
            full: Some(40 * SECOND),
            ..blocked(400)
        };
        let table = [
            (view, "true true "),
            (full(29), "true true "),
            (full(30), "false true Full"),
            (blocked(299), "true true "),
            (blocked(300), "false false Blocked"),
            (both, "false false Full+Blocked"),
            (closed, "false true Closed"),
            (panicked, "false false Panicked"),
        ];
        for (view, verdict) in table {
            assert_eq!(shown(&view.verdict(&LIMITS)), verdict, "{view:?}");
        }
    }

    #[test]
    fn a_source_is_ready_and_live_by_this_table() {
        let now = Instant::now() + 1_000 * SECOND;
        let stats = |state, opened, failing: Option<u32>| IntakeStats {
            state,
            opened,
            failing_since: failing.map(|seconds| now - seconds * SECOND),
            last_error: failing.map(|_| "no route to the broker".to_owned()),
            ..IntakeStats::default()
        };
        let (opening, running) = (IntakeState::Opening, IntakeState::Running);
        let table = [
            (stats(opening, 0, None), false, "false true SourceUnopened"),
            (
                stats(opening, 0, Some(1)),
                false,
                "false true SourceUnopened",
            ),
            (stats(running, 1, None), false, "true true "),
            (stats(IntakeState::Paused, 1, None), false, "true true "),
            // It is open again, and has not shown that it works.
            (stats(running, 2, Some(600)), false, "true true "),
            (stats(opening, 1, None), false, "true true "),
            (stats(opening, 1, Some(29)), false, "true true "),
            (
                stats(opening, 1, Some(30)),
                false,
                "false true SourceFailing",
            ),
            (
                stats(IntakeState::Stopping, 1, None),
                false,
                "false true SourceStopped",
            ),
            (
                stats(IntakeState::Ended, 1, None),
                false,
                "false true SourceStopped",
            ),
            (
                stats(IntakeState::Ended, 1, None),
                true,
                "false false SourcePanicked",
            ),
        ];
        for (stats, panicked, verdict) in table {
            let view = IntakeView {
                source: "orders",
                stats: &stats,
                panicked,
            };
            assert_eq!(shown(&view.verdict(&LIMITS, now)), verdict, "{stats:?}");
        }
    }

    #[test]
    fn several_are_ready_if_all_are_and_the_text_has_all_reasons() {
        let source = "orders".to_owned();
        let stopped = Health::from(vec![HealthReason::SourceStopped { source }]);
        let well = Health::from(Vec::new());
        assert_eq!(
            Health::of([well.clone(), well.clone()]).to_string(),
            "ready"
        );
        assert!(Health::of([]).ready, "nothing is expected to work");
        let dispatcher = Some("bills".to_owned());
        let panicked = Health::from(vec![HealthReason::Panicked { dispatcher }]);
        let all = Health::of([well, stopped, panicked]);
        assert!(!all.ready && !all.live);
        assert_eq!(
            all.to_string(),
            "not live: source `orders` is not consumed any more: consume it again to take messages; \
             a panic outside the handlers ended dispatcher `bills`: restart the process, and look \
             for the text of the panic in its output"
        );
    }

    #[test]
    fn a_reason_says_what_to_do_and_quotes_the_last_error() {
        let lasted = 45 * SECOND;
        let error = Some("no route to the broker".to_owned());
        let reasons = [
            (
                HealthReason::SourceFailing {
                    source: "orders".to_owned(),
                    lasted,
                    error,
                },
                "source `orders` has failed for 45 s: look at its server (the last error: no route \
                 to the broker)",
            ),
            (
                HealthReason::Full {
                    dispatcher: None,
                    lasted,
                },
                "the dispatcher is full, and nothing has settled for 45 s: look at the hottest keys \
                 and at what their handlers wait for, or raise the capacity",
            ),
        ];
        for (reason, text) in reasons {
            assert_eq!(reason.to_string(), text);
        }
    }
}
