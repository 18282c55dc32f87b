//! The tables.

use crate::Table;
use crate::bars::Bar;
use crate::contenders::Id;
use crate::number::{grouped, number};
use crate::results::{Results, Row};

/// Messages per second.
pub fn rates(results: &Results) -> Table {
    let ids = results.ids();
    let mut head = vec!["workload"];
    head.extend(ids.iter().map(|id| id.name()));
    let mut table = Table::new(
        "Messages per second",
        "handler/keys/workers. Medians. `~`: time was up, the rate until then. `!`: the order was broken.",
        &head,
    );
    for workload in results.workloads() {
        let cells = ids.iter().map(|id| match results.row(workload, *id) {
            Some(row) => rate(row),
            None => String::new(),
        });
        table.push(std::iter::once(workload.to_owned()).chain(cells));
    }
    table
}

fn rate(row: &Row) -> String {
    let Some(rate) = row.rate() else {
        return row
            .error
            .clone()
            .map_or_else(String::new, |_| "failed".to_owned());
    };
    let cut = if row.is_cut() { "~" } else { "" };
    let broken = if row.breaks() > 0 { " !" } else { "" };
    format!("{cut}{}{broken}", number(rate))
}

/// Where the order was broken.
pub fn violations(results: &Results) -> Table {
    let mut table = Table::of_words(
        "Order",
        "Messages that were handled out of their order, again, or beside another one of their key.",
        &["queue", "claims to keep it", "out of order", "of", "failed"],
    );
    for id in results.ids() {
        let rows = || results.rows.iter().filter(move |row| row.id == id);
        let breaks: u64 = rows().map(Row::breaks).sum();
        let samples = rows().flat_map(|row| row.samples.values());
        let handled: u64 = samples.map(|sample| sample.messages).sum();
        let failed = rows().filter_map(|row| {
            let error = row.error.as_ref()?;
            Some(format!("{}: {error}", row.workload))
        });
        table.push([
            id.name().to_owned(),
            if id.keeps_order() { "yes" } else { "no" }.to_owned(),
            grouped(breaks as i64),
            grouped(handled as i64),
            failed.collect::<Vec<_>>().join("; "),
        ]);
    }
    table
}

/// On an idle system.
pub fn latencies(results: &Results) -> Option<Table> {
    let mut table = Table::new(
        "Latency",
        "One message every 10 ms, each with a key of its own; milliseconds from the commit to the handler.",
        &["queue", "p50", "p99", "max", "lost"],
    );
    for latency in &results.latencies {
        let figure = |value: f64| format!("{value:.2}");
        table.push([
            latency.id.name().to_owned(),
            figure(latency.p50),
            figure(latency.p99),
            figure(latency.max),
            grouped(latency.lost as i64),
        ]);
    }
    (!results.latencies.is_empty()).then_some(table)
}

/// A long backlog.
pub fn backlogs(results: &Results) -> Option<Table> {
    let mut table = Table::new(
        "Backlog",
        "keylane, one worker, empty handlers: messages per second in the first and the last tenth.",
        &[
            "messages",
            "keys",
            "accepted/s",
            "first",
            "last",
            "last / first",
            "out of order",
        ],
    );
    for backlog in &results.backlogs {
        let tenth = |tenth: Option<&f64>| tenth.map_or_else(String::new, |rate| number(*rate));
        table.push([
            grouped(backlog.messages as i64),
            grouped(backlog.keys as i64),
            number(backlog.accepted),
            tenth(backlog.tenths.first()),
            tenth(backlog.tenths.last()),
            format!("{:.2}", backlog.ratio),
            grouped(backlog.breaks as i64),
        ]);
    }
    (!results.backlogs.is_empty()).then_some(table)
}

/// The bars.
pub fn bars_table(bars: &[Bar], results: &Results) -> Table {
    let about = format!(
        "The worst value is the measured one; in brackets, where and beside which. A loop of the 5 ms handler runs {} times a second here.",
        number(results.serial)
    );
    let mut table = Table::of_words("Bars", &about, &["bar", "measured", "verdict"]);
    for bar in bars {
        table.push([
            bar.asked.clone(),
            bar.measured.clone(),
            bar.verdict().to_owned(),
        ]);
    }
    table
}

/// The names of the queues.
pub fn contenders(ids: &[Id]) -> String {
    ids.iter()
        .map(|id| id.name())
        .collect::<Vec<_>>()
        .join(", ")
}
