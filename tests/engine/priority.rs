//! Classes of priority: who goes first, who must not starve, and what never changes.

use keylane::Rate;
use keylane::error::BuildError;
use keylane_testkit::scenario::{
    Message, Producer, SECOND, dispatcher, on_both, paused, quiet, scripted, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, Id, Script};

/// Key 1,000 blocks the only permit until the gate opens. Every other key tells its class.
fn class(message: &Message) -> u8 {
    (message.key.unwrap_or(0) / 100) as u8
}

const BLOCKER: u64 = 1_000;

/// A producer with one permit, which the first message holds until the gate opens.
async fn blocked(classes: u8, quantum: u32) -> (Producer, History, Gate) {
    let history = History::new();
    let gate = Gate::new();
    let script = Script::new(&history).key(BLOCKER, Act::ok().waits(&gate));
    let orders = dispatcher()
        .concurrency(1)
        .quantum(quantum)
        .priority(classes, class);
    let producer = Producer::new(&history, orders.spawn(scripted(script)).unwrap());
    producer.send(BLOCKER).await;
    gate.arrivals(1).await;
    (producer, history, gate)
}

/// The messages in the order in which they started, without the one that blocked.
fn started(history: &History) -> Vec<Id> {
    history.started().split_off(1)
}

#[test]
fn the_most_urgent_lane_starts_first_and_within_a_class_the_first() {
    paused().block_on(async {
        let (producer, history, gate) = blocked(3, 16).await;
        let mut expected = Vec::new();
        for key in [200, 100, 1, 201, 101, 2, 202] {
            expected.push((key / 100, producer.send(key).await));
        }
        quiet().await;
        gate.open();
        producer.finish(Evidence::new()).await;
        expected.sort_unstable();
        let expected: Vec<_> = expected.into_iter().map(|(_, id)| id).collect();
        assert_eq!(started(&history), expected);
    });
}

#[test]
fn what_is_above_counts_as_the_last_class() {
    paused().block_on(async {
        let (producer, history, gate) = blocked(2, 16).await;
        let far = producer.send(25_400).await;
        let last = producer.send(100).await;
        let first = producer.send(0).await;
        quiet().await;
        gate.open();
        producer.finish(Evidence::new()).await;
        assert_eq!(started(&history), [first, far, last]);
    });
}

#[test]
fn a_class_is_passed_over_sixteen_times_and_no_more() {
    paused().block_on(async {
        let (producer, history, gate) = blocked(2, 16).await;
        let patient = [producer.send(100).await, producer.send(101).await];
        for key in 0..40 {
            producer.send(key).await;
        }
        quiet().await;
        gate.open();
        producer.finish(Evidence::new()).await;
        let started = started(&history);
        let places = patient.map(|id| started.iter().position(|other| *other == id));
        assert_eq!(places, [Some(16), Some(33)]);
    });
}

/// A runner that goes on with its lane passes the others over just the same.
#[test]
fn a_long_urgent_lane_does_not_starve_a_class_either() {
    paused().block_on(async {
        for quantum in [1, 3, 16, 1_000] {
            let (producer, history, gate) = blocked(2, quantum).await;
            let patient = producer.send(100).await;
            producer.send_all(1, 40).await;
            quiet().await;
            gate.open();
            producer.finish(Evidence::new()).await;
            let place = started(&history).iter().position(|id| *id == patient);
            assert_eq!(place, Some(16), "quantum {quantum}");
        }
    });
}

/// A lane stands in the class of its head, and goes behind what is more urgent by then.
#[test]
fn an_urgent_message_waits_for_the_ones_before_it() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(9, Act::ok().waits(&gate));
        // Even messages are urgent.
        let orders = dispatcher()
            .concurrency(1)
            .priority(2, |message: &Message| (message.id % 2) as u8);
        let producer = Producer::new(&history, orders.spawn(scripted(script)).unwrap());
        producer.send(9).await;
        gate.arrivals(1).await;
        let mut sent = Vec::new();
        for key in [1, 2, 3, 1] {
            sent.push(producer.send(key).await);
        }
        assert_eq!(sent, [2, 3, 4, 5]);
        let behind = [producer.send(2).await, producer.send(1).await];
        assert_eq!(behind, [6, 7]);
        quiet().await;
        gate.open();
        producer.finish(Evidence::new()).await;
        // 2 and 4 are urgent and first. 6 is urgent, but behind 3; 5 and 7 are behind 2.
        let started = started(&history);
        assert_eq!(started[..2], [2, 4]);
        let place = |id: Id| started.iter().position(|other| *other == id).unwrap();
        assert!(
            place(3) < place(6) && place(2) < place(5) && place(5) < place(7),
            "{started:?}"
        );
    });
}

#[test]
fn the_rate_is_spent_on_what_is_urgent() {
    paused().block_on(async {
        let history = History::new();
        let orders = dispatcher().rate(Rate::per_second(1)).priority(2, class);
        let producer = Producer::new(
            &history,
            orders.spawn(scripted(Script::new(&history))).unwrap(),
        );
        let mut expected = Vec::new();
        for key in [0, 100, 101, 102] {
            expected.push(producer.send(key).await);
        }
        tokio::time::sleep(SECOND / 2).await;
        // It comes late and goes before those that wait.
        expected.insert(1, producer.send(1).await);
        producer.finish(Evidence::new()).await;
        let records = started(&history);
        assert_eq!(records, expected[1..]);
    });
}

#[test]
fn order_and_settlement_are_as_ever() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| Act::ok().yields(cue.id as u32 % 3));
        let orders = dispatcher()
            .priority(8, |message: &Message| (message.id % 11) as u8)
            .quantum(3)
            .concurrency(4);
        let producer = Producer::new(&history, orders.spawn(scripted(script)).unwrap());
        let senders: Vec<_> = (0..4)
            .map(|key| {
                let producer = producer.clone();
                tokio::spawn(async move {
                    for n in 0..300 {
                        producer
                            .send(if n % 5 == 0 { None } else { Some(key) })
                            .await;
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for sender in senders {
            within(sender).await.unwrap();
        }
        let report = producer.finish(Evidence::new()).await;
        assert_eq!(report.done, 1_200);
    });
}

/// While the rate holds everything up, so that no runner comes by and finds what was left.
#[test]
fn close_hands_back_every_class() {
    paused().block_on(async {
        let history = History::new();
        let orders = dispatcher()
            .rate(Rate::per(1, SECOND * 3_600))
            .priority(8, class);
        let orders = orders.spawn(scripted(Script::new(&history))).unwrap();
        let producer = Producer::new(&history, orders);
        let mut sent = Vec::new();
        for key in [0, 700, 300, 1, 500] {
            sent.push(producer.send(key).await);
        }
        quiet().await;
        let report = within(async { producer.dispatcher.close().await }).await;
        let returned = report.returned.iter().filter_map(|b| b.message.as_ref());
        let ids: Vec<_> = returned.map(|message| message.id).collect();
        assert_eq!(ids, sent[1..], "in the order in which they were accepted");
    });
}

#[test]
fn classes_that_cannot_be_are_refused() {
    paused().block_on(async {
        let refused = |classes| {
            let script = Script::new(&History::new());
            dispatcher()
                .priority(classes, |_| 0)
                .spawn(scripted(script))
                .err()
        };
        assert_eq!(refused(0), Some(BuildError::Zero("priority")));
        assert_eq!(refused(9), Some(BuildError::TooLarge("priority")));
        assert_eq!((refused(1), refused(8)), (None, None));
    });
}
