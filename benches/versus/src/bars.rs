//! The bars: what keylane promised itself to reach, and whether it did.

use serde::Serialize;

use crate::contenders::Id;
use crate::footprint::{BARE_TASK, Footprint, KEY_BYTES, MESSAGE_BYTES};
use crate::keys::Keys;
use crate::measure::Sample;
use crate::number::number;
use crate::results::{Results, Row};
use crate::work::Handler;
use crate::workload::Shape;

/// One bar.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What is asked.
    pub asked: String,
    /// What was measured, and where it was worst.
    pub measured: String,
    /// Whether that is enough; none where it was not measured.
    pub reached: Option<bool>,
}

impl Bar {
    /// For the table.
    pub fn verdict(&self) -> &'static str {
        match self.reached {
            Some(true) => "pass",
            Some(false) => "MISS",
            None => "not measured",
        }
    }
}

/// Every bar, in the order in which they were set.
pub fn bars(results: &Results) -> Vec<Bar> {
    let mut bars = vec![
        at_least(
            "empty handler: ≥ 3× spawn, at every key count",
            3.0,
            empty(results)
                .filter_map(|row| Some((results.ratio_to_spawn(row)?, row.workload.clone()))),
        ),
        at_most(
            "empty handler: ≤ 1.5× the floor's time, at every key count",
            1.5,
            empty(results)
                .filter_map(|row| Some((results.ratio_to_floor(row)?, row.workload.clone()))),
        ),
    ];
    bars.extend(rivals(results));
    bars.extend(waiting(results));
    bars.extend(beside(results));
    bars.extend(flat(results));
    bars.extend(round_trips(results));
    bars.extend(footprint(results));
    bars.extend(remembered(results));
    bars.extend(fronts(results));
    bars.extend(disciplines(results));
    bars
}

/// In front of a service.
fn fronts(results: &Results) -> Vec<Bar> {
    let beside = |rival: &'static str| {
        let of = |stack: &'static str| results.fronts.iter().filter(move |f| f.stack == stack);
        of("keylane").filter_map(move |ours| {
            let theirs = of(rival).find(|front| front.inner == ours.inner)?;
            Some((ours.ratio / theirs.ratio, format!("service {}", ours.inner)))
        })
    };
    vec![
        at_most(
            "in front of a service: ≤ 1.5× `ConcurrencyLimit`, which keeps no order",
            1.5,
            beside("ConcurrencyLimit"),
        ),
        at_most(
            "in front of a service: below `Buffer`",
            1.0,
            beside("Buffer"),
        ),
    ]
}

/// At 1,000 keys, each by the start of its name.
fn disciplines(results: &Results) -> Vec<Bar> {
    [
        ("coalesce", 2.0),
        ("batch", 2.0),
        ("sequence", 3.0),
        ("expire_after", 2.0),
    ]
    .into_iter()
    .map(|(which, bar)| {
        let costs = results.disciplines.iter();
        let costs = costs.filter(|cost| cost.keys == 1_000 && cost.name.starts_with(which));
        at_most(
            &format!("{which}, 1,000 keys: ≤ {bar}× plain FIFO"),
            bar,
            costs.map(|cost| (cost.ratio_to_fifo, cost.name.to_owned())),
        )
    })
    .collect()
}

/// Of keys under a rate.
fn remembered(results: &Results) -> Vec<Bar> {
    let rates = || {
        let rates = results.rate_keys.iter();
        rates.filter_map(|rate| Some((rate, format!("{} per second", rate.per_second?))))
    };
    vec![
        at_most(
            "keys seen once, under a rate: ≤ 64 MB over the baseline",
            64e6,
            rates().map(|(rate, place)| (rate.peak_bytes as f64, place)),
        ),
        at_most(
            "the same, a second after the last message: no lane left",
            0.0,
            rates().map(|(rate, place)| (rate.lanes_after as f64, place)),
        ),
    ]
}

/// keylane's rows of the empty handler; the run of 10 million is a workload of its own.
fn empty(results: &Results) -> impl Iterator<Item = &Row> {
    ours(results).filter(|row| {
        matches!(row.shape, Shape::Throughput { handler: Handler::Empty, messages, .. }
            if messages < 10_000_000)
    })
}

fn ours(results: &Results) -> impl Iterator<Item = &Row> {
    results.rows.iter().filter(|row| row.id == Id::Keylane)
}

