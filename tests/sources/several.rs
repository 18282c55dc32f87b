//! Several sources on one dispatcher, beside what is sent directly.

use std::time::Duration;

use keylane_testkit::scenario::settle;
use keylane_testkit::{Act, Evidence, Script};

use crate::support::{Rig, adds_up, message, orders, plain, scripted, settings, until};

/// The same key from two sources and from a sender is one lane.
#[tokio::test(start_paused = true)]
async fn one_key_from_everywhere_is_one_lane() {
    let (one, other) = (Rig::new(plain()), Rig::new(plain()));
    let script = Script::new(&one.history).otherwise(Act::ok().sleeps(Duration::from_millis(2)));
    let orders = orders().spawn(scripted(script)).unwrap();
    let first = one.consume(&orders);
    let second = orders
        .consume_with(other.server.source(), settings())
        .unwrap();
    one.publish([1; 20]);
    for id in 101..=120 {
        // The place of a message among those of its key is not known: no order is judged.
        other.server.publish([message(1, id)]);
        settle().await;
    }
    for id in 201..=220 {
        orders.send(message(1, id)).await.unwrap();
    }
    one.handled(60).await;
    let (first, second) = (first.stop().await, second.stop().await);
    adds_up(&first);
    adds_up(&second);
    assert_eq!((first.acked, second.acked), (20, 20));
    assert_eq!((one.server.left(), other.server.left()), (0, 0));
    // Never two at once, and each source's messages in their order.
    let started = one.history.started();
    for range in [1..=20, 101..=120, 201..=220] {
        let of_range = started.iter().filter(|id| range.contains(*id));
        assert!(of_range.is_sorted(), "{started:?}");
    }
    let violations = one.history.check(&Evidence::new()).unwrap_err();
    let exclusion = keylane_testkit::Rule::Exclusion;
    assert!(violations.iter().all(|broken| broken.rule != exclusion));
    let report = orders.drain().await;
    assert_eq!((report.accepted, report.done), (60, 60));
}

/// One source ends, or fails; the other goes on.
#[tokio::test(start_paused = true)]
async fn a_source_that_ends_leaves_the_others_alone() {
    let (one, other) = (Rig::new(plain()), Rig::new(plain()));
    let orders = one.spawn(Act::ok().sleeps(Duration::from_millis(1)));
    let first = one.consume(&orders);
    let second = other.consume(&orders);
    one.publish(0..10);
    one.handled(10).await;
    adds_up(&first.stop().await);
    drop(first);
    other.server.publish((1000..1010).map(|id| message(1, id)));
    one.handled(20).await;
    other.server.kill();
    one.publish(0..10);
    let third = one.consume(&orders);
    one.handled(30).await;
    other.server.start();
    other.server.publish((1010..1020).map(|id| message(1, id)));
    until(|| other.server.left() == 0).await;
    adds_up(&second.stop().await);
    adds_up(&third.stop().await);
    assert_eq!(one.server.left(), 0);
}

/// Two consumers of one server share its partitions; what one gives up the other gets.
#[tokio::test(start_paused = true)]
async fn partitions_move_between_two_consumers() {
    use keylane_testkit::reference::ReferenceServer;
    let rig = Rig::of(ReferenceServer::new(plain()).partitions(4));
    let orders = rig.spawn(Act::ok().sleeps(Duration::from_millis(3)));
    let first = rig.consume(&orders);
    rig.publish((0..200).map(|n| n % 20));
    rig.handled(20).await;
    let second = rig.consume(&orders);
    for partition in 0..4 {
        rig.history.revoke(0);
        rig.server.revoke_partitions(&[partition]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rig.publish((0..200).map(|n| n % 20));
    rig.server.until(|server| server.left() == 0).await;
    let second = second.stop().await;
    adds_up(&second);
    assert!(second.acked > 0, "{second}");
    rig.finish(&orders, first).await;
}
