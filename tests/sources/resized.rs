//! Hash lanes whose number changes, while messages of a source wait beside full ones.

use std::num::NonZeroUsize;

use keylane::routing::hash_lane;
use keylane::source::{Features, RawMessage};
use keylane::{Dispatcher, OnExhausted, Overflow};
use keylane_testkit::scenario::{MS, quiet, within};
use keylane_testkit::{Act, Evidence, Gate, Key, Script};

use crate::support::{Rig, adds_up, message, plain, scripted, settings, until};

fn lanes(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// A key that is in lane 0 of these, and not of those.
fn key_that_moves(from: usize, to: usize) -> Key {
    let lane = |key: Key, count| hash_lane(lanes(count), &message(key, 0).key);
    let moves = |key: &Key| lane(*key, from) != lane(*key, to);
    (0..).find(moves).unwrap()
}

/// What waits beside a full lane, kept or only as a position, stays in front of what comes after the
/// number of lanes has changed; with more lanes and with fewer.
#[tokio::test(start_paused = true)]
async fn the_order_of_a_key_holds_when_the_number_of_lanes_changes() {
    let more = plain().random_access();
    for features in [plain(), plain().nack(), more, more.nack()] {
        for (from, to) in [(1, 8), (8, 1), (2, 5)] {
            order_holds(features, from, to).await;
        }
    }
}

async fn order_holds(features: Features, from: usize, to: usize) {
    let rig = Rig::of(keylane_testkit::reference::ReferenceServer::new(features));
    let gate = Gate::new();
    let hot = key_that_moves(from, to);
    let script = Script::new(&rig.history).key(hot, Act::ok().waits(&gate));
    let orders = Dispatcher::hash_lanes(lanes(from), |raw: &RawMessage| raw.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .lane_capacity(4, Overflow::Wait)
        .spawn(scripted(script))
        .unwrap();
    let settings = settings().held(300).deferred(1_000);
    let intake = orders.consume_with(rig.server.source(), settings).unwrap();
    rig.publish([hot; 10]);
    until(|| orders.stats().full_lanes == 1).await;
    rig.publish([hot; 200]);
    until(|| intake.stats().aside > 190).await;
    let defers = features.has_random_access();
    assert_eq!(intake.stats().deferred > 0, defers, "{:?}", intake.stats());
    let resize = async { orders.resize(to).await };
    let resized = async {
        until(|| orders.lanes() == to).await;
        rig.publish([hot; 50]);
        quiet().await;
        rig.publish((0..40).map(|n| 1_000 + n));
        tokio::time::sleep(10 * MS).await;
        gate.open();
    };
    within(async { tokio::join!(resize, resized) })
        .await
        .0
        .unwrap();
    rig.server.until(|server| server.left() == 0).await;
    let report = within(async { intake.stop().await }).await;
    adds_up(&report);
    assert_eq!((report.acked, report.nacked), (300, 0), "{report}");
    rig.judge(&orders, Evidence::new());
}
