//! G6: every queue has a limit, a default, and a documented behaviour at the limit.

use keylane::error::{SendError, TrySendError};
use keylane::{Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, SECOND, assert_nothing_left, dispatcher, paused, quiet, scripted,
};
use keylane_testkit::{Act, Evidence, Gate, History, Script};

#[test]
fn the_defaults_are_as_documented() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let producer = Producer::new(&history, dispatcher().spawn(scripted(script)).unwrap());
        assert_eq!(producer.dispatcher.stats().capacity_left, 65_536);

        // Concurrency.
        for key in 0..300 {
            producer.send(key).await;
        }
        quiet().await;
        assert_eq!(gate.waiting(), 256);
        assert_eq!(producer.dispatcher.stats().ready, 300 - 256);
        assert_eq!(producer.dispatcher.stats().capacity_left, 65_536 - 300);

        // The limit of a lane: senders wait.
        producer.send_all(0, 1_023).await;
        quiet().await;
        assert_eq!(producer.dispatcher.stats().full_lanes, 1);
        let (message, sending) = producer.next(0);
        let refused = producer.dispatcher.try_send(message).unwrap_err();
        assert!(matches!(refused, TrySendError::LaneFull(_)), "{refused}");
        sending.fail();
        let (message, sending) = producer.next(0);
        assert!(
            tokio::time::timeout(SECOND, producer.dispatcher.send(message))
                .await
                .is_err()
        );
        sending.fail();
        gate.open();
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn never_more_handlers_in_flight_than_the_concurrency() {
    for concurrency in [1, 2, 7] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
            let orders = dispatcher()
                .concurrency(concurrency)
                .spawn(scripted(script))
                .unwrap();
            let producer = Producer::new(&history, orders);
            for n in 0..50 {
                producer.send((n % 5 != 0).then_some(n % 20)).await;
            }
            for _ in 0..50 / concurrency {
                quiet().await;
                assert_eq!(gate.waiting(), concurrency);
                assert_eq!(producer.dispatcher.stats().in_flight, concurrency);
                gate.release(concurrency);
            }
            gate.open();
            producer.finish(Evidence::new()).await;
        });
    }
}

#[test]
fn at_the_capacity_senders_wait_and_room_comes_back_with_settlements() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let orders = dispatcher().capacity(10).spawn(scripted(script)).unwrap();
        let producer = Producer::new(&history, orders);
        for key in 0..10 {
            producer.send(key).await;
        }
        // What waits for a permit counts, and what is in flight, and what is parked.
        let (message, sending) = producer.next(3);
        assert_eq!(
            producer.dispatcher.try_send(message.clone()),
            Err(TrySendError::Full(message))
        );
        sending.fail();
        let waiting = tokio::spawn({
            let producer = producer.clone();
            async move { producer.send(99).await }
        });
        quiet().await;
        assert!(!waiting.is_finished());
        assert_eq!(producer.dispatcher.stats().capacity_left, 0);
        gate.release(1);
        quiet().await;
        assert!(waiting.is_finished());
        assert_eq!(producer.dispatcher.stats().capacity_left, 0);
        gate.open();
        quiet().await;
        assert_eq!(producer.dispatcher.stats().capacity_left, 10);
        producer.finish(Evidence::new()).await;
    });
}

/// What waits for a retry, and what is parked behind it, is counted apart and is counted.
#[test]
fn failing_keys_hold_no_more_than_their_own_limit_and_the_capacity() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::error());
        let orders = dispatcher()
            .capacity(16)
            .stalled_capacity(24)
            .retry(Retry::fixed(SECOND).max_attempts(u32::MAX))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut accepted = 0;
        let mut refused = 0;
        while refused < 100 {
            match producer.try_send(accepted % 10) {
                Ok(_) => accepted += 1,
                Err(TrySendError::Full(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            tokio::time::sleep(17 * MS).await;
        }
        assert_eq!(accepted, 16 + 24);
        let stats = producer.dispatcher.stats();
        assert_eq!((stats.stalled, stats.capacity_left), (24, 0));

        let report = producer.dispatcher.abort().await;
        assert_eq!(report.returned.len(), 40);
        let back = report
            .returned
            .iter()
            .map(|back| back.message.as_ref().unwrap().id);
        producer.judge(
            &report,
            Evidence::new().handed_back(back.collect::<Vec<_>>()),
        );
        assert_eq!(producer.dispatcher.stats().capacity_left, 16);
    });
}

