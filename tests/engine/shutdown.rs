//! The ways to the end: several at once, given up half-way, by dropping every handle; and what
//! handlers, senders and handles see of it.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use keylane::error::{ReceiptError, ReserveError, SendError, TrySendError};
use keylane::{Dispatcher, Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, SECOND, assert_nothing_left, assert_report_adds_up, dispatcher, on_both,
    paused, quiet, scripted, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, Script};
use tokio::time::Instant;

use crate::support::boxed;

/// Two messages in flight at the gate, two behind them.
async fn busy() -> (Producer, Gate) {
    let history = History::new();
    let gate = Gate::new();
    let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
    let producer = Producer::new(&history, dispatcher().spawn(scripted(script)).unwrap());
    producer.send_all(1, 2).await;
    producer.send_all(2, 2).await;
    within(gate.arrivals(2)).await;
    (producer, gate)
}

#[test]
fn an_ending_that_is_not_awaited_does_nothing() {
    paused().block_on(async {
        let (producer, gate) = busy().await;
        drop(producer.dispatcher.drain());
        drop(producer.dispatcher.close().within(SECOND));
        drop(producer.dispatcher.abort().into_future());
        quiet().await;
        assert!(!producer.dispatcher.is_closed());
        producer.send(3).await;
        gate.open();
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn the_strictest_of_several_endings_counts_and_all_get_the_report() {
    on_both(|| async {
        let (producer, gate) = busy().await;
        let drains: Vec<_> = (0..3)
            .map(|_| tokio::spawn(producer.dispatcher.drain().into_future()))
            .collect();
        while !producer.dispatcher.is_closed() {
            tokio::task::yield_now().await;
        }
        let close = tokio::spawn(producer.dispatcher.close().into_future());
        let abort = tokio::spawn(producer.dispatcher.abort().into_future());
        let mut reports = vec![within(abort).await.unwrap(), within(close).await.unwrap()];
        for drain in drains {
            reports.push(within(drain).await.unwrap());
        }
        reports.push(producer.dispatcher.drain().await);
        for report in &reports {
            assert_report_adds_up(report);
            assert_eq!((report.accepted, report.handed_back), (4, 4));
            assert_eq!(report.interrupted, 2);
        }
        // The messages are in one of them.
        let returned: Vec<_> = reports.iter().map(|report| report.returned.len()).collect();
        assert_eq!(returned.iter().sum::<usize>(), 4, "{returned:?}");
        assert_eq!(returned.iter().max(), Some(&4), "{returned:?}");
        assert_eq!(gate.waiting(), 0, "the handlers were dropped");
        assert_nothing_left(&producer.dispatcher);
    });
}

#[test]
fn a_milder_ending_after_a_stricter_one_changes_nothing() {
    paused().block_on(async {
        let (producer, gate) = busy().await;
        let close = tokio::spawn(producer.dispatcher.close().into_future());
        quiet().await;
        let drain = tokio::spawn(producer.dispatcher.drain().into_future());
        quiet().await;
        gate.open();
        let report = close.await.unwrap();
        assert_eq!((report.done, report.handed_back), (2, 2));
        assert_eq!(drain.await.unwrap().done, 2);
    });
}

#[test]
fn the_earliest_of_several_deadlines_counts() {
    for (first, second) in [(SECOND, 60 * SECOND), (60 * SECOND, SECOND)] {
        paused().block_on(async {
            let (producer, _gate) = busy().await;
            let began = Instant::now();
            let one = tokio::spawn(producer.dispatcher.drain().within(first).into_future());
            quiet().await;
            let two = tokio::spawn(producer.dispatcher.drain().within(second).into_future());
            let report = one.await.unwrap();
            assert!(report.deadline_reached);
            assert!(two.await.unwrap().deadline_reached);
            assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
        });
    }
}

#[test]
fn a_deadline_of_nothing_is_an_abort() {
    paused().block_on(async {
        let (producer, _gate) = busy().await;
        let report = within(
            producer
                .dispatcher
                .close()
                .within(Duration::ZERO)
                .into_future(),
        )
        .await;
        assert!(report.deadline_reached);
        assert_eq!(report.handed_back, 4);
    });
}

#[test]
fn a_deadline_beyond_all_time_is_none() {
    paused().block_on(async {
        let (producer, gate) = busy().await;
        gate.open();
        let report = producer.dispatcher.drain().within(Duration::MAX).await;
        assert_eq!((report.done, report.deadline_reached), (4, false));
    });
}

#[test]
fn an_ending_given_up_half_way_goes_on_with_its_deadline() {
    paused().block_on(async {
        let (producer, _gate) = busy().await;
        let began = Instant::now();
        let mut ending = producer.dispatcher.drain().within(SECOND).into_future();
        assert!((&mut ending).now_or_never().is_none());
        drop(ending);
        assert!(producer.dispatcher.is_closed());
        let report = producer.dispatcher.drain().await;
        assert!(report.deadline_reached);
        assert!((SECOND..2 * SECOND).contains(&began.elapsed()));
        assert_eq!((report.handed_back, report.returned.len()), (4, 4));
    });
}

#[test]
fn after_the_end_every_way_in_is_closed_and_every_report_the_same() {
    paused().block_on(async {
        let (producer, gate) = busy().await;
        gate.open();
        let reserved = producer.dispatcher.clone();
        let permit = reserved.reserve().await.unwrap();
        let report = producer.dispatcher.drain().await;
        let message = Message {
            key: Some(1),
            id: 77,
        };
        assert_eq!(
            producer.dispatcher.send(message.clone()).await,
            Err(SendError::Closed(message.clone()))
        );
        assert!(matches!(
            producer.dispatcher.submit(message.clone()).await,
            Err(SendError::Closed(_))
        ));
        assert_eq!(
            producer.dispatcher.try_send(message.clone()),
            Err(TrySendError::Closed(message.clone()))
        );
        assert!(matches!(
            producer.dispatcher.try_submit(message.clone()),
            Err(TrySendError::Closed(_))
        ));
        assert_eq!(
            producer.dispatcher.reserve().await.err(),
            Some(ReserveError)
        );
        // Room that was taken before gives the message back, too.
        assert_eq!(
            permit.send(message.clone()),
            Err(TrySendError::Closed(message))
        );
        let again = producer.dispatcher.clone().abort().await;
        assert_eq!(again, report);
        producer.judge(&again, Evidence::new());
    });
}

#[test]
fn dropping_every_handle_closes_and_handles_what_was_accepted() {
    on_both(|| async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history)
            .otherwise(Act::ok().waits(&gate))
            .attempt(3, 1, Act::error());
        let orders = dispatcher()
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut receipts = Vec::new();
        for key in [1, 1, 2, 3] {
            receipts.push(producer.submit(key).await);
        }
        let (ending, lane) = (producer.dispatcher.drain(), producer.dispatcher.lane(&1));
        let clone = producer.dispatcher.clone();
        drop(producer);
        quiet().await;
        clone
            .send(Message {
                key: Some(4),
                id: 5,
            })
            .await
            .unwrap();
        drop(clone);
        gate.open();
        for receipt in receipts {
            within(receipt).await.unwrap();
        }
        // What cannot send does not keep it open.
        let report = within(ending.into_future()).await;
        assert_eq!((report.accepted, report.done), (5, 5));
        assert_eq!(lane.inspect(), None);
    });
}

#[test]
fn dropping_every_handle_hands_halted_messages_back_to_their_receipts() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::error());
        let orders = dispatcher()
            .on_exhausted(keylane::OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let receipts = [producer.submit(1).await, producer.submit(1).await];
        quiet().await;
        drop(producer);
        for (receipt, tried) in receipts.into_iter().zip([1, 0]) {
            let told = within(receipt).await;
            let Err(ReceiptError::HandedBack { attempts, .. }) = told else {
                panic!("{told:?}")
            };
            assert_eq!(attempts, tried);
        }
    });
}

