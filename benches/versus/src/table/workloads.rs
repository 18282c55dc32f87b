//! Tables of what the workloads measured.

use super::cells::{absent, breaks, excuse, figure, optional, quantiles, time};
use super::grid::Table;
use crate::contenders::Id;
use crate::number::{grouped, number};
use crate::results::{Results, Row};
use crate::work::Handler;
use crate::workload::{self, HOT, IN_PLACE, Setting, Shape};

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
        if !matches!(
            shape,
            Shape::Throughput { .. } | Shape::Set(_) | Shape::InFlight
        ) {
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
    workload::series()
        .filter_map(|(handler, producers)| overview(results, handler, producers))
        .collect()
}

fn overview(results: &Results, wanted: Handler, by: u64) -> Option<Table> {
    let columns = results.series(wanted, by);
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

/// One thing set differently.
pub fn settings(results: &Results) -> Option<Table> {
    let mut table = Table::new(
        "One thing set differently: empty handler, 1,000 keys, 1 producer",
        "Nanoseconds per message, medians: everything on one thread; one message may wait \
         (static-64: one for each worker); one handler at a time. `~`: cut for time, the rate \
         until then.",
        &[
            "contender",
            "current thread",
            "capacity 1",
            "concurrency 1",
            "order breaks",
        ],
    );
    for id in Id::ALL {
        let rows = Setting::ALL.map(|setting| results.row(setting.workload(), "", *id));
        if rows.iter().all(Option::is_none) {
            continue;
        }
        let mut cells = vec![id.name().to_owned()];
        cells.extend(rows.map(|row| row.map_or_else(String::new, time)));
        let breaks = rows.into_iter().flatten().filter_map(Row::order_breaks);
        cells.push(grouped(breaks.sum::<u64>() as i64));
        table.push(cells);
    }
    (!table.rows.is_empty()).then_some(table)
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
        (
            "blocking-latency",
            "blocking",
            "One key of 100 blocks its thread for 1 ms: wait of the others",
            "Open loop, 20,000 messages a second, otherwise empty handlers; µs from the send to \
             the start of the handler. The blocking key has as many messages as each of the others.",
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

/// What keys that always have messages do to the others.
pub fn hot_keys(results: &Results) -> Vec<Table> {
    let [(calm, _), (two, _), (all, _)] = HOT;
    let mut tables = Vec::new();
    for handler in ["empty", "sleep-1ms"] {
        let workload = format!("hot-throughput/{handler}");
        let mut table = Table::new(
            format!("Hot keys that always have messages beside 1,000 cold ones: {handler} handler"),
            "Throughput of the cold keys, one producer for them: without hot keys; with as many as \
             there are worker threads; with as many as there may be handlers at once. In percent, \
             what they keep.",
            &[
                "contender",
                "calm ns/msg",
                "2 hot ns/msg",
                "kept",
                "64 hot ns/msg",
                "kept",
                "order breaks",
            ],
        );
        for row in results.rows_of(&workload, calm) {
            let mut cells = vec![row.id.name().to_owned(), time(row)];
            for condition in [two, all] {
                let hot = results.row(&workload, condition, row.id);
                let kept = hot.and_then(|hot| row.over(hot, |sample| sample.ns_per_message));
                cells.push(hot.map_or_else(String::new, time));
                cells.push(kept.map_or_else(String::new, |kept| format!("{:.0} %", kept * 100.0)));
            }
            let hot = [two, all].map(|condition| results.row(&workload, condition, row.id));
            let broken = hot.into_iter().flatten().filter_map(Row::order_breaks);
            cells.push(grouped(broken.sum::<u64>() as i64));
            table.push(cells);
        }
        if !table.rows.is_empty() {
            tables.push(table);
        }
    }
    tables
}

/// Handlers that block in place.
pub fn in_place(results: &Results) -> Option<Table> {
    let mut table = Table::new(
        "200 messages of distinct keys, each blocks its thread for 50 ms in place",
        "Two workers, up to 64 handlers at once; seconds until all are handled. `~`: cut, at the \
         rate until then. Four rounds of 50 ms are the least.",
        &["contender", "seconds", "× spawn", "order breaks"],
    );
    for row in results.rows_of("block-in-place", "") {
        // Less is better here.
        let ratio = results.ratio_to_spawn(row).map(|ratio| 1.0 / ratio);
        let seconds = row.ns().map(|ns| ns.median * IN_PLACE as f64 / 1e9);
        table.push([
            row.id.name().to_owned(),
            seconds.map_or_else(|| absent(row), |seconds| figure(row, seconds)),
            optional(ratio),
            breaks(Some(row)),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
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
