//! As `chaos`, for lanes that put messages into the order of their versions: repeats under other
//! positions, full lanes, and generations that end with versions in line.

use std::time::Duration;

use keylane::{Overflow, Retry};
use keylane_testkit::Evidence;
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::scenario::{MS, Random, SECOND, repeats, within};

use crate::revoke::sequence;
use crate::support::{
    Orders, Rig, adds_up, come_to_rest, fallible, orders, plain, scripted, settings, stats_add_up,
};

fn dispatcher(rig: &Rig, random: &mut Random) -> Orders {
    let (longest, fails) = (1 + random.below(8), 2 + random.below(30));
    let script = fallible(&rig.history, fails, longest);
    // With less capacity than early messages, a version may wait for room behind those that wait
    // for it, until its gap has timed out.
    let orders = orders()
        .retry(Retry::fixed(2 * MS).max_attempts(1_000))
        .sequence(sequence())
        .concurrency(1 + random.below(8) as usize)
        .lane_capacity(
            match random.one_in(4) {
                true => 100,
                false => 1 + random.below(6) as usize,
            },
            Overflow::Wait,
        );
    orders.spawn(scripted(script)).unwrap()
}

async fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut features = plain().random_access();
    if random.one_in(2) {
        features = features.nack();
    }
    if random.one_in(3) {
        features = features.counts_attempts();
    }
    let rig = Rig::of(ReferenceServer::new(features).partitions(1 + random.below(2) as usize));
    let orders = dispatcher(&rig, &mut random);
    // Repeats are handed over before what a lane waits for, and must leave it room.
    let settings = settings()
        .held(10_000)
        .revoke_within(Duration::from_millis(random.below(60)))
        .stall_after(2 * SECOND);
    let consume = || {
        let source = rig.server.source();
        orders.consume_with(source, settings.clone()).unwrap()
    };
    let mut intake = consume();
    let faults = rig.server.faults();
    for _ in 0..8 {
        let count = random.below(60);
        rig.publish((0..count).map(|_| 1 + random.below(2)));
        tokio::time::sleep(Duration::from_millis(random.below(60))).await;
        match random.below(10) {
            0 | 1 => rig.server.revoke(),
            2 => rig.server.lose(),
            3 => rig.server.cut(),
            4 => faults.cut_before_ack(1),
            5 | 6 => faults.storm(seed, Duration::from_millis(1 + random.below(200))),
            7 => faults.hand_over_twice(3),
            8 => {
                let of = random.below(5);
                faults.redeliver(|raw| raw.version.unwrap() % 5 == of);
            }
            _ => faults.none(),
        }
        stats_add_up(&intake);
        if random.one_in(6) {
            let limit = Duration::from_millis(random.below(100));
            let report = within(async { intake.stop().within(limit).await }).await;
            adds_up(&report);
            intake = consume();
        }
    }
    come_to_rest(&rig, &orders, intake).await;
    rig.judge(&orders, Evidence::new().redelivers());
}

/// `SOURCES_VERSION_CHAOS=20000 cargo test -p tests --test sources version_chaos` looks for longer.
#[tokio::test(start_paused = true)]
async fn random_repeats_and_revokes_in_lanes_that_sequence() {
    for seed in 0..repeats("SOURCES_VERSION_CHAOS", 80) {
        println!("seed {seed}");
        run(seed).await;
    }
}
