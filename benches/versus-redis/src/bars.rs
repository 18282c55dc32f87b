//! What keylane-redis must reach.

use serde::Serialize;

use crate::contenders::Id;
use crate::measure::Sample;
use crate::results::{Results, Row};

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

    fn of(asked: &str, measured: Option<(f64, String)>, is_passed: impl Fn(f64) -> bool) -> Self {
        Self {
            asked: asked.to_owned(),
            is_passed: measured.as_ref().map(|(value, _)| is_passed(*value)),
            measured: measured.map(|(_, text)| text).unwrap_or_default(),
        }
    }
}

/// All bars.
pub fn bars(results: &Results) -> Vec<Bar> {
    vec![
        no_break(results),
        at_least(
            0.8,
            "streams: ≥ 0.8 × a plain loop over XREADGROUP",
            results,
            "stream/1w",
            &[Id::KeylaneStream],
            &[Id::Xreadgroup],
        ),
        at_least(
            5.0,
            "list: ≥ 5 × the naive loop, with 10,000 in processing",
            results,
            "list/1w",
            &[Id::KeylaneList, Id::KeylaneListPlain],
            &[Id::NaiveList, Id::NaiveListTail],
        ),
        leases(results),
        leased(results),
    ]
}

/// The slowest of ours beside the fastest of theirs.
fn at_least(
    least: f64,
    asked: &str,
    results: &Results,
    workload: &str,
    ours: &[Id],
    theirs: &[Id],
) -> Bar {
    let ratios = ours.iter().flat_map(|id| {
        let ratios = theirs.iter().filter_map(|other| {
            let ratio = results.ratio(workload, Sample::rate, *id, *other)?;
            Some((ratio, *id, *other))
        });
        ratios.collect::<Vec<_>>()
    });
    let worst = ratios.min_by(|(a, ..), (b, ..)| a.total_cmp(b));
    let worst = worst.map(|(ratio, id, other)| {
        let text = format!("{ratio:.2} ({}, {})", id.name(), other.name());
        (ratio, text)
    });
    Bar::of(asked, worst, |ratio| ratio >= least)
}

fn leases(results: &Results) -> Bar {
    let row = results.row("leases", Id::Keylane);
    let shares = row.and_then(|row| {
        let (ours, theirs) = (
            row.median(Sample::share)?,
            row.median(Sample::server_share)?,
        );
        let leases = row.typical()?.messages;
        let text = format!(
            "{:.1} % of a core here and {:.1} % in the server, {leases} leases",
            ours * 100.0,
            theirs * 100.0
        );
        Some((ours.max(theirs), text))
    });
    let asked = "leases: 100,000 held and renewed at ≤ 5 % of a core, here and in the server";
    Bar::of(asked, shares, |share| share <= 0.05)
}

fn leased(results: &Results) -> Bar {
    let time = |sample: &Sample| 1.0 / sample.rate();
    let ratio = results.ratio("leased-lanes", time, Id::LanesLeased, Id::LanesAlone);
    let asked = "leased lanes: a message at most 1.3 × one without, once its key is held";
    let measured = ratio.map(|ratio| (ratio, format!("{ratio:.2}")));
    Bar::of(asked, measured, |ratio| ratio <= 1.3)
}

/// A contender that has failed has no order either.
fn no_break(results: &Results) -> Bar {
    let rows: Vec<&Row> = results
        .rows
        .iter()
        .filter(|row| row.id.is_keylane())
        .collect();
    let breaks: u64 = rows.iter().map(|row| row.breaks()).sum();
    let failed = rows.iter().filter(|row| row.error.is_some()).count();
    let is_whole = breaks == 0 && failed == 0;
    let text = format!("{breaks} broken or lost, {failed} workloads failed");
    Bar {
        asked: "keylane breaks the order nowhere, and loses no lease".to_owned(),
        measured: text,
        is_passed: (!rows.is_empty()).then_some(is_whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64) -> Result<Sample, String> {
        Ok(Sample {
            messages: 1_000,
            seconds,
            cpu_seconds: 1.0,
            server_seconds: 0.5,
            is_cut: false,
            breaks: 0,
            commands: Vec::new(),
        })
    }

    fn verdict(results: &Results, asked: &str) -> &'static str {
        let bars = bars(results);
        let bar = bars.iter().find(|bar| bar.asked.starts_with(asked));
        bar.expect("a bar").verdict()
    }

    #[test]
    fn our_slowest_is_set_beside_their_fastest() {
        let mut results = Results::default();
        assert_eq!(verdict(&results, "list"), "not measured");
        results.push("list/1w", Id::KeylaneList, 0, sample(1.0));
        results.push("list/1w", Id::NaiveListTail, 0, sample(20.0));
        assert_eq!(verdict(&results, "list"), "pass");
        results.push("list/1w", Id::NaiveList, 0, sample(6.0));
        assert_eq!(verdict(&results, "list"), "pass");
        results.push("list/1w", Id::KeylaneListPlain, 0, sample(1.5));
        assert_eq!(verdict(&results, "list"), "MISS");
    }

    #[test]
    fn the_busier_process_counts() {
        let mut results = Results::default();
        results.push("leases", Id::Keylane, 0, sample(30.0));
        assert_eq!(verdict(&results, "leases"), "pass");
        results.push("leases", Id::Keylane, 0, sample(15.0));
        assert_eq!(verdict(&results, "leases"), "MISS");
    }

    #[test]
    fn a_failure_is_a_miss() {
        let mut results = Results::default();
        results.push("list/1w", Id::KeylaneList, 0, sample(1.0));
        assert_eq!(verdict(&results, "keylane breaks"), "pass");
        results.push("list/1w", Id::KeylaneList, 1, Err("not done".to_owned()));
        assert_eq!(verdict(&results, "keylane breaks"), "MISS");
    }
}
