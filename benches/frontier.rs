//! The frontier of a partition by the clock, with 1,000,000 open positions.
//!
//! Criterion prints the time of a million steps in milliseconds, which is the time of one in
//! nanoseconds; that of `encode` and `decode` is of one call. The offsets are in a row, or 1,000
//! apart, where each position has a block of its own and only the index knows where.
//!
//! `cargo xtask bench -- --bench frontier` runs it in about a minute and a half.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use keylane::source::frontier::{Beyond, Frontier, Limits};

const POSITIONS: u64 = 1_000_000;

/// Like an offset of a log that is some years old.
const FIRST: u64 = 8_765_432_109;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for (log, step) in [("in a row", 1), ("1,000 apart", 1_000)] {
        deliver(&mut criterion, log, step);
        complete(&mut criterion, log, step);
        window(&mut criterion, log, step);
        encode(&mut criterion, log, step);
    }
    criterion.final_summary();
}

fn offsets(step: u64) -> Vec<u64> {
    (0..POSITIONS).map(|place| FIRST + place * step).collect()
}

fn shuffled(mut offsets: Vec<u64>) -> Vec<u64> {
    // xorshift64
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..offsets.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        offsets.swap(last, (random % (last as u64 + 1)) as usize);
    }
    offsets
}

fn empty() -> Frontier {
    Frontier::new(FIRST).with_limits(Limits::default().span(u64::MAX))
}

fn delivered(offsets: &[u64]) -> Frontier {
    let mut frontier = empty();
    deliver_all(&mut frontier, offsets);
    frontier
}

fn deliver_all(frontier: &mut Frontier, offsets: &[u64]) {
    for offset in offsets {
        assert!(frontier.deliver(*offset).is_ok());
    }
}

fn deliver(criterion: &mut Criterion, log: &str, step: u64) {
    let offsets = offsets(step);
    let mut group = criterion.benchmark_group(format!("deliver, {log}"));
    group.throughput(Throughput::Elements(POSITIONS));
    group.bench_function("from empty", |bencher| {
        bencher.iter_batched(
            empty,
            |mut frontier| {
                deliver_all(&mut frontier, &offsets);
                frontier
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn complete(criterion: &mut Criterion, log: &str, step: u64) {
    let forward = offsets(step);
    let delivered = delivered(&forward);
    let random = shuffled(forward.clone());
    let reverse = forward.iter().rev().copied().collect();
    let mut group = criterion.benchmark_group(format!("complete, {log}"));
    group.throughput(Throughput::Elements(POSITIONS));
    for (name, order) in [
        ("random", random),
        ("reverse", reverse),
        ("forward", forward),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || delivered.clone(),
                |mut frontier| {
                    for offset in &order {
                        black_box(frontier.complete(*offset));
                    }
                    assert_eq!(frontier.open_len(), 0);
                    frontier
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// What a commit costs when half of a million is beyond, in no order.
fn encode(criterion: &mut Criterion, log: &str, step: u64) {
    let offsets = offsets(step);
    let mut frontier = delivered(&offsets);
    for offset in shuffled(offsets).iter().take(POSITIONS as usize / 2) {
        black_box(frontier.complete(*offset));
    }
    let mut group = criterion.benchmark_group(format!("encode, {log}"));
    for most_bytes in [3_000, usize::MAX] {
        let name = if most_bytes == usize::MAX {
            "all"
        } else {
            "3,000 bytes"
        };
        group.bench_function(name, |bencher| {
            bencher.iter(|| frontier.encode(black_box(most_bytes)));
        });
    }
    let encoded = frontier.encode(usize::MAX);
    group.bench_function("decode all", |bencher| {
        bencher.iter(|| Beyond::decode(black_box(&encoded.bytes)));
    });
    group.finish();
}

/// The common case: 1,000 are open, and one is delivered for each that is completed.
fn window(criterion: &mut Criterion, log: &str, step: u64) {
    const OPEN: u64 = 1_000;
    let offsets = offsets(step);
    let first = &offsets[..OPEN as usize];
    let order = shuffled(first.to_vec());
    let mut group = criterion.benchmark_group(format!("deliver and complete, {log}"));
    group.throughput(Throughput::Elements(POSITIONS));
    group.bench_function("1,000 open", |bencher| {
        bencher.iter_batched(
            || delivered(first),
            |mut frontier| {
                for round in 0..POSITIONS / OPEN {
                    let passed = round * OPEN * step;
                    for (offset, delivered) in order.iter().zip(first) {
                        black_box(frontier.complete(offset + passed));
                        let next = delivered + passed + OPEN * step;
                        assert!(frontier.deliver(next).is_ok());
                    }
                }
                frontier
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}
