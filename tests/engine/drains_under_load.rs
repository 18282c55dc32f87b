//! Many dispatchers, each ended in the middle of its work, and each report held against the receipts.
//!
//! `KEYLANE_DRAINS` says how many.

use keylane_testkit::scenario::{Random, paused, repeats, threads};

use crate::support::{End, Life};

/// Lives to a random point and ends in a random way, while senders still send.
async fn live(seed: u64) {
    let mut dice = Random::new(!seed);
    let life = Life::new(seed);
    let mut tasks = life.begin();
    life.go_on(&mut tasks, dice.below(400) as usize).await;
    let report = life.end(End::random(&mut dice)).await;
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no sender panics");
    }
    life.judge(&report);
}

#[test]
fn drains_under_load_on_one_thread() {
    for seed in 0..repeats("KEYLANE_DRAINS", 500) / 2 {
        paused().block_on(live(seed));
    }
}

#[test]
fn drains_under_load_on_two_threads() {
    let threads = threads();
    for seed in 0..repeats("KEYLANE_DRAINS", 500).div_ceil(2) {
        threads.block_on(live(1_000_000 + seed));
    }
}
