//! As `chaos`, for a source that reads positions again: hot keys whose messages are deferred, while
//! generations end, reads fail, and messages are gone when they are read.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use keylane::consume::Intake;
use keylane::{Overflow, Retry};
use keylane_testkit::reference::{Call, Loss, ReferenceServer};
use keylane_testkit::scenario::{MS, Random, SECOND, repeats, within};
use keylane_testkit::{Evidence, Id};

use crate::support::{
    Orders, Rig, adds_up, come_to_rest, fallible, id_of, orders, plain, scripted, settings,
    some_features, stats_add_up,
};

/// Messages of a full lane that are always kept, and those that are read at once.
const KEPT: usize = 64;

fn dispatcher(rig: &Rig, random: &mut Random) -> Orders {
    let (longest, fails) = (1 + random.below(6), 2 + random.below(40));
    let script = fallible(&rig.history, fails, longest);
    let mut orders = orders()
        .retry(Retry::fixed(2 * MS).max_attempts(1_000))
        .lane_capacity(1 + random.below(12) as usize, Overflow::Wait)
        .concurrency(1 + random.below(8) as usize);
    if random.one_in(2) {
        orders = orders.capacity(1 + random.below(20) as usize);
    }
    orders.spawn(scripted(script)).unwrap()
}

struct Disturber<'a> {
    rig: &'a Rig,
    /// What the server has dropped. It may be here, and be handled still.
    gone: RefCell<BTreeSet<Id>>,
}

impl Disturber<'_> {
    async fn disturb(&self, intake: &Intake, random: &mut Random) {
        let server = &self.rig.server;
        let faults = server.faults();
        let loss = match random.one_in(2) {
            true => Loss::Silent,
            false => Loss::Told,
        };
        let calls = [
            Call::Open,
            Call::Receive,
            Call::Settle,
            Call::Confirm,
            Call::Release,
            Call::Reread,
        ];
        let call = calls[random.below(6) as usize];
        match random.below(16) {
            0 | 1 => server.revoke(),
            2 => server.lose(),
            3 => server.cut(),
            4 => {
                server.kill();
                tokio::time::sleep(Duration::from_millis(random.below(300))).await;
                server.start();
            }
            5 => server.stall(),
            6 => faults.lose_settles(1, loss),
            7 => faults.cut_before_ack(1),
            8 => faults.fail(call, 1),
            9 => faults.panic_in(call, 1),
            10 => faults.fail(Call::Reread, 1 + random.below(3) as usize),
            11 => faults.panic_in(Call::Reread, 1),
            12 => faults.be_slow(Duration::from_millis(random.below(20))),
            13 => {
                intake.pause();
                tokio::time::sleep(Duration::from_millis(random.below(100))).await;
                intake.resume();
            }
            14 => {
                let (every, of) = (2 + random.below(9), random.below(2));
                faults.forget(|raw| {
                    let is_gone = id_of(raw) % every == of;
                    if is_gone {
                        self.gone.borrow_mut().insert(id_of(raw));
                    }
                    is_gone
                });
            }
            _ => faults.none(),
        }
    }

    /// What was gone before it was handled.
    fn lost(&self) -> Vec<Id> {
        let handled: BTreeSet<Id> = self.rig.history.handled().into_iter().collect();
        self.gone.borrow().difference(&handled).copied().collect()
    }
}

async fn run(seed: u64) -> usize {
    let mut random = Random::new(seed);
    let server = ReferenceServer::new(some_features(plain().random_access(), &mut random));
    let server = server.partitions(1 + random.below(2) as usize);
    let rig = Rig::of(server);
    let orders = dispatcher(&rig, &mut random);
    let held = KEPT + 1 + random.below(80) as usize;
    let deferred = [1, 70, 200, 10_000][random.below(4) as usize];
    let within_revoke = Duration::from_millis(random.below(60));
    let settings = || {
        settings()
            .held(held)
            .deferred(deferred)
            .revoke_within(within_revoke)
            .stall_after(2 * SECOND)
            .confirm_every(Duration::from_millis(1 + random_of(seed) % 50))
    };
    let consume = || {
        let source = rig.server.source();
        orders.consume_with(source, settings()).unwrap()
    };
    let disturber = Disturber {
        rig: &rig,
        gone: RefCell::default(),
    };
    let mut intake = consume();
    let hot = 1 + random.below(2);
    let mut most = 0;
    for _ in 0..10 {
        let count = random.below(200);
        rig.publish((0..count).map(|_| match random.one_in(10) {
            true => 3 + random.below(3),
            false => 1 + random.below(hot),
        }));
        for _ in 0..random.below(4) {
            tokio::time::sleep(Duration::from_millis(random.below(40))).await;
            let stats = intake.stats();
            assert!(stats.deferred <= deferred, "{stats:?}");
            let here = stats.held - stats.deferred;
            assert!(here <= held + 2 * KEPT * hot as usize, "{stats:?}");
            most = most.max(stats.deferred);
        }
        disturber.disturb(&intake, &mut random).await;
        stats_add_up(&intake);
        if random.one_in(6) {
            let limit = Duration::from_millis(random.below(100));
            let report = within(async { intake.stop().within(limit).await }).await;
            adds_up(&report);
            intake = consume();
        }
    }
    come_to_rest(&rig, &orders, intake).await;
    let lost = disturber.lost();
    rig.judge(&orders, Evidence::new().redelivers().discarded(lost));
    most
}

fn random_of(seed: u64) -> u64 {
    Random::new(seed ^ 77).below(1_000)
}

/// `SOURCES_HOT_CHAOS=20000 cargo test -p tests --test sources hot_chaos` looks for longer.
#[tokio::test(start_paused = true)]
async fn random_faults_while_hot_keys_are_deferred() {
    let mut deferring = 0;
    let runs = repeats("SOURCES_HOT_CHAOS", 60);
    for seed in 0..runs {
        println!("seed {seed}");
        deferring += u64::from(run(seed).await > 0);
    }
    assert!(deferring * 3 > runs, "only {deferring} runs defer anything");
}