/// A handler is told when it may stop early: on `close` and `abort`, and not while draining.
#[test]
fn handlers_hear_of_close_and_not_of_drain() {
    const TO_ITS_END: u64 = 1;
    const TOLD_TO_STOP: u64 = 2;
    paused().block_on(async {
        let orders = Dispatcher::builder(|n: &u64| *n)
            .spawn(boxed(|ctx, _| async move {
                tokio::select! {
                    () = ctx.cancelled() => Ok(TOLD_TO_STOP),
                    () = tokio::time::sleep(10 * SECOND) => Ok(TO_ITS_END),
                }
            }))
            .unwrap();
        let first = orders.submit(1).await.unwrap();
        quiet().await;
        let drain = tokio::spawn(orders.drain().into_future());
        assert_eq!(first.await, Ok(TO_ITS_END));
        drain.await.unwrap();

        let orders = Dispatcher::builder(|n: &u64| *n)
            .spawn(boxed(|ctx, _| async move {
                assert!(!ctx.is_cancelled());
                ctx.cancelled().await;
                ctx.is_cancelled().then_some(TOLD_TO_STOP).ok_or(())
            }))
            .unwrap();
        let first = orders.submit(1).await.unwrap();
        quiet().await;
        let report = orders.close().await;
        assert_eq!(first.await, Ok(TOLD_TO_STOP));
        assert_eq!(report.done, 1);
    });
}

