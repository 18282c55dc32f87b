//! Tables, for the terminal and as Markdown.

use std::fmt::Write as _;

use crate::against::Compared;
use crate::bars::Bar;
use crate::contenders::Id;
use crate::disciplines::{self, Discipline};
use crate::footprint::Footprint;
use crate::idle::Idle;
use crate::keys::Keys;
use crate::measure::Cut;
use crate::number::{grouped, number};
use crate::pull::{self, Pull};
use crate::rate_keys::RateKeys;
use crate::results::{Results, Row};
use crate::tower::{self, Front};
use crate::work::Handler;
use crate::workload::Shape;

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    title: String,
    about: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Whether all but the first column are figures.
    figures: bool,
}

impl Table {
    fn new(title: impl Into<String>, about: impl Into<String>, head: &[&str]) -> Self {
        Self {
            title: title.into(),
            about: about.into(),
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
            figures: true,
        }
    }

    fn of_words(title: &str, about: &str, head: &[&str]) -> Self {
        Self {
            figures: false,
            ..Self::new(title, about, head)
        }
    }

    fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// For the terminal.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let mut text = format!("{}\n", self.title);
        if !self.about.is_empty() {
            let _ = writeln!(text, "{}", self.about);
        }
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        for cells in [&self.head, &rule].into_iter().chain(&self.rows) {
            let _ = writeln!(text, "  {}", self.line(cells, &widths, "  ").trim_end());
        }
        text
    }

    /// For a document.
    pub fn markdown(&self) -> String {
        let widths = self.widths();
        let mut text = format!("### {}\n\n", self.title);
        if !self.about.is_empty() {
            let _ = writeln!(text, "{}\n", self.about);
        }
        let rule: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(i, width)| {
                if self.is_figure(i) {
                    "-".repeat(width.max(&2) - 1) + ":"
                } else {
                    "-".repeat(*width)
                }
            })
            .collect();
        for cells in [&self.head, &rule].into_iter().chain(&self.rows) {
            let _ = writeln!(text, "| {} |", self.line(cells, &widths, " | "));
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize], between: &str) -> String {
        let padded: Vec<String> = cells
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(i, (cell, width))| {
                let space = " ".repeat(width.saturating_sub(cell.chars().count()));
                if self.is_figure(i) {
                    format!("{space}{cell}")
                } else {
                    format!("{cell}{space}")
                }
            })
            .collect();
        padded.join(between)
    }

    fn is_figure(&self, column: usize) -> bool {
        self.figures && column > 0
    }

    fn widths(&self) -> Vec<usize> {
        (0..self.head.len())
            .map(|column| {
                [&self.head]
                    .into_iter()
                    .chain(&self.rows)
                    .filter_map(|cells| cells.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or_default()
            })
            .collect()
    }
}

/// What the contenders are.
pub fn contenders(ids: &[Id]) -> Table {
    let mut table = Table::of_words("Contenders", "", &["contender", "order", "what it is"]);
    for id in ids {
        let order = if id.keeps_order() { "kept" } else { "not kept" };
        table.push([
            id.name().to_owned(),
            order.to_owned(),
            id.about().to_owned(),
        ]);
    }
    table
}

/// One table per workload.
pub fn details(results: &Results) -> Vec<Table> {
    let mut tables = Vec::new();
    for (workload, shape) in results.workloads() {
        if !matches!(shape, Shape::Throughput { .. } | Shape::InFlight) {
            continue;
        }
        let head = [
            "contender",
            "ns/msg",
            "min..max",
            "msg/s",
            "× spawn",
            "× floor ns",
            "order breaks",
        ];
        let mut table = Table::new(workload, "", &head);
        let mut excuses: Vec<String> = Vec::new();
        for row in results.rows_of(workload, "") {
            let name = row.id.name().to_owned();
            let Some(ns) = row.ns() else {
                excuses.push(format!("{name}: {}", excuse(row)));
                table.push([name, absent(row)]);
                continue;
            };
            table.push([
                name,
                figure(row, ns.median),
                format!("{}..{}", number(ns.min), number(ns.max)),
                number(1e9 / ns.median),
                optional(results.ratio_to_spawn(row)),
                optional(results.ratio_to_floor(row)),
                breaks(Some(row)),
            ]);
        }
        table.about = excuses.join("; ");
        tables.push(table);
    }
    tables
}

/// The same at a glance: time per message by key count, a table per handler.
pub fn overviews(results: &Results) -> Vec<Table> {
    let mut tables = Vec::new();
    for handler in [
        Handler::Empty,
        Handler::Yield,
        Handler::Spin,
        Handler::Sleep,
    ] {
        for producers in [1, 4] {
            tables.extend(overview(results, handler, producers));
        }
    }
    tables
}

