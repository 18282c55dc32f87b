//! Reads the metrics and labels out of an expression of PromQL. It knows as much of the language as
//! the dashboard and the alerts use.

use std::collections::BTreeSet;

use keylane_metrics::{Kind, Metric};

/// What Prometheus adds to each series, and to the buckets of a histogram.
const ADDED: [&str; 3] = ["instance", "job", "le"];

/// What an expression asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// The names of series.
    pub(crate) series: BTreeSet<String>,
    /// The labels in matchers and in groupings.
    pub(crate) labels: BTreeSet<String>,
    /// The labels that must have one certain value.
    pub(crate) values: BTreeSet<(String, String)>,
}

impl Query {
    pub(crate) fn parse(expression: &str) -> Self {
        let mut query = Self::default();
        let mut rest = expression;
        let mut last = "";
        while let Some(character) = rest.chars().next() {
            let length = rest.chars().take_while(|c| is_of_name(*c)).count();
            if length > 0 {
                last = &rest[..length];
                if last.starts_with("keylane_") {
                    query.series.insert(last.to_owned());
                }
                rest = &rest[length..];
            } else if character == '{' {
                let end = rest.find('}').expect("a closing brace");
                query.matchers(&rest[1..end]);
                (last, rest) = ("", &rest[end + 1..]);
            } else if character == '(' && ["by", "without", "on", "ignoring"].contains(&last) {
                let end = rest.find(')').expect("a closing bracket");
                let names = rest[1..end].split(',').map(str::trim);
                query.labels.extend(names.map(str::to_owned));
                (last, rest) = ("", &rest[end + 1..]);
            } else {
                if character != ' ' {
                    last = "";
                }
                rest = &rest[character.len_utf8()..];
            }
        }
        query
    }

    /// No value has a comma.
    fn matchers(&mut self, matchers: &str) {
        for matcher in matchers.split(',').filter(|matcher| !matcher.is_empty()) {
            let length = matcher.chars().take_while(|c| is_of_name(*c)).count();
            let (label, rest) = matcher.split_at(length);
            self.labels.insert(label.to_owned());
            if let Some(value) = rest.strip_prefix("=\"") {
                let value = value.trim_end_matches('"');
                self.values.insert((label.to_owned(), value.to_owned()));
            }
        }
    }

    /// The metrics of its series.
    ///
    /// # Panics
    ///
    /// Panics if a series is not published, or if no metric has one of the labels.
    pub(crate) fn metrics(&self, all: &[Metric]) -> Vec<Metric> {
        let of = |series: &String| {
            let metric = all.iter().find(|metric| names(metric).contains(series));
            *metric.unwrap_or_else(|| panic!("{series} is not published"))
        };
        let metrics: Vec<Metric> = self.series.iter().map(of).collect();
        for label in &self.labels {
            let has = |metric: &Metric| metric.label_names().contains(&label.as_str());
            assert!(
                ADDED.contains(&label.as_str()) || metrics.iter().any(has),
                "none of {:?} has the label {label}",
                self.series
            );
        }
        metrics
    }
}

/// The names of the series of a metric.
fn names(metric: &Metric) -> Vec<String> {
    let name = metric.name();
    match metric.kind() {
        Kind::Counter | Kind::Gauge => vec![name.to_owned()],
        Kind::Histogram => ["bucket", "sum", "count"]
            .map(|part| format!("{name}_{part}"))
            .to_vec(),
    }
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == ':'
}

#[test]
fn the_reader_finds_series_labels_and_values() {
    let query = Query::parse(
        "keylane_a > 0 and sum without (outcome) (increase(keylane_b_total{kind=\"x\",\
         source=~\"$source\"}[10m])) == 0",
    );
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected = Query {
        series: set(&["keylane_a", "keylane_b_total"]),
        labels: set(&["kind", "outcome", "source"]),
        values: BTreeSet::from([("kind".to_owned(), "x".to_owned())]),
    };
    assert_eq!(query, expected);
    let query = Query::parse("sum by (le, dispatcher) (rate(keylane_wait_seconds_bucket[5m]))");
    assert_eq!(query.labels, set(&["dispatcher", "le"]));
}