/// When the last handle and the report are gone, nothing of the dispatcher is left: no task, and
/// not the handler with what it holds.
#[test]
fn nothing_is_left_of_a_dispatcher_that_has_ended() {
    for how in 0..4 {
        paused().block_on(async {
            let held = Arc::new(());
            let weak = Arc::downgrade(&held);
            let metrics = tokio::runtime::Handle::current().metrics();
            let orders = Dispatcher::builder(|n: &u64| n % 3)
                .spawn(boxed(move |_, n| {
                    let held = Arc::clone(&held);
                    async move {
                        tokio::time::sleep(MS).await;
                        drop(held);
                        Ok(n)
                    }
                }))
                .unwrap();
            for n in 0..20 {
                orders.send(n).await.unwrap();
            }
            assert!(metrics.num_alive_tasks() > 0);
            match how {
                0 => drop(orders.drain().await),
                1 => drop(orders.close().await),
                2 => drop(orders.abort().await),
                _ => tokio::time::sleep(SECOND).await,
            }
            drop(orders);
            quiet().await;
            assert_eq!(metrics.num_alive_tasks(), 0, "way {how}");
            assert_eq!(weak.strong_count(), 0, "way {how}");
        });
    }
}

/// A lane that was paused while its head was with its handler is not resumed at the end.
#[test]
fn a_drain_hands_back_what_waits_in_a_paused_lane_behind_a_head_in_flight() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).message(1, Act::ok().waits(&gate));
        let producer = Producer::new(&history, dispatcher().spawn(scripted(script)).unwrap());
        producer.send_all(1, 3).await;
        quiet().await;
        producer.dispatcher.lane(&1).pause();
        let ending = producer.dispatcher.drain();
        let ending = tokio::spawn(async move { ending.await });
        quiet().await;
        gate.open();
        let report = within(ending).await.unwrap();
        assert_eq!((report.done, report.handed_back), (1, 2));
        producer.judge(&report, Evidence::new().handed_back([2, 3]));
    });
}

/// Drain went on taking messages in.
#[test]
fn drain_stops_the_intake() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let orders = dispatcher()
            .capacity(3)
            .lane_capacity(2, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send_all(1, 2).await;
        quiet().await;
        // One waits at the gate of the lane, one for room.
        let (at_gate, for_room) = (producer.next(1), producer.next(3));
        let mut at_gate_send = Box::pin(producer.dispatcher.send(at_gate.0));
        assert!((&mut at_gate_send).now_or_never().is_none());
        producer.send(2).await;
        let mut for_room_send = Box::pin(producer.dispatcher.send(for_room.0));
        assert!((&mut for_room_send).now_or_never().is_none());

        let mut drain = Box::pin(std::future::IntoFuture::into_future(
            producer.dispatcher.drain(),
        ));
        assert!((&mut drain).now_or_never().is_none());
        // From the first moment on, and for all ways in.
        assert!(producer.dispatcher.is_closed());
        let refused = producer.try_send(4).unwrap_err();
        assert!(matches!(refused, TrySendError::Closed(_)), "{refused:?}");
        assert_eq!(
            producer.dispatcher.reserve().await.err(),
            Some(ReserveError)
        );
        let (message, sending) = producer.next(5);
        assert!(producer.dispatcher.send(message).await.is_err());
        sending.fail();
        assert!(within(at_gate_send).await.is_err());
        at_gate.1.fail();
        assert!(within(for_room_send).await.is_err());
        for_room.1.fail();

        gate.open();
        let report = drain.await;
        assert_eq!((report.accepted, report.done), (3, 3));
        producer.judge(&report, Evidence::new());
    });
}

/// A shutdown without a drain killed what was in flight.
#[test]
fn close_does_not_kill_what_is_in_flight() {
    on_both(|| async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate).yields(3));
        let producer = Producer::new(&history, dispatcher().spawn(scripted(script)).unwrap());
        for key in 0..5 {
            producer.send_all(key, 2).await;
        }
        within(gate.arrivals(5)).await;
        let close = tokio::spawn(std::future::IntoFuture::into_future(
            producer.dispatcher.close(),
        ));
        while !producer.dispatcher.is_closed() {
            tokio::task::yield_now().await;
        }
        gate.open();
        let report = within(close).await.unwrap();
        assert_eq!(
            (report.done, report.handed_back, report.interrupted),
            (5, 5, 0)
        );
        let back: Vec<_> = report
            .returned
            .iter()
            .map(|b| b.message.as_ref().unwrap().id)
            .collect();
        producer.judge(&report, Evidence::new().handed_back(back));
    });
}
