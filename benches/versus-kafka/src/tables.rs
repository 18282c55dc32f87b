//! The tables.

use crate::Table;
use crate::bars::Bar;
use crate::number::{grouped, number};
use crate::report::Report;
use crate::results::{Results, Row};

/// The figures, the bars, and what has failed.
pub fn tables(results: &Results, bars: &[Bar]) -> Vec<Table> {
    let mut tables = vec![figures(results), bars_table(bars)];
    tables.extend(failures(results));
    tables
}

fn figures(results: &Results) -> Table {
    let mut table = Table::new(
        "Figures",
        "Medians, from the start of the first handler to the end of the last one. `!`: the order was broken. Warm: the second half of the records.",
        &[
            "workload",
            "contender",
            "records/s",
            "warm",
            "seconds",
            "start-up s",
            "CPU s/M",
            "peak MiB",
            "again",
        ],
    );
    for row in &results.rows {
        let cell = |figure: fn(&Report) -> f64| row.median(figure).map_or_else(String::new, number);
        let broken = if row.breaks() > 0 { " !" } else { "" };
        table.push([
            row.workload.clone(),
            row.id.name().to_owned(),
            cell(Report::rate) + broken,
            cell(|report| report.warm_rate().unwrap_or(report.rate())),
            cell(|report| report.seconds),
            cell(|report| report.startup_seconds),
            cell(Report::cpu_per_million),
            cell(|report| report.peak_kib as f64 / 1_024.0),
            again(row),
        ]);
    }
    table
}

fn again(row: &Row) -> String {
    if row.workload != "kill" {
        return String::new();
    }
    let again = row.median(|report| report.again as f64);
    again.map_or_else(String::new, |again| grouped(again as i64))
}

fn bars_table(bars: &[Bar]) -> Table {
    let mut table = Table::of_words(
        "Bars",
        "The worst value is the measured one; in brackets, where.",
        &["bar", "measured", "verdict"],
    );
    for bar in bars {
        table.push([
            bar.asked.clone(),
            bar.measured.clone(),
            bar.verdict().to_owned(),
        ]);
    }
    table
}

fn failures(results: &Results) -> Option<Table> {
    let mut table = Table::of_words(
        "What went wrong",
        "",
        &["workload", "contender", "out of order", "failed"],
    );
    let mut is_empty = true;
    for row in &results.rows {
        if row.breaks() > 0 || row.error.is_some() {
            is_empty = false;
            table.push([
                row.workload.clone(),
                row.id.name().to_owned(),
                grouped(row.breaks() as i64),
                row.error.clone().unwrap_or_default(),
            ]);
        }
    }
    (!is_empty).then_some(table)
}
