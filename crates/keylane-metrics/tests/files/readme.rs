//! The README lists what is published.

use keylane_metrics::{Kind, Metric};

use crate::names::by_crate;

const README: &str = include_str!("../../README.md");

fn line(metric: &Metric) -> String {
    let labels: Vec<String> = metric
        .label_names()
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    let kind = match metric.kind() {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    format!(
        "| `{}` | {kind} | {} | {} |",
        metric.name(),
        match labels.is_empty() {
            true => "none".to_owned(),
            false => labels.join(", "),
        },
        metric.help()
    )
}

#[test]
fn each_metric_is_in_the_list_with_its_labels() {
    let mut lines = Vec::new();
    for (name, metrics) in by_crate() {
        lines.push(format!("## {name}"));
        lines.extend(metrics.iter().map(line));
    }
    let listed = README
        .lines()
        .filter(|line| line.starts_with("| `keylane_") || line.starts_with("## keylane"));
    let listed: Vec<&str> = listed.collect();
    assert_eq!(
        listed,
        lines,
        "if this is meant, commit in README.md:\n{}",
        lines.join("\n")
    );
}