#[test]
fn the_capacity_in_bytes_limits_and_comes_back() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        // A message is as large as its key.
        let orders = dispatcher()
            .capacity_bytes(100, |message: &Message| message.key.unwrap_or(0) as usize)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send(60).await;
        producer.send(40).await;
        // Nothing fits, but what has no size does.
        assert!(matches!(producer.try_send(1), Err(TrySendError::Full(_))));
        producer.try_send(0).unwrap();
        let (message, sending) = producer.next(41);
        let large = tokio::time::timeout(SECOND, producer.dispatcher.send(message)).await;
        assert!(large.is_err(), "41 bytes are not there");
        sending.fail();
        gate.release(3);
        quiet().await;

        // Never, however long one waits.
        let (message, sending) = producer.next(101);
        assert_eq!(
            producer.dispatcher.send(message.clone()).await,
            Err(SendError::TooLarge(message.clone()))
        );
        assert_eq!(
            producer.dispatcher.try_send(message.clone()),
            Err(TrySendError::TooLarge(message.clone()))
        );
        let permit = producer.dispatcher.reserve().await.unwrap();
        assert_eq!(
            permit.send(message.clone()),
            Err(TrySendError::TooLarge(message))
        );
        sending.fail();

        // All of it is back: the largest message fits again, and again.
        gate.open();
        for _ in 0..5 {
            producer.send(100).await;
        }
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn stalled_messages_give_their_bytes_back_and_return_none_twice() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history)
            .otherwise(Act::ok().waits(&gate))
            .attempt(1, 1, Act::error())
            .attempt(1, 2, Act::ok())
            .message(2, Act::ok());
        let orders = dispatcher()
            .capacity_bytes(10, |_: &Message| 5)
            .retry(Retry::fixed(SECOND))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send_all(1, 2).await;
        quiet().await;
        // Both are stalled now, so there is room for two again, and for no more.
        producer.send_all(2, 2).await;
        assert!(matches!(producer.try_send(3), Err(TrySendError::Full(_))));
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(
            producer.dispatcher.stats().done,
            2,
            "the stalled ones are settled"
        );
        // Their bytes went back when they stalled, and not once more.
        assert!(matches!(producer.try_send(3), Err(TrySendError::Full(_))));
        gate.open();
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn a_dropped_permit_gives_its_room_back() {
    paused().block_on(async {
        let history = History::new();
        let orders = dispatcher()
            .capacity(2)
            .spawn(scripted(Script::new(&history)))
            .unwrap();
        let one = orders.reserve().await.unwrap();
        let two = orders.reserve().await.unwrap();
        assert_eq!(orders.stats().capacity_left, 0);
        assert!(
            tokio::time::timeout(SECOND, orders.reserve())
                .await
                .is_err()
        );
        drop(one);
        assert_eq!(orders.stats().capacity_left, 1);
        two.send(Message {
            key: Some(1),
            id: 1,
        })
        .unwrap();
        quiet().await;
        assert_eq!(orders.stats().capacity_left, 2);
        assert_eq!(orders.drain().await.done, 1);
        assert_nothing_left(&orders);
    });
}

/// The queue of retries had no limit: memory ran out.
#[test]
fn retries_are_bounded() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::error());
        let orders = dispatcher()
            .lane_capacity(5, Overflow::Reject)
            .retry(Retry::fixed(SECOND).max_attempts(u32::MAX))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut accepted = Vec::new();
        for _ in 0..200 {
            match producer.try_send(1) {
                Ok(id) => accepted.push(id),
                Err(error) => assert!(matches!(error, TrySendError::LaneFull(_)), "{error}"),
            }
            tokio::time::sleep(SECOND / 3).await;
        }
        assert_eq!(accepted.len(), 5);
        let stats = producer.dispatcher.stats();
        assert_eq!((stats.lanes, stats.backing_off, stats.stalled), (1, 1, 5));
        let report = producer.dispatcher.abort().await;
        producer.judge(&report, Evidence::new().handed_back(accepted));
    });
}
