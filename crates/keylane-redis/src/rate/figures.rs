//! The metrics of a rate.

use std::sync::atomic::{AtomicU64, Ordering};

use keylane_metrics::{Figures, IfPublished, LabelNames, Labels, Metric, Row, published};

use super::error::TryAcquireError;

const RATE: LabelNames = LabelNames::new(&["rate"]);

const GRANTED: Metric = RATE.counter(
    "keylane_rate_granted_total",
    "Permits that callers of this process have got.",
);
const REFUSED: Metric = RATE
    .counter(
        "keylane_rate_refused_total",
        "Callers that got no permit, by reason: not_yet, server.",
    )
    .labels(&["rate", "reason"]);
const EXPIRED: Metric = RATE.counter(
    "keylane_rate_expired_total",
    "Permits that were lost because a caller came to them too late.",
);
const CALLS: Metric = RATE.counter("keylane_rate_calls_total", "Calls to the server.");
const FAILED_CALLS: Metric = RATE.counter(
    "keylane_rate_failed_calls_total",
    "Calls to the server that failed.",
);
const KEYS: Metric = RATE.gauge("keylane_rate_keys", "Keys that this process knows.");
const AWAY: Metric = RATE.gauge(
    "keylane_rate_away",
    "Whether the server is away, so that the rate is not shared.",
);

/// Counters since the rate was built, and gauges.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateCounts {
    granted: u64,
    not_yet: u64,
    refused_by_server: u64,
    expired: u64,
    pub(super) calls: u64,
    pub(super) failed_calls: u64,
    pub(super) keys: u64,
    pub(super) is_away: bool,
}

static ROWS: [Row<RateCounts>; 8] = [
    Row::new(GRANTED, |counts| counts.granted),
    Row::labelled(REFUSED, ("reason", "not_yet"), |counts| counts.not_yet),
    Row::labelled(REFUSED, ("reason", "server"), |counts| {
        counts.refused_by_server
    }),
    Row::new(EXPIRED, |counts| counts.expired),
    Row::new(CALLS, |counts| counts.calls),
    Row::new(FAILED_CALLS, |counts| counts.failed_calls),
    Row::new(KEYS, |counts| counts.keys),
    Row::new(AWAY, |counts| u64::from(counts.is_away)),
];

/// The metrics of a rate.
pub(crate) fn published_of_rates() -> Vec<Metric> {
    published(&ROWS)
}

/// What callers have got, and what is published.
#[derive(Debug)]
pub(super) struct RateFigures {
    figures: Figures<RateCounts>,
    tally: IfPublished<Tally>,
}

/// Relaxed, all of them: they are statistics.
#[derive(Debug, Default)]
struct Tally {
    granted: AtomicU64,
    not_yet: AtomicU64,
    refused_by_server: AtomicU64,
    expired: AtomicU64,
}

impl RateFigures {
    /// Looks up the handles.
    pub(super) fn new(rate: &[u8]) -> Self {
        let labels = Labels::new().with("rate", &String::from_utf8_lossy(rate));
        Self {
            figures: Figures::new(&ROWS, &labels),
            tally: IfPublished::new(Tally::default),
        }
    }

    /// A caller has this answer; `None`: its permit has expired.
    pub(super) fn answered(&self, answer: Option<&Result<(), TryAcquireError>>) {
        self.tally.with(|tally| {
            let count = match answer {
                Some(Ok(())) => &tally.granted,
                Some(Err(TryAcquireError::NotYet { .. })) => &tally.not_yet,
                Some(Err(TryAcquireError::Redis(_))) => &tally.refused_by_server,
                None => &tally.expired,
            };
            count.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Publishes what was counted here, and these.
    pub(super) fn show(&self, counts: impl FnOnce() -> RateCounts) {
        self.tally.with(|tally| {
            let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
            self.figures.show(|| RateCounts {
                granted: get(&tally.granted),
                not_yet: get(&tally.not_yet),
                refused_by_server: get(&tally.refused_by_server),
                expired: get(&tally.expired),
                ..counts()
            });
        });
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use crate::rate::{Quota, SharedRate, WhenAway};
    use crate::server::Redis;

    #[tokio::test(start_paused = true)]
    async fn permits_refusals_and_a_server_that_is_away_are_published() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        // No server listens at this address.
        let redis = Redis::at("redis://127.0.0.1:1/").unwrap();
        let rate = SharedRate::builder(&redis, "partner")
            .per_key(Quota::per_second(1))
            .when_away(WhenAway::LocalShare { processes: 1 });
        let rate = metrics::with_local_recorder(&recorder, || rate.build()).unwrap();
        rate.acquire("ada@example.org").await.unwrap();
        rate.acquire("ada@example.org").await.unwrap();
        let refused = rate.try_acquire("ada@example.org").await.is_err();
        rate.handle.shared.show();
        let text = handle.render();
        let value = |series: &str| {
            let line = text.lines().find(|line| line.starts_with(series));
            let line = line.unwrap_or_else(|| panic!("no {series} in {text}"));
            line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        let granted = value("keylane_rate_granted_total{rate=\"partner\"}");
        assert_eq!(granted, 2 + u64::from(!refused));
        let not_yet = value("keylane_rate_refused_total{rate=\"partner\",reason=\"not_yet\"}");
        assert_eq!(not_yet, u64::from(refused));
        assert_eq!(value("keylane_rate_away{rate=\"partner\"}"), 1);
        assert_eq!(value("keylane_rate_keys{rate=\"partner\"}"), 1);
        let failed = value("keylane_rate_failed_calls_total{rate=\"partner\"}");
        assert!(failed > 0, "{text}");
        assert!(!text.contains("ada@example.org"), "{text}");
    }
}
