//! How figures are written in a cell.

use crate::measure::Cut;
use crate::number::{grouped, number};
use crate::results::Row;

pub(super) fn time(row: &Row) -> String {
    row.ns()
        .map_or_else(|| absent(row), |ns| figure(row, ns.median))
}

pub(super) fn figure(row: &Row, value: f64) -> String {
    let rough = if row.cut() == Some(Cut::Slow) {
        "~"
    } else {
        ""
    };
    format!("{rough}{}", number(value))
}

pub(super) fn absent(row: &Row) -> String {
    if row.unfit.is_some() {
        "n/a".to_owned()
    } else {
        "stalled".to_owned()
    }
}

pub(super) fn excuse(row: &Row) -> String {
    let handled = row
        .samples
        .values()
        .map(|sample| sample.messages)
        .max()
        .unwrap_or_default();
    row.unfit.map_or_else(
        || format!("stalled after {} messages", grouped(handled as i64)),
        str::to_owned,
    )
}

pub(super) fn breaks(row: Option<&Row>) -> String {
    row.and_then(Row::order_breaks)
        .map_or_else(String::new, |breaks| grouped(breaks as i64))
}

/// In microseconds. Where some were never handled, no quantile would be honest.
pub(super) fn quantiles(row: &Row) -> [String; 3] {
    let latency = row.latency().filter(|_| row.cut().is_none());
    let Some(latency) = latency else {
        return [absent(row), String::new(), String::new()];
    };
    [latency.p50, latency.p99, latency.p999].map(|ns| grouped((ns as f64 / 1_000.0).round() as i64))
}

pub(super) fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, number)
}