/// Against the fastest of those that keep order. Static routing keeps order and gives up
/// independence; with and without it are two bars.
fn rivals(results: &Results) -> Vec<Bar> {
    let many = |row: &&Row| match row.shape {
        Shape::Throughput {
            keys: Keys::Cycle(n),
            ..
        } => n >= 100_000,
        _ => true,
    };
    let versus = |row: &Row, with_static: bool| {
        results
            .rows_of(&row.workload, row.condition)
            .filter(|rival| rival.id.keeps_order() && !rival.id.is_control())
            .filter(|rival| !rival.id.is_keylane())
            .filter(|rival| with_static || rival.id != Id::StaticHash)
            .filter_map(|rival| {
                let ratio = rival.over(row, |sample| sample.ns_per_message)?;
                Some((ratio, format!("{}, {}", row.workload, rival.id.name())))
            })
            .min_by(|one, other| one.0.total_cmp(&other.0))
    };
    let mut bars = Vec::new();
    for (with_static, who) in [(true, ""), (false, ", static-64 aside")] {
        bars.push(at_least(
            &format!("empty handler: ≥ 1.5× the fastest rival that keeps order{who}"),
            1.5,
            empty(results).filter_map(|row| versus(row, with_static)),
        ));
        bars.push(at_least(
            &format!("the same, ≥ 3× from 100,000 keys on{who}"),
            3.0,
            empty(results)
                .filter(many)
                .filter_map(|row| versus(row, with_static)),
        ));
    }
    bars
}

/// Only where there are keys enough to keep all handlers busy.
fn waiting(results: &Results) -> Vec<Bar> {
    [Handler::Sleep, Handler::Yield]
        .into_iter()
        .map(|handler| {
            let rows = ours(results).filter(|row| match row.shape {
                Shape::Throughput {
                    handler: this,
                    keys,
                    ..
                } => {
                    this == handler
                        && match keys {
                            Keys::Cycle(n) => n >= 10_000,
                            Keys::Distinct => true,
                            Keys::Zipf => false,
                        }
                }
                _ => false,
            });
            at_least(
                &format!("waiting handlers ({}): ≥ 0.98× spawn", handler.label()),
                0.98,
                rows.filter_map(|row| Some((results.ratio_to_spawn(row)?, row.workload.clone()))),
            )
        })
        .collect()
}

fn beside(results: &Results) -> Vec<Bar> {
    let pair = |workload, disturbed| {
        Some((
            results.row(workload, "calm", Id::Keylane)?,
            results.row(workload, disturbed, Id::Keylane)?,
        ))
    };
    let mut bars = Vec::new();
    for (what, workload, disturbed) in [
        ("a blocked key", "blocked-throughput", "blocked"),
        ("a hot key", "hot-latency", "hot"),
    ] {
        let kept = pair(workload, disturbed).map(|(calm, row)| {
            // Nothing is kept where it stalled.
            (
                calm.over(row, |sample| sample.ns_per_message)
                    .unwrap_or(0.0),
                workload.to_owned(),
            )
        });
        bars.push(at_least(
            &format!("beside {what} the others keep ≥ 0.95× throughput"),
            0.95,
            kept.into_iter(),
        ));
    }
    for (what, workload, disturbed) in [
        ("a blocked key", "blocked-latency", "blocked"),
        ("a hot key", "hot-latency", "hot"),
    ] {
        let p99 = |sample: &Sample| {
            sample
                .latency
                .map_or(f64::INFINITY, |latency| latency.p99 as f64)
        };
        let grown = pair(workload, disturbed).map(|(calm, row)| {
            (
                row.over(calm, p99).unwrap_or(f64::INFINITY),
                workload.to_owned(),
            )
        });
        bars.push(at_most(
            &format!("beside {what} the others' p99 is ≤ 1.1× of without it"),
            1.1,
            grown.into_iter(),
        ));
    }
    bars
}

fn flat(results: &Results) -> Vec<Bar> {
    [1, 4]
        .into_iter()
        .map(|wanted| {
            let times: Vec<(f64, String)> = empty(results)
                .filter(|row| match row.shape {
                    Shape::Throughput {
                        keys, producers, ..
                    } => {
                        producers == wanted
                            && match keys {
                                Keys::Cycle(n) => n >= 1_000,
                                Keys::Distinct => true,
                                Keys::Zipf => false,
                            }
                    }
                    _ => false,
                })
                .filter_map(|row| Some((row.ns()?.median, row.workload.clone())))
                .collect();
            let least = times.iter().min_by(|one, other| one.0.total_cmp(&other.0));
            let most = times.iter().max_by(|one, other| one.0.total_cmp(&other.0));
            let ratio = least
                .zip(most)
                .map(|(least, most)| (most.0 / least.0, format!("{} over {}", most.1, least.1)));
            at_most(
                &format!("flat within 1.15× from 1,000 keys to all distinct, {wanted} producers"),
                1.15,
                ratio.into_iter(),
            )
        })
        .collect()
}