fn overview(results: &Results, wanted: Handler, by: u64) -> Option<Table> {
    let columns: Vec<(&str, Keys)> = results
        .workloads()
        .into_iter()
        .filter_map(|(name, shape)| match shape {
            Shape::Throughput {
                handler,
                keys,
                producers,
                messages,
            } if handler == wanted && producers == by && messages < 10_000_000 => {
                Some((name, keys))
            }
            _ => None,
        })
        .collect();
    let mut head = vec!["contender".to_owned()];
    head.extend(columns.iter().map(|(_, keys)| keys.label()));
    head.push("order breaks".to_owned());
    let producers = if by == 1 {
        "1 producer".to_owned()
    } else {
        format!("{by} producers")
    };
    let title = format!(
        "Time per message by keys: {} handler, {producers}",
        wanted.label()
    );
    let about = "Nanoseconds, medians. `~`: cut for time, the rate until then.";
    let names: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(title, about, &names);
    for id in Id::ALL {
        let rows: Vec<&Row> = columns
            .iter()
            .filter_map(|(name, _)| results.row(name, "", *id))
            .collect();
        if rows.is_empty() {
            continue;
        }
        let mut cells = vec![id.name().to_owned()];
        cells.extend(columns.iter().map(|(name, _)| {
            let row = results.row(name, "", *id);
            row.map_or_else(String::new, |row| match row.ns() {
                Some(ns) => figure(row, ns.median),
                None => absent(row),
            })
        }));
        let breaks: u64 = rows.iter().filter_map(|row| row.order_breaks()).sum();
        cells.push(grouped(breaks as i64));
        table.push(cells);
    }
    (!columns.is_empty() && !table.rows.is_empty()).then_some(table)
}

/// What a blocked or a hot key does to the others.
pub fn disturbed(results: &Results) -> Vec<Table> {
    let mut tables = Vec::new();
    if results
        .rows
        .iter()
        .any(|row| row.workload == "blocked-throughput")
    {
        let mut table = Table::new(
            "One key blocked for ever beside 10,000 others: throughput",
            "Empty handlers, one producer for the others; the blocked key has 2,000 messages.",
            &[
                "contender",
                "calm ns/msg",
                "blocked ns/msg",
                "kept",
                "order breaks",
            ],
        );
        for calm in results.rows_of("blocked-throughput", "calm") {
            let blocked = results.row(&calm.workload, "blocked", calm.id);
            table.push([
                calm.id.name().to_owned(),
                time(calm),
                blocked.map_or_else(String::new, time),
                blocked
                    .and_then(|blocked| calm.over(blocked, |sample| sample.ns_per_message))
                    .map_or_else(String::new, |kept| format!("{:.0} %", kept * 100.0)),
                breaks(blocked),
            ]);
        }
        tables.push(table);
    }
    for (workload, condition, title, about) in [
        (
            "blocked-latency",
            "blocked",
            "One key blocked for ever beside 10,000 others: latency",
            "Open loop, 50,000 messages a second, empty handlers; µs from the intended time.",
        ),
        (
            "hot-latency",
            "hot",
            "A hot key with a backlog of 2,000 beside 2,000 cold ones: latency of the cold",
            "Open loop, 20,000 messages a second, handlers of 1 ms; µs from the intended time.",
        ),
    ] {
        if !results.rows.iter().any(|row| row.workload == workload) {
            continue;
        }
        let after = |quantile: &str| format!("{condition} {quantile}");
        let (p50, p99, p999) = (after("p50"), after("p99"), after("p99.9"));
        let head = [
            "contender",
            "calm p50",
            "calm p99",
            "calm p99.9",
            &p50,
            &p99,
            &p999,
            "p99 grows",
            "order breaks",
        ];
        let mut table = Table::new(title, about, &head);
        for calm in results.rows_of(workload, "calm") {
            let after = results.row(workload, condition, calm.id);
            let mut cells = vec![calm.id.name().to_owned()];
            cells.extend(quantiles(calm));
            cells.extend(after.map_or_else(Default::default, quantiles));
            let p99 = |row: &Row| row.latency().map(|latency| latency.p99 as f64);
            let grows = after
                .filter(|row| row.cut().is_none())
                .and_then(|row| Some(p99(row)? / p99(calm)?));
            cells.push(grows.map_or_else(String::new, |grows| format!("{grows:.2}×")));
            cells.push(breaks(after));
            table.push(cells);
        }
        tables.push(table);
    }
    tables
}

