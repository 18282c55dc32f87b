//! The order of a key, whatever it waits for.

use std::time::Duration;

use keylane::Overflow;
use keylane_testkit::scenario::{Random, cases, settle};
use keylane_testkit::{Act, Gate, Script};

use crate::support::{Rig, orders, plain, scripted, settings};

/// Messages that come one by one and wait beside a full lane go in in their order, though several
/// places become free at once.
#[tokio::test(start_paused = true)]
async fn messages_that_wait_beside_a_full_lane_keep_their_order() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
    let orders = orders()
        .lane_capacity(4, Overflow::Wait)
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    let mut sent = Vec::new();
    for _ in 0..60 {
        sent.extend(rig.publish([1]));
        settle().await;
    }
    assert!(intake.stats().aside > 40, "{:?}", intake.stats());
    gate.open();
    rig.handled(60).await;
    assert_eq!(rig.history.handled(), sent);
    rig.finish(&orders, intake).await;
}

/// Full lanes, little room in the dispatcher, few handlers, several keys: the order holds for all.
#[tokio::test(start_paused = true)]
async fn little_room_everywhere_and_random_times() {
    for seed in 0..cases(60).into() {
        let mut random = Random::new(seed);
        let rig = Rig::new(plain());
        let longest = random.below(4);
        let script = Script::new(&rig.history)
            .choose(move |cue| Act::ok().sleeps(Duration::from_millis(cue.id * 7 % (longest + 1))));
        let orders = orders()
            .capacity(1 + random.below(6) as usize)
            .lane_capacity(1 + random.below(4) as usize, Overflow::Wait)
            .concurrency(1 + random.below(3) as usize)
            .spawn(scripted(script))
            .unwrap();
        let held = 1 + random.below(40) as usize;
        let intake = orders
            .consume_with(rig.server.source(), settings().held(held))
            .unwrap();
        let keys = 1 + random.below(4);
        for _ in 0..10 {
            for _ in 0..random.below(12) {
                rig.publish([random.below(keys)]);
                if random.one_in(3) {
                    tokio::task::yield_now().await;
                }
            }
            tokio::time::sleep(Duration::from_millis(random.below(5))).await;
        }
        let report = rig.finish(&orders, intake).await;
        assert_eq!(report.acked, report.received, "seed {seed}: {report}");
        assert!(rig.server.counts().most_held <= held, "seed {seed}");
    }
}

/// Keyless messages have no lane to wait for.
#[tokio::test(start_paused = true)]
async fn messages_without_a_key_are_handled_beside_a_blocked_key() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let script = Script::new(&rig.history).key(1, Act::ok().waits(&gate));
    let orders = orders()
        .lane_capacity(1, Overflow::Wait)
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1; 20]);
    for id in 100..120_u64 {
        rig.history.sending(None, id, id).ok();
        let mut message = crate::support::message(0, id);
        message.key = None;
        rig.server.publish([message]);
    }
    rig.handled(20).await;
    gate.open();
    rig.finish(&orders, intake).await;
}

/// A lane that drops its oldest message, or dead-letters the newest, acks what it gives up: the
/// policy was named.
#[tokio::test(start_paused = true)]
async fn what_a_full_lane_drops_is_acked_as_given_up() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
    let orders = orders()
        .lane_capacity(3, Overflow::DropOldest)
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1; 10]);
    crate::support::until(|| intake.stats().acked == 7).await;
    gate.open();
    let dropped = 2..=8;
    let evidence = keylane_testkit::Evidence::new().discarded(dropped);
    let report = rig.finish_with(&orders, intake, evidence).await;
    assert_eq!(rig.history.handled(), [1, 9, 10]);
    assert_eq!(report.acked, 10);
}
