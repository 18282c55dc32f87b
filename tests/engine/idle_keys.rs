//! G7: a key with nothing to do costs nothing. (The bytes are counted in the test binary `memory`.)

use keylane::watching::{LaneState, Stats};
use keylane::{OnExhausted, Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Producer, SECOND, assert_nothing_left, dispatcher, on_both, paused, quiet, scripted,
    threads, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, Script};
use tokio::task::JoinSet;

#[test]
fn a_lane_is_there_only_while_it_holds_or_runs_something() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history)
            .key(1, Act::ok().waits(&gate))
            .message(3, Act::error())
            .attempt(4, 1, Act::error());
        let orders = dispatcher()
            .retry(Retry::custom(|attempt, _| (attempt == 1).then_some(SECOND)))
            .on_exhausted(OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        assert_eq!(producer.dispatcher.inspect(&1), None);

        // In flight, and parked.
        producer.send_all(1, 2).await;
        quiet().await;
        assert_eq!(
            producer.dispatcher.inspect(&1).map(|view| view.depth),
            Some(2)
        );
        gate.release(1);
        quiet().await;
        assert_eq!(
            producer.dispatcher.inspect(&1).map(|view| view.depth),
            Some(1)
        );
        gate.release(1);
        quiet().await;
        assert_eq!(producer.dispatcher.inspect(&1), None);

        // Backing off, and halted.
        producer.send(2).await;
        producer.send(3).await;
        quiet().await;
        assert!(matches!(
            producer.dispatcher.inspect(&2).unwrap().state,
            LaneState::Backoff { .. }
        ));
        assert_eq!(producer.dispatcher.stats().lanes, 2);
        tokio::time::sleep(2 * SECOND).await;
        assert!(matches!(
            producer.dispatcher.inspect(&2).unwrap().state,
            LaneState::Halted { .. }
        ));
        assert_eq!(producer.dispatcher.inspect(&3), None);
        producer.dispatcher.lane(&2).skip().unwrap();
        assert_eq!(producer.dispatcher.inspect(&2), None);
        assert_eq!(producer.dispatcher.stats().lanes, 0);

        // Keyless messages have none at all.
        producer.send(None).await;
        assert_eq!(producer.dispatcher.stats().lanes, 0);
        producer.finish(Evidence::new().discarded([3])).await;
    });
}

#[test]
fn ten_thousand_keys_leave_no_lane_behind() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| match cue.id % 5 {
            0 if cue.attempt == 1 => Act::error(),
            1 => Act::ok().yields(1),
            _ => Act::ok(),
        });
        let orders = dispatcher()
            .lane_capacity(2, Overflow::Wait)
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for key in 0..10_000 {
            producer.send(key).await;
            if key % 50 == 0 {
                producer.send_all(key, 3).await;
            }
        }
        // Without an end: a dispatcher that lives on must be as empty as one that was drained.
        within(async {
            // The last lane is gone a moment before its runner counts as idle.
            let is_busy = |stats: Stats| stats.lanes > 0 || stats.in_flight > 0;
            while is_busy(producer.dispatcher.stats()) {
                quiet().await;
            }
        })
        .await;
        assert_nothing_left(&producer.dispatcher);
        producer.finish(Evidence::new()).await;
    });
}

/// A worker ended, or a lane was evicted, while its queue was being filled.
#[test]
fn a_lane_that_runs_empty_while_it_is_filled_is_not_lost() {
    threads().block_on(async {
        let history = History::new();
        let orders = dispatcher().spawn(scripted(Script::new(&history))).unwrap();
        let producer = Producer::new(&history, orders);
        let mut senders = JoinSet::new();
        for sender in 0..4 {
            let producer = producer.clone();
            senders.spawn(async move {
                // The lane comes and goes with nearly each message.
                for n in 0..2_000 {
                    producer.send(sender).await;
                    if n % 2 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        while let Some(sender) = within(senders.join_next()).await {
            sender.unwrap();
        }
        within(async {
            while producer.dispatcher.stats().done < 8_000 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        producer.finish(Evidence::new()).await;
    });
}
