//! What keylane-sql must reach.

use serde::Serialize;

use crate::contenders::Id;
use crate::results::Results;

/// A bar.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What is asked.
    pub asked: String,
    /// What was measured: the worst value, and where.
    pub measured: String,
    /// `None`: nothing was measured.
    pub is_passed: Option<bool>,
}

impl Bar {
    /// In a word.
    pub fn verdict(&self) -> &'static str {
        match self.is_passed {
            Some(true) => "pass",
            Some(false) => "MISS",
            None => "not measured",
        }
    }
}

/// All bars.
pub fn bars(results: &Results) -> Vec<Bar> {
    vec![
        no_violation(results),
        at_least(
            "empty handlers, 10,000 keys: ≥ 5 × the fastest of awa and graphile",
            5.0,
            results,
            &["empty/10k/1w", "empty/10k/3w"],
            |results, workload| {
                let rivals = [Id::Awa, Id::Graphile];
                // The fastest of them is the one to which the ratio is the least.
                let ratios = rivals
                    .into_iter()
                    .filter(|id| {
                        results
                            .row(workload, *id)
                            .is_some_and(|row| row.breaks() == 0)
                    })
                    .filter_map(|id| Some((results.ratio(workload, Id::Keylane, id)?, id.name())));
                ratios.min_by(|a, b| a.0.total_cmp(&b.0))
            },
        ),
        at_least(
            "5 ms handlers, 10,000 and 100,000 keys: ≥ 0.8 × skip-locked",
            0.8,
            results,
            &[
                "sleep-5ms/10k/1w",
                "sleep-5ms/10k/3w",
                "sleep-5ms/100k/1w",
                "sleep-5ms/100k/3w",
            ],
            |results, workload| {
                let ratio = results.ratio(workload, Id::Keylane, Id::SkipLocked)?;
                Some((ratio, Id::SkipLocked.name()))
            },
        ),
        at_least(
            "5 ms handlers, one key: ≥ 0.8 × the handler in a loop",
            0.8,
            results,
            &["sleep-5ms/1/1w", "sleep-5ms/1/3w"],
            |results, workload| {
                let rate = results.row(workload, Id::Keylane)?.rate()?;
                Some((rate / results.serial, "a loop"))
            },
        ),
        latency(results),
    ]
}

fn at_least(
    asked: &str,
    least: f64,
    results: &Results,
    workloads: &[&str],
    ratio: impl Fn(&Results, &str) -> Option<(f64, &'static str)>,
) -> Bar {
    let worst = workloads
        .iter()
        .filter_map(|workload| Some((ratio(results, workload)?, *workload)))
        .min_by(|((a, _), _), ((b, _), _)| a.total_cmp(b));
    Bar {
        asked: asked.to_owned(),
        measured: worst.map_or_else(String::new, |((ratio, to), workload)| {
            format!("{ratio:.2} ({workload}, {to})")
        }),
        is_passed: worst.map(|((ratio, _), _)| ratio >= least),
    }
}

fn no_violation(results: &Results) -> Bar {
    let rows: Vec<_> = results
        .rows
        .iter()
        .filter(|row| row.id == Id::Keylane && !row.samples.is_empty())
        .collect();
    let breaks: u64 = rows.iter().map(|row| row.breaks()).sum();
    Bar {
        asked: "keylane breaks the order nowhere".to_owned(),
        measured: breaks.to_string(),
        is_passed: (!rows.is_empty()).then_some(breaks == 0),
    }
}

fn latency(results: &Results) -> Bar {
    let found = results
        .latencies
        .iter()
        .find(|latency| latency.id == Id::Keylane);
    Bar {
        asked: "idle, a message every 10 ms: p99 from commit to handler ≤ 20 ms".to_owned(),
        measured: found.map_or_else(String::new, |latency| format!("{:.1} ms", latency.p99)),
        is_passed: found.map(|latency| latency.p99 <= 20.0 && latency.lost == 0),
    }
}
