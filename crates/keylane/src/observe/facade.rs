//! The `metrics` facade. Without the feature every call here does nothing.
//!
//! Names start with `keylane_`, times are in seconds, and no key is ever a label. A dispatcher
//! with a name carries it as the label `dispatcher`.

#[cfg(feature = "metrics")]
mod imp {
    use keylane_rt::{Mutex, lock};
    use metrics::{Counter, Gauge, Histogram, Label};

    use crate::observe::Stats;

    /// Handles are looked up once, when the dispatcher starts.
    pub(crate) struct Facade {
        /// Held while a snapshot is taken and published, so that none is replaced by an older one.
        publishing: Mutex<()>,
        /// In the order of `Stats::settled`.
        settled: [Counter; 7],
        accepted: Counter,
        failures: Counter,
        retries: Counter,
        panics: Counter,
        timeouts: Counter,
        letter_failures: Counter,
        overflowed: Counter,
        stuck: Counter,
        gauges: [Gauge; 8],
        pub(super) wait: Histogram,
        pub(super) attempt: Histogram,
    }

    impl std::fmt::Debug for Facade {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Facade").finish_non_exhaustive()
        }
    }

    impl Facade {
        pub(crate) fn new(name: Option<&str>) -> Self {
            let labels: Vec<Label> = name
                .map(|name| Label::new("dispatcher", name.to_owned()))
                .into_iter()
                .collect();
            let counter = |name: &'static str| metrics::counter!(name, labels.clone());
            let gauge = |name: &'static str| metrics::gauge!(name, labels.clone());
            let settled = |(outcome, _): (&'static str, u64)| {
                let mut labels = labels.clone();
                labels.push(Label::new("outcome", outcome));
                metrics::counter!("keylane_settled_total", labels)
            };
            Self {
                publishing: Mutex::new(()),
                settled: Stats::default().settled().map(settled),
                accepted: counter("keylane_accepted_total"),
                failures: counter("keylane_attempt_failures_total"),
                retries: counter("keylane_retries_total"),
                panics: counter("keylane_panics_total"),
                timeouts: counter("keylane_timeouts_total"),
                letter_failures: counter("keylane_letter_failures_total"),
                overflowed: counter("keylane_overflowed_total"),
                stuck: counter("keylane_stuck_total"),
                gauges: [
                    "keylane_in_flight",
                    "keylane_ready",
                    "keylane_lanes",
                    "keylane_backing_off",
                    "keylane_halted",
                    "keylane_full_lanes",
                    "keylane_stalled",
                    "keylane_concurrency_limit",
                ]
                .map(gauge),
                wait: metrics::histogram!("keylane_wait_seconds", labels.clone()),
                attempt: metrics::histogram!("keylane_attempt_seconds", labels),
            }
        }

        /// Publishes a snapshot: absolute counts, so that nothing is counted twice.
        pub(crate) fn publish(&self, stats: impl FnOnce() -> Stats) {
            let _publishing = lock(&self.publishing);
            let stats = stats();
            for (counter, (_, count)) in self.settled.iter().zip(stats.settled()) {
                counter.absolute(count);
            }
            self.accepted.absolute(stats.accepted);
            self.failures.absolute(stats.failures);
            self.retries.absolute(stats.retries);
            self.panics.absolute(stats.panics);
            self.timeouts.absolute(stats.timeouts);
            self.letter_failures.absolute(stats.letter_failures);
            self.overflowed.absolute(stats.overflowed);
            self.stuck.absolute(stats.stuck);
            let gauges = [
                stats.in_flight,
                stats.ready,
                stats.lanes,
                stats.backing_off,
                stats.halted,
                stats.full_lanes,
                stats.stalled,
                stats.concurrency_limit,
            ];
            for (gauge, value) in self.gauges.iter().zip(gauges) {
                gauge.set(value as f64);
            }
        }
    }
}

#[cfg(feature = "metrics")]
mod stopwatch {
    use std::time::Duration;

    use keylane_rt::clock::{self, Instant};

    use super::Facade;

    /// Times one attempt.
    #[derive(Debug)]
    pub(crate) struct Stopwatch {
        waited: Duration,
        started: Instant,
    }

    impl Stopwatch {
        #[inline]
        pub(crate) fn start(waited: impl FnOnce(Instant) -> Duration) -> Self {
            let started = clock::now();
            Self {
                waited: waited(started),
                started,
            }
        }

        #[inline]
        pub(crate) fn stop(&self, facade: &Facade) {
            facade.wait.record(self.waited);
            facade
                .attempt
                .record(clock::now().saturating_duration_since(self.started));
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod imp {
    use crate::observe::Stats;

    #[derive(Debug)]
    pub(crate) struct Facade;

    impl Facade {
        pub(crate) fn new(_: Option<&str>) -> Self {
            Self
        }

        pub(crate) fn publish(&self, _: impl FnOnce() -> Stats) {}
    }
}

#[cfg(not(feature = "metrics"))]
mod stopwatch {
    use std::time::Duration;

    use keylane_rt::clock::Instant;

    use super::Facade;

    #[derive(Debug)]
    pub(crate) struct Stopwatch;

    impl Stopwatch {
        #[inline]
        pub(crate) fn start(_: impl FnOnce(Instant) -> Duration) -> Self {
            Self
        }

        #[inline]
        pub(crate) fn stop(&self, _: &Facade) {}
    }
}

pub(crate) use imp::Facade;
pub(crate) use stopwatch::Stopwatch;