/// Questions and answers.
pub fn round_trips(results: &Results) -> Option<Table> {
    let mut table = Table::new(
        "Idle round trip: one message sent, its answer awaited, then the next",
        "Asked by a task of the runtime, or by a thread outside of it. Mean and quantiles.",
        &[
            "contender",
            "task ns",
            "p50",
            "p99",
            "× spawn",
            "outside ns",
            "p50",
            "p99",
            "× spawn",
        ],
    );
    for row in results.rows_of("receipt/inside", "") {
        let mut cells = vec![row.id.name().to_owned()];
        for workload in ["receipt/inside", "receipt/outside"] {
            let row = results.row(workload, "", row.id);
            let latency = row.and_then(Row::latency);
            // Less is better here, as in the other columns.
            let ratio = row
                .and_then(|row| results.ratio_to_spawn(row))
                .map(|ratio| 1.0 / ratio);
            cells.push(row.map_or_else(String::new, time));
            cells.push(latency.map_or_else(String::new, |latency| number(latency.p50 as f64)));
            cells.push(latency.map_or_else(String::new, |latency| number(latency.p99 as f64)));
            cells.push(optional(ratio));
        }
        table.push(cells);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Bytes and allocations.
pub fn footprints(footprints: &[Footprint]) -> Option<Table> {
    let mut table = Table::new(
        "Bytes and allocations",
        "Bytes asked of the allocator: per waiting message of 24 bytes (least..most over several \
         queue lengths), per live lane (its message not counted), per handler in flight, per \
         handler in flight whose future is 1 KiB larger, and left per key that is done. Then \
         allocations per message once warm, with 1 key, 1,000 keys, all distinct.",
        &[
            "contender",
            "parked",
            "lane",
            "in flight",
            "in flight 1 KiB",
            "idle key",
            "alloc 1",
            "alloc 1k",
            "alloc distinct",
        ],
    );
    for print in footprints {
        let least = print
            .parked
            .iter()
            .map(|parked| parked.bytes)
            .reduce(f64::min);
        let parked = least.zip(print.worst_parked()).map(|(least, most)| {
            if (most - least).abs() < 0.5 {
                number(most)
            } else {
                format!("{}..{}", number(least), number(most))
            }
        });
        let allocations = |keys| {
            print
                .allocations(keys)
                .map_or_else(String::new, |count| format!("{count:.4}"))
        };
        table.push([
            print.contender.clone(),
            parked.unwrap_or_default(),
            optional(print.live_lane_bytes),
            optional(print.in_flight_bytes),
            optional(print.in_flight_wide_bytes),
            optional(print.idle_key_bytes),
            allocations("1"),
            allocations("1k"),
            allocations("distinct"),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// What is remembered of keys under a rate.
pub fn rate_keys(rates: &[RateKeys]) -> Option<Table> {
    let mut table = Table::new(
        "Keys seen once, under `rate_per_key`",
        "Empty handler, one producer, every message with a key of its own. Most bytes at once, and a second \
         after the last message, over those before the dispatcher; lanes at the last message, and a second \
         after it.",
        &[
            "starts per second and key",
            "keys",
            "ns/msg",
            "most bytes",
            "lanes",
            "bytes, 1 s later",
            "lanes, 1 s later",
        ],
    );
    for rate in rates {
        let per_second = rate.per_second.map(|rate| grouped(i64::from(rate)));
        table.push([
            per_second.unwrap_or_else(|| "no rate".to_owned()),
            grouped(rate.keys as i64),
            number(rate.ns_per_message),
            grouped(rate.peak_bytes as i64),
            grouped(rate.lanes as i64),
            grouped(rate.bytes_after as i64),
            grouped(rate.lanes_after as i64),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Dispatchers at rest.
pub fn idle(idle: &[Idle]) -> Option<Table> {
    let mut table = Table::new(
        "Dispatchers at rest",
        "Default settings. Bytes of each before its first message and after it; how long all of them \
         together keep the runtime busy per second; how long all of them take to drain, asked at once.",
        &[
            "dispatchers",
            "bytes, new",
            "bytes, used",
            "busy ms/s",
            "drain ms",
        ],
    );
    for idle in idle {
        table.push([
            grouped(idle.dispatchers as i64),
            number(idle.new_bytes),
            number(idle.used_bytes),
            number(idle.busy_ms_per_second),
            number(idle.drain_ms),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Old against new.
pub fn against(compared: &[Compared]) -> Table {
    let mut table = Table::new(
        "Old against new",
        "Medians of both, the median of the ratios of new to old by pair, and their quartiles.",
        &["figure", "old", "new", "new / old", "quartiles"],
    );
    for compared in compared {
        let [lower, median, upper] = compared.ratio.map(|ratio| format!("{ratio:.3}"));
        table.push([
            compared.name.clone(),
            number(compared.old),
            number(compared.new),
            median,
            format!("{lower}..{upper}"),
        ]);
    }
    table
}

/// Pull queues beside busy keys.
pub fn pulls(pulls: &[Pull]) -> Option<Table> {
    let mut table = Table::new(
        "Pull queue: dequeue and complete beside busy keys",
        "Nanoseconds of both together, by the number of messages that are parked because their key is \
         leased (over up to 1,000 such keys). The naive list is searched for a key that is free.",
        &["queue", "1 parked", "1,000", "100,000"],
    );
    let mut names: Vec<&str> = pulls.iter().map(|pull| pull.queue).collect();
    names.dedup();
    names.truncate(2);
    for name in names {
        let figures = pull::PARKED.into_iter().map(|parked| {
            let mut pulls = pulls.iter();
            let pull = pulls.find(|pull| pull.queue == name && pull.parked == parked);
            optional(pull.map(|pull| pull.nanos))
        });
        table.push(std::iter::once(name.to_owned()).chain(figures));
    }
    (!table.rows.is_empty()).then_some(table)
}

/// What stands in front of a service.
pub fn fronts(fronts: &[Front]) -> Option<Table> {
    let mut table = Table::new(
        "In front of a service: one request, 64 callers, 10,000 keys",
        "Nanoseconds per request, and in brackets the ratio to `ConcurrencyLimit` in the same round, which \
         keeps no order. `Buffer` keeps the order of all requests, and sends each to a worker.",
        &["in front of it", "service ready at once", "pending once"],
    );
    for stack in tower::STACKS {
        let figures = tower::INNER.into_iter().map(|inner| {
            let mut fronts = fronts.iter();
            let front = fronts.find(|front| front.stack == stack && front.inner == inner);
            front.map(|front| format!("{:.0} ({:.2})", front.nanos, front.ratio))
        });
        let figures: Option<Vec<String>> = figures.collect();
        if let Some(figures) = figures {
            table.push(std::iter::once(stack.to_owned()).chain(figures));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// What each discipline costs.
pub fn disciplines(costs: &[Discipline]) -> Option<Table> {
    let mut table = Table::new(
        "What each discipline costs over plain FIFO: empty handler, 1 producer",
        "Nanoseconds per message *sent*, and in brackets the ratio to plain FIFO measured right before; \
         behind it the part of the messages that a handler was given, by the number of keys. `~`: cut.",
        &[
            "keylane with",
            "1 key",
            "handled",
            "1,000 keys",
            "handled",
            "100,000 keys",
            "handled",
            "order breaks",
        ],
    );
    let mut names: Vec<&str> = Vec::new();
    for cost in costs {
        if !names.contains(&cost.name) {
            names.push(cost.name);
        }
    }
    for name in names {
        let of_name = || costs.iter().filter(|cost| cost.name == name);
        let mut cells = vec![name.to_owned()];
        for keys in disciplines::KEYS {
            let cost = of_name().find(|cost| cost.keys == keys);
            cells.push(cost.map_or_else(String::new, |cost| {
                let rough = if cost.cut { "~" } else { "" };
                let ns = number(cost.ns_per_message);
                format!("{rough}{ns} ({:.2})", cost.ratio_to_fifo)
            }));
            cells.push(cost.map_or_else(String::new, |cost| {
                format!("{} %", number(100.0 * cost.handled))
            }));
        }
        let breaks: u64 = of_name().map(|cost| cost.order_breaks).sum();
        cells.push(grouped(breaks as i64));
        table.push(cells);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The bars.
pub fn bars(bars: &[Bar]) -> Table {
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

fn time(row: &Row) -> String {
    row.ns()
        .map_or_else(|| absent(row), |ns| figure(row, ns.median))
}

fn figure(row: &Row, value: f64) -> String {
    let rough = if row.cut() == Some(Cut::Slow) {
        "~"
    } else {
        ""
    };
    format!("{rough}{}", number(value))
}

fn absent(row: &Row) -> String {
    if row.unfit.is_some() {
        "n/a".to_owned()
    } else {
        "stalled".to_owned()
    }
}

fn excuse(row: &Row) -> String {
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

fn breaks(row: Option<&Row>) -> String {
    row.and_then(Row::order_breaks)
        .map_or_else(String::new, |breaks| grouped(breaks as i64))
}

/// In microseconds. Where some were never handled, no quantile would be honest.
fn quantiles(row: &Row) -> [String; 3] {
    let latency = row.latency().filter(|_| row.cut().is_none());
    let Some(latency) = latency else {
        return [absent(row), String::new(), String::new()];
    };
    [latency.p50, latency.p99, latency.p999].map(|ns| grouped((ns as f64 / 1_000.0).round() as i64))
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_in_both_forms() {
        let mut table = Table::new("T", "", &["name", "ns"]);
        table.push(["a".to_owned(), "1,000".to_owned()]);
        assert_eq!(
            table.text(),
            "T\n  name     ns\n  ────  ─────\n  a     1,000\n"
        );
        assert_eq!(
            table.markdown(),
            "### T\n\n| name |    ns |\n| ---- | ----: |\n| a    | 1,000 |\n"
        );
    }
}
