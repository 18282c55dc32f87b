//! Tables of what was measured beside the workloads: memory, rest, and parts alone.

use super::cells::optional;
use super::grid::Table;
use crate::disciplines::{self, Discipline};
use crate::footprint::Footprint;
use crate::idle::Idle;
use crate::number::{grouped, number};
use crate::pull::{self, Pull};
use crate::rate_keys::RateKeys;
use crate::source::{self, Fed};
use crate::tower::{self, Front};

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

/// A source in memory, beside `send` and `submit`.
pub fn fed(fed: &[Fed]) -> Option<Table> {
    let mut table = Table::new(
        "A source in memory, beside send and submit",
        "Nanoseconds per message, from the first that comes in to the last that has settled, and in brackets \
         the ratio to `send` in the same round. The source hands over 256 messages at once. `submit` awaits \
         every receipt, with up to 8,192 of them open, which is as many as the source may hold.",
        &["way", "1 key", "1,000 keys", "100,000 keys"],
    );
    for way in source::WAYS {
        let figures = source::KEYS.into_iter().map(|keys| {
            let mut fed = fed.iter();
            let found = fed.find(|fed| fed.way == way && fed.keys == keys);
            found.map_or_else(String::new, |fed| {
                format!("{:.0} ({:.2})", fed.nanos, fed.ratio)
            })
        });
        table.push(std::iter::once(way.to_owned()).chain(figures));
    }
    (!fed.is_empty()).then_some(table)
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
