//! The tables.

use crate::Table;
use crate::bars::Bar;
use crate::contenders::Id;
use crate::measure::Sample;
use crate::number::{grouped, number};
use crate::results::{Results, Row};

/// Most commands of one contender in the table.
const COMMANDS: usize = 6;

/// The figures, what the server has done, the bars, and what has failed.
pub fn tables(results: &Results, bars: &[Bar]) -> Vec<Table> {
    let mut tables = Vec::new();
    tables.extend(figures(results));
    tables.extend(leases(results));
    tables.extend(commands(results));
    tables.push(bars_table(bars));
    tables.extend(failures(results));
    tables
}

fn is_of_leases(row: &&Row) -> bool {
    row.id == Id::Keylane
}

fn figures(results: &Results) -> Option<Table> {
    let mut table = Table::new(
        "Messages",
        "Medians. `~`: time was up, the rate until then. `!`: the order was broken. CPU: processor seconds per million messages.",
        &[
            "workload",
            "contender",
            "messages/s",
            "seconds",
            "CPU s/M",
            "server's CPU s/M",
            "order of a key",
        ],
    );
    let rows: Vec<&Row> = results
        .rows
        .iter()
        .filter(|row| !is_of_leases(row))
        .collect();
    for row in &rows {
        let cell = |figure: fn(&Sample) -> f64| row.median(figure).map_or_else(String::new, number);
        table.push([
            row.workload.clone(),
            row.id.name().to_owned(),
            rate(row),
            cell(|sample| sample.seconds),
            cell(Sample::cpu_per_million),
            cell(Sample::server_per_million),
            if row.id.keeps_order() { "yes" } else { "no" }.to_owned(),
        ]);
    }
    (!rows.is_empty()).then_some(table)
}

fn rate(row: &Row) -> String {
    let Some(rate) = row.median(Sample::rate) else {
        return "failed".to_owned();
    };
    let cut = if row.is_cut() { "~" } else { "" };
    let broken = if row.breaks() > 0 { " !" } else { "" };
    format!("{cut}{}{broken}", number(rate))
}

fn leases(results: &Results) -> Option<Table> {
    let about = format!(
        "Held for some time, each with a time to live of {} s, and renewed after each half of it. Percent of one core.",
        crate::leases::TTL.as_secs()
    );
    let mut table = Table::new(
        "Leases",
        about,
        &["leases", "seconds", "this process %", "server %", "lost"],
    );
    let mut is_empty = true;
    for row in results.rows.iter().filter(is_of_leases) {
        let Some(sample) = row.typical() else {
            continue;
        };
        is_empty = false;
        let percent = |share: f64| format!("{:.2}", share * 100.0);
        table.push([
            grouped(sample.messages as i64),
            number(sample.seconds),
            percent(row.median(Sample::share).unwrap_or_default()),
            percent(row.median(Sample::server_share).unwrap_or_default()),
            grouped(row.breaks() as i64),
        ]);
    }
    (!is_empty).then_some(table)
}

fn commands(results: &Results) -> Option<Table> {
    let mut table = Table::new(
        "What the server has done",
        "Of the round with the median rate. What a script calls is in the time of the script (`evalsha`), too.",
        &[
            "workload",
            "contender",
            "command",
            "calls",
            "µs per call",
            "µs per message",
        ],
    );
    let mut is_empty = true;
    for row in &results.rows {
        let Some(sample) = row.typical() else {
            continue;
        };
        for command in sample.commands.iter().take(COMMANDS) {
            is_empty = false;
            let micros = command.micros as f64;
            table.push([
                row.workload.clone(),
                row.id.name().to_owned(),
                command.name.clone(),
                grouped(command.calls as i64),
                number(micros / command.calls.max(1) as f64),
                format!("{:.3}", micros / sample.messages.max(1) as f64),
            ]);
        }
    }
    (!is_empty).then_some(table)
}

fn bars_table(bars: &[Bar]) -> Table {
    let mut table = Table::of_words(
        "Bars",
        "The worst value is the measured one; in brackets, of whom, and beside whom.",
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
