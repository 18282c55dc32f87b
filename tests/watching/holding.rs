//! Who holds a source back: the first message of each of its generations that has not settled.

use keylane::consume::Intake;
use keylane::source::{Features, RawMessage};
use keylane::watching::HoldingBack;
use keylane::{Dispatcher, OnExhausted};
use keylane_testkit::Gate;
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::scenario::until;

type Orders = Dispatcher<bytes::Bytes, RawMessage, (), &'static str>;

/// Handles messages of one byte: 0 waits for ever, 1 waits for the gate, 2 fails, others are done.
fn orders(gate: &Gate) -> Orders {
    let gate = gate.clone();
    Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
        .concurrency(16)
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |raw: RawMessage| {
            let (gate, what) = (gate.clone(), raw.payload[0]);
            async move {
                match what {
                    0 => std::future::pending().await,
                    1 => gate.pass().await,
                    2 => return Err("declined"),
                    _ => {}
                }
                Ok(())
            }
        })
        .unwrap()
}

fn message(key: &'static str, what: u8) -> RawMessage {
    RawMessage::new(vec![what]).key(key)
}

/// Key and partition with offset, such as `ann 0:1`.
async fn holding(orders: &Orders, intake: &Intake) -> Vec<String> {
    let all = orders.holding_back(&intake.watch()).await;
    let show = |holding: HoldingBack<bytes::Bytes>| {
        assert_eq!(holding.origin.source, "reference");
        let position = holding.origin.position;
        let (place, _) = position.split_once('#').unwrap();
        format!("{} {place}", String::from_utf8_lossy(&holding.key))
    };
    all.into_iter().map(show).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_message_that_has_not_settled_holds_its_source_back() {
    let gate = Gate::new();
    let server = ReferenceServer::new(Features::new().survives_restart());
    let all = [("ann", 1), ("bob", 2), ("cid", 3), ("dan", 0), ("dan", 3)];
    server.publish(all.map(|(key, what)| message(key, what)));
    let orders = orders(&gate);
    let intake = orders.consume(server.source()).unwrap();
    // In its handler, and the others behind it.
    until(|| intake.stats().acked == 1 && orders.stats().halted == 1).await;
    assert_eq!(holding(&orders, &intake).await, ["ann 0:0"]);
    gate.open();
    until(|| intake.stats().acked == 2).await;
    // Halted.
    assert_eq!(holding(&orders, &intake).await, ["bob 0:1"]);
    orders.lane(&"bob".into()).skip().unwrap();
    until(|| intake.stats().acked == 3).await;
    // What is done behind it does not count.
    assert_eq!(holding(&orders, &intake).await, ["dan 0:3"]);
    orders.abort().await;
    assert!(holding(&orders, &intake).await.is_empty(), "it has ended");
}

#[tokio::test(start_paused = true)]
async fn each_part_is_held_back_by_its_own_key_and_by_none_of_another_dispatcher() {
    let gate = Gate::new();
    let server = ReferenceServer::new(Features::new().survives_restart()).partitions(3);
    let keys = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"];
    server.publish(keys.map(|key| message(key, 0)));
    let entries = server.entries();
    let firsts = entries.iter().filter(|entry| entry.offset == 0);
    let mut firsts = Vec::from_iter(firsts.map(|entry| {
        let key = entry.message.key.as_deref().unwrap();
        format!("{} {}:0", String::from_utf8_lossy(key), entry.partition)
    }));
    firsts.sort();
    assert!(firsts.len() > 1, "{firsts:?}");
    let orders = [orders(&gate), orders(&gate)];
    let intake = orders[0].consume(server.source()).unwrap();
    until(|| orders[0].stats().in_flight == keys.len()).await;
    let mut found = holding(&orders[0], &intake).await;
    found.sort();
    assert_eq!(found, firsts);
    // It has lanes of the same keys, and a source of its own.
    let other = ReferenceServer::new(Features::new().survives_restart());
    other.publish(keys.map(|key| message(key, 0)));
    let theirs = orders[1].consume(other.source()).unwrap();
    until(|| orders[1].stats().in_flight == keys.len()).await;
    assert_eq!(holding(&orders[1], &theirs).await, ["ann 0:0"]);
    assert!(holding(&orders[1], &intake).await.is_empty());
    for orders in orders {
        orders.abort().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_may_change_is_not_taken_for_the_one_that_holds_back() {
    let server = ReferenceServer::new(Features::new().survives_restart());
    server.publish([message("ann", 0), RawMessage::new(vec![0])]);
    let four = std::num::NonZeroUsize::new(4).unwrap();
    let orders = Dispatcher::hash_lanes(four, |raw: &RawMessage| raw.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(|_: RawMessage| std::future::pending::<Result<(), std::io::Error>>())
        .unwrap();
    let intake = orders.consume(server.source()).unwrap();
    until(|| orders.stats().in_flight > 0).await;
    assert!(orders.holding_back(&intake.watch()).await.is_empty());
    orders.abort().await;
}
