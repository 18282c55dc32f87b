//! What keylane-kafka must reach.

use serde::Serialize;

use crate::contenders::Id;
use crate::report::Report;
use crate::results::{Results, Row};

/// The contenders of Parallel Consumer.
const RIVALS: [Id; 2] = [Id::Parallel, Id::ParallelReactor];

/// A bar.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What is asked.
    pub asked: String,
    /// What was measured: the worst value, and where.
    pub measured: String,
    /// `None`: nothing was measured.
    pub is_met: Option<bool>,
}

impl Bar {
    /// In a word.
    pub fn verdict(&self) -> &'static str {
        match self.is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        }
    }
}

/// All bars.
pub fn bars(results: &Results) -> Vec<Bar> {
    let rate = |report: &Report| report.rate();
    let rival = |workload: &str, round, figure: &dyn Fn(&Report) -> f64, best: Best| {
        let figures = RIVALS
            .into_iter()
            .filter_map(|id| results.figure(workload, id, round, figure));
        match best {
            Best::Most => figures.max_by(f64::total_cmp),
            Best::Least => figures.min_by(f64::total_cmp),
        }
    };
    let beside_parallel = |workload: &str| {
        results.ratio(workload, rate, |round| {
            rival(workload, round, &rate, Best::Most)
        })
    };
    let plain = |workload: &str, round| results.figure(workload, Id::Plain, round, rate);
    vec![
        no_break(results),
        Bar::at_least(
            8.0,
            "waiting/empty: ≥ 8 × Parallel Consumer",
            results,
            "waiting/",
            beside_parallel,
        ),
        Bar::at_least(
            0.7,
            "waiting/empty: ≥ 0.7 × the plain loop",
            results,
            "waiting/",
            |workload| results.ratio(workload, rate, |round| plain(workload, round)),
        ),
        Bar::at_least(
            2.0,
            "sleep: ≥ 2 × Parallel Consumer",
            results,
            "sleep-",
            beside_parallel,
        ),
        Bar::at_least(
            0.9,
            "sleep: ≥ 0.9 × what the concurrency or the plain loop allows",
            results,
            "sleep-",
            |workload| {
                results.ratio(workload, rate, |round| {
                    Some(plain(workload, round)?.min(allowed(workload)?))
                })
            },
        ),
        Bar::at_least(
            1.0,
            "readme: each cell faster than Parallel Consumer",
            results,
            "readme/",
            beside_parallel,
        ),
        Bar::at_most(
            1.1,
            "hot-half: the others take ≤ 1.1 × the time without the hot key",
            results,
            "hot-half",
            |workload| {
                let seconds = |report: &Report| report.seconds;
                let alone = |round| results.figure("hot-half/without", Id::Keylane, round, seconds);
                (workload == "hot-half").then(|| results.ratio(workload, seconds, alone))?
            },
        ),
        Bar::at_least(
            0.95,
            "failing: the others have ≥ 0.95 × their rate without it",
            results,
            "failing",
            |workload| {
                let without = |round| results.figure("failing/without", Id::Keylane, round, rate);
                (workload == "failing").then(|| results.ratio(workload, rate, without))?
            },
        ),
        Bar::at_most(
            1.0,
            "kill: fewer records again than Parallel Consumer",
            results,
            "kill",
            |workload| {
                let again = |report: &Report| report.again as f64;
                results.ratio(workload, again, |round| {
                    rival(workload, round, &again, Best::Least)
                })
            },
        ),
        Bar::at_most(
            0.1,
            "peak memory: ≤ 1/10 of Parallel Consumer's",
            results,
            "",
            |workload| {
                let peak = |report: &Report| report.peak_kib as f64;
                results.ratio(workload, peak, |round| {
                    rival(workload, round, &peak, Best::Least)
                })
            },
        ),
        Bar::at_most(
            0.125,
            "processor time per record: ≤ 1/8 of Parallel Consumer's",
            results,
            "",
            |workload| {
                // There, 10,000 records are the work of seconds in which little happens.
                if workload.starts_with("readme/") {
                    return None;
                }
                let cpu = Report::cpu_per_million;
                results.ratio(workload, cpu, |round| {
                    rival(workload, round, &cpu, Best::Least)
                })
            },
        ),
    ]
}

#[derive(Clone, Copy)]
enum Best {
    Most,
    Least,
}

/// Handlers per second that the concurrency allows.
fn allowed(workload: &str) -> Option<f64> {
    let millis = if workload.starts_with("sleep-1ms") {
        1.0
    } else if workload.starts_with("sleep-10ms") {
        10.0
    } else {
        return None;
    };
    Some(1_000.0 * 1_000.0 / millis)
}

