//! Random settings, random work and random faults against one judge: nothing is lost, no two of a
//! key run at once, first handlings are in order, limits hold, and reports add up.

use std::time::Duration;

use keylane::consume::Intake;
use keylane::{Overflow, Retry};
use keylane_testkit::Evidence;
use keylane_testkit::reference::{Call, Loss, ReferenceServer};
use keylane_testkit::scenario::{MS, Random, SECOND, repeats, within};

use crate::support::{
    Orders, Rig, adds_up, come_to_rest, fallible, orders, plain, scripted, settings, some_features,
    stats_add_up,
};

fn dispatcher(rig: &Rig, random: &mut Random) -> Orders {
    let (longest, fails) = (1 + random.below(30), 2 + random.below(20));
    let script = fallible(&rig.history, fails, longest);
    let mut orders = orders()
        // What was interrupted counts where attempts are counted.
        .retry(Retry::fixed(5 * MS).max_attempts(1_000))
        .concurrency(1 + random.below(8) as usize);
    if random.one_in(2) {
        orders = orders.capacity(1 + random.below(20) as usize);
    }
    if random.one_in(2) {
        orders = orders.lane_capacity(1 + random.below(6) as usize, Overflow::Wait);
    }
    orders.spawn(scripted(script)).unwrap()
}

async fn disturb(rig: &Rig, intake: &Intake, random: &mut Random) {
    let faults = rig.server.faults();
    let loss = if random.one_in(2) {
        Loss::Silent
    } else {
        Loss::Told
    };
    let calls = [
        Call::Open,
        Call::Receive,
        Call::Settle,
        Call::Confirm,
        Call::Release,
    ];
    let call = calls[random.below(5) as usize];
    match random.below(13) {
        0 => rig.server.revoke(),
        1 => rig.server.lose(),
        2 => rig.server.cut(),
        3 => {
            rig.server.kill();
            tokio::time::sleep(Duration::from_millis(random.below(300))).await;
            rig.server.start();
        }
        4 => rig.server.stall(),
        5 => faults.lose_settles(1, loss),
        // A loss of which the driver is not told would be a false word of the server.
        6 => faults.lose_confirms(1, Loss::Told),
        7 => faults.cut_before_ack(1),
        8 => faults.fail(call, 1),
        9 => faults.panic_in(call, 1),
        10 => faults.be_slow(Duration::from_millis(random.below(50))),
        11 => {
            intake.pause();
            tokio::time::sleep(Duration::from_millis(random.below(100))).await;
            intake.resume();
        }
        _ => faults.none(),
    }
}

async fn run(seed: u64) {
    let mut random = Random::new(seed);
    let server = ReferenceServer::new(some_features(plain(), &mut random));
    let server = server.partitions(1 + random.below(3) as usize);
    let rig = Rig::of(server);
    let orders = dispatcher(&rig, &mut random);
    let held = 1 + random.below(60) as usize;
    let within_revoke = Duration::from_millis(random.below(60));
    let settings = || {
        settings()
            .held(held)
            .revoke_within(within_revoke)
            .stall_after(2 * SECOND)
            .confirm_every(Duration::from_millis(1 + held as u64))
    };
    let consume = || {
        orders
            .consume_with(rig.server.source(), settings())
            .unwrap()
    };
    let mut intake = consume();
    let keys = 1 + random.below(6);
    for _ in 0..12 {
        let count = random.below(15);
        rig.publish((0..count).map(|_| random.below(keys)));
        tokio::time::sleep(Duration::from_millis(random.below(60))).await;
        disturb(&rig, &intake, &mut random).await;
        stats_add_up(&intake);
        assert!(intake.stats().held <= held, "{:?}", intake.stats());
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

/// `SOURCES_CHAOS=20000 cargo test -p tests --test sources chaos` looks for longer.
#[tokio::test(start_paused = true)]
async fn random_work_and_random_faults() {
    for seed in 0..repeats("SOURCES_CHAOS", 150) {
        println!("seed {seed}");
        run(seed).await;
    }
}