fn round_trips(results: &Results) -> Vec<Bar> {
    [
        ("a task", "receipt/inside"),
        ("a thread outside", "receipt/outside"),
    ]
    .into_iter()
    .map(|(who, workload)| {
        let ratio = results
            .row(workload, "", Id::KeylaneSubmit)
            .zip(results.row(workload, "", Id::Spawn))
            .and_then(|(ours, spawn)| ours.over(spawn, |sample| sample.ns_per_message));
        at_most(
            &format!("idle receipt round trip from {who}: ≤ 1.2× spawn and a oneshot"),
            1.2,
            ratio.map(|ratio| (ratio, workload.to_owned())).into_iter(),
        )
    })
    .collect()
}

fn footprint(results: &Results) -> Vec<Bar> {
    let find = |name: &str| {
        results
            .footprints
            .iter()
            .find(|print| print.contender == name)
    };
    let ours = find(Id::Keylane.name());
    let bare = find(BARE_TASK);
    let ratio = |bytes: fn(&Footprint) -> Option<f64>| Some(bytes(ours?)? / bytes(bare?)?);
    let allocations = ours.into_iter().flat_map(|print| &print.allocations);
    vec![
        // A channel allocates a block for every 32 messages of a backlog; the floor does, too.
        at_most(
            "no allocation per message on the send path but the channel's blocks (≤ 1/32)",
            1.0 / 32.0,
            allocations.map(|spread| (spread.per_message, format!("{} keys", spread.keys))),
        ),
        at_most(
            &format!("a parked message: ≤ its {MESSAGE_BYTES} bytes + 32"),
            MESSAGE_BYTES as f64 + 32.0,
            ours.into_iter()
                .flat_map(|print| &print.parked)
                .map(|parked| (parked.bytes, format!("{} of them", parked.messages))),
        ),
        at_most(
            &format!("a live lane: ≤ 200 bytes + its {KEY_BYTES} of key"),
            200.0 + KEY_BYTES as f64,
            ours.and_then(|print| print.live_lane_bytes)
                .map(|bytes| (bytes, "100,000 of them".to_owned()))
                .into_iter(),
        ),
        at_most(
            "in flight: ≤ 1.2× a bare spawned task, tiny handler",
            1.2,
            ratio(|print| print.in_flight_bytes)
                .map(|ratio| (ratio, "100,000 of them".to_owned()))
                .into_iter(),
        ),
        at_most(
            "in flight: ≤ 512 bytes, tiny handler",
            512.0,
            ours.and_then(|print| print.in_flight_bytes)
                .map(|bytes| (bytes, "100,000 of them".to_owned()))
                .into_iter(),
        ),
        at_most(
            "in flight: ≤ 1.3× a bare spawned task, handler of 1 KiB",
            1.3,
            ratio(|print| print.in_flight_wide_bytes)
                .map(|ratio| (ratio, "100,000 of them".to_owned()))
                .into_iter(),
        ),
        at_most(
            "in flight: ≤ 1.2× a bare spawned task, handler of 1 KiB",
            1.2,
            ratio(|print| print.in_flight_wide_bytes)
                .map(|ratio| (ratio, "100,000 of them".to_owned()))
                .into_iter(),
        ),
    ]
}

fn at_least(asked: &str, bar: f64, values: impl Iterator<Item = (f64, String)>) -> Bar {
    let worst = values.min_by(|one, other| one.0.total_cmp(&other.0));
    judged(asked, worst, |value| value >= bar)
}

fn at_most(asked: &str, bar: f64, values: impl Iterator<Item = (f64, String)>) -> Bar {
    let worst = values.max_by(|one, other| one.0.total_cmp(&other.0));
    judged(asked, worst, |value| value <= bar)
}

fn judged(asked: &str, worst: Option<(f64, String)>, reached: impl Fn(f64) -> bool) -> Bar {
    Bar {
        asked: asked.to_owned(),
        measured: worst.as_ref().map_or_else(String::new, |(value, place)| {
            format!("{} ({place})", number(*value))
        }),
        reached: worst.map(|(value, _)| reached(value)),
    }
}