impl Bar {
    fn at_least(
        least: f64,
        asked: &str,
        results: &Results,
        prefix: &str,
        ratio: impl Fn(&str) -> Option<f64>,
    ) -> Self {
        let worst = ratios(results, prefix, ratio).min_by(|(a, _), (b, _)| a.total_cmp(b));
        Self::of(asked, worst, |ratio| ratio >= least)
    }

    fn at_most(
        most: f64,
        asked: &str,
        results: &Results,
        prefix: &str,
        ratio: impl Fn(&str) -> Option<f64>,
    ) -> Self {
        let worst = ratios(results, prefix, ratio).max_by(|(a, _), (b, _)| a.total_cmp(b));
        Self::of(asked, worst, |ratio| ratio <= most)
    }

    fn of(asked: &str, worst: Option<(f64, &str)>, is_met: impl Fn(f64) -> bool) -> Self {
        let measured = worst.map(|(ratio, workload)| format!("{ratio:.3} ({workload})"));
        Self {
            asked: asked.to_owned(),
            measured: measured.unwrap_or_default(),
            is_met: worst.map(|(ratio, _)| is_met(ratio)),
        }
    }
}

fn ratios<'a>(
    results: &'a Results,
    prefix: &str,
    ratio: impl Fn(&str) -> Option<f64>,
) -> impl Iterator<Item = (f64, &'a str)> {
    let mut workloads = results.workloads();
    workloads.retain(|workload| workload.starts_with(prefix));
    let ratios = workloads
        .into_iter()
        .map(move |workload| (ratio(workload), workload));
    ratios.filter_map(|(ratio, workload)| Some((ratio?, workload)))
}

/// A contender that has failed has no order either.
fn no_break(results: &Results) -> Bar {
    let rows: Vec<&Row> = results
        .rows
        .iter()
        .filter(|row| row.id == Id::Keylane)
        .collect();
    let breaks: u64 = rows.iter().map(|row| row.breaks()).sum();
    let failed = rows.iter().filter(|row| row.error.is_some()).count();
    Bar {
        asked: "keylane breaks the order nowhere, and ends everywhere".to_owned(),
        measured: format!("{breaks} records, {failed} workloads failed"),
        is_met: (!rows.is_empty()).then_some(breaks == 0 && failed == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: f64) -> Report {
        Report {
            seconds,
            handled: 1_000,
            cpu_seconds: seconds,
            peak_kib: (seconds * 1_000.0) as u64,
            ..Report::default()
        }
    }

    fn verdict(results: &Results, asked: &str) -> &'static str {
        let bars = bars(results);
        let bar = bars.iter().find(|bar| bar.asked.starts_with(asked));
        bar.expect("a bar").verdict()
    }

    #[test]
    fn the_worst_workload_decides() {
        let mut results = Results::default();
        let asked = "waiting/empty: ≥ 8";
        assert_eq!(verdict(&results, asked), "not measured");
        results.push("waiting/empty/1p", Id::Keylane, 0, Ok(report(1.0)));
        results.push("waiting/empty/1p", Id::Parallel, 0, Ok(report(8.5)));
        assert_eq!(verdict(&results, asked), "met");
        assert_eq!(verdict(&results, "processor"), "met");
        assert_eq!(verdict(&results, "peak"), "MISSED");
        results.push("waiting/empty/12p", Id::Keylane, 0, Ok(report(1.0)));
        results.push("waiting/empty/12p", Id::Parallel, 0, Ok(report(7.5)));
        assert_eq!(verdict(&results, asked), "MISSED");
        assert_eq!(verdict(&results, "processor"), "MISSED");
    }

    #[test]
    fn the_faster_rival_of_the_same_round_counts() {
        let mut results = Results::default();
        results.push("sleep-1ms/1p", Id::Keylane, 0, Ok(report(1.0)));
        results.push("sleep-1ms/1p", Id::Parallel, 0, Ok(report(3.0)));
        assert_eq!(verdict(&results, "sleep: ≥ 2"), "met");
        results.push("sleep-1ms/1p", Id::ParallelReactor, 0, Ok(report(1.5)));
        assert_eq!(verdict(&results, "sleep: ≥ 2"), "MISSED");
    }

    #[test]
    fn a_failure_is_a_miss() {
        let mut results = Results::default();
        results.push("kill", Id::Keylane, 0, Ok(report(1.0)));
        assert_eq!(verdict(&results, "keylane breaks"), "met");
        results.push("kill", Id::Keylane, 1, Err("not done".to_owned()));
        assert_eq!(verdict(&results, "keylane breaks"), "MISSED");
    }
}
