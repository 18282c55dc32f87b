//! The ways to the end: several at once, given up half-way, by dropping every handle; and what
//! handlers, senders and handles see of it.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use keylane::{Context, Dispatcher, ReceiptError, ReserveError, Retry, SendError, TrySendError};
use keylane_testkit::{Act, Evidence, Gate, History, Script};
use tokio::time::Instant;

use crate::rig::{
    Desk, MS, Mail, SECOND, assert_empty, assert_honest, mails, on_both, paused, quiet, scripted,
    within,
};

/// Two messages in flight at the gate, two behind them.
async fn busy() -> (Desk, Gate) {
    let history = History::new();
    let gate = Gate::new();
    let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
    let desk = Desk::new(&history, mails().spawn(scripted(script)).unwrap());
    desk.send_all(1, 2).await;
    desk.send_all(2, 2).await;
    within(gate.arrivals(2)).await;
    (desk, gate)
}

#[test]
fn an_ending_that_is_not_awaited_does_nothing() {
    paused().block_on(async {
        let (desk, gate) = busy().await;
        drop(desk.mails.drain());
        drop(desk.mails.close().within(SECOND));
        drop(desk.mails.abort().into_future());
        quiet().await;
        assert!(!desk.mails.is_closed());
        desk.send(3).await;
        gate.open();
        desk.finish(Evidence::new()).await;
    });
}

#[test]
fn the_strictest_of_several_endings_counts_and_all_get_the_report() {
    on_both(|| async {
        let (desk, gate) = busy().await;
        let drains: Vec<_> = (0..3)
            .map(|_| tokio::spawn(desk.mails.drain().into_future()))
            .collect();
        while !desk.mails.is_closed() {
            tokio::task::yield_now().await;
        }
        let close = tokio::spawn(desk.mails.close().into_future());
        let abort = tokio::spawn(desk.mails.abort().into_future());
        let mut reports = vec![within(abort).await.unwrap(), within(close).await.unwrap()];
        for drain in drains {
            reports.push(within(drain).await.unwrap());
        }
        reports.push(desk.mails.drain().await);
        for report in &reports {
            assert_honest(report);
            assert_eq!((report.accepted, report.handed_back), (4, 4));
            assert_eq!(report.interrupted, 2);
        }
        // The messages are in one of them.
        let returned: Vec<_> = reports.iter().map(|report| report.returned.len()).collect();
        assert_eq!(returned.iter().sum::<usize>(), 4, "{returned:?}");
        assert_eq!(returned.iter().max(), Some(&4), "{returned:?}");
        assert_eq!(gate.waiting(), 0, "the handlers were dropped");
        assert_empty(&desk.mails);
    });
}

#[test]
fn a_milder_ending_after_a_stricter_one_changes_nothing() {
    paused().block_on(async {
        let (desk, gate) = busy().await;
        let close = tokio::spawn(desk.mails.close().into_future());
        quiet().await;
        let drain = tokio::spawn(desk.mails.drain().into_future());
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
            let (desk, _gate) = busy().await;
            let began = Instant::now();
            let one = tokio::spawn(desk.mails.drain().within(first).into_future());
            quiet().await;
            let two = tokio::spawn(desk.mails.drain().within(second).into_future());
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
        let (desk, _gate) = busy().await;
        let report = within(desk.mails.close().within(Duration::ZERO).into_future()).await;
        assert!(report.deadline_reached);
        assert_eq!(report.handed_back, 4);
    });
}

#[test]
fn a_deadline_beyond_all_time_is_none() {
    paused().block_on(async {
        let (desk, gate) = busy().await;
        gate.open();
        let report = desk.mails.drain().within(Duration::MAX).await;
        assert_eq!((report.done, report.deadline_reached), (4, false));
    });
}

#[test]
fn an_ending_given_up_half_way_goes_on_with_its_deadline() {
    paused().block_on(async {
        let (desk, _gate) = busy().await;
        let began = Instant::now();
        let mut ending = desk.mails.drain().within(SECOND).into_future();
        assert!((&mut ending).now_or_never().is_none());
        drop(ending);
        assert!(desk.mails.is_closed());
        let report = desk.mails.drain().await;
        assert!(report.deadline_reached);
        assert!((SECOND..2 * SECOND).contains(&began.elapsed()));
        assert_eq!((report.handed_back, report.returned.len()), (4, 4));
    });
}

#[test]
fn after_the_end_every_way_in_is_closed_and_every_report_the_same() {
    paused().block_on(async {
        let (desk, gate) = busy().await;
        gate.open();
        let reserved = desk.mails.clone();
        let permit = reserved.reserve().await.unwrap();
        let report = desk.mails.drain().await;
        let mail = Mail {
            key: Some(1),
            id: 77,
        };
        assert_eq!(
            desk.mails.send(mail.clone()).await,
            Err(SendError::Closed(mail.clone()))
        );
        assert!(matches!(
            desk.mails.submit(mail.clone()).await,
            Err(SendError::Closed(_))
        ));
        assert_eq!(
            desk.mails.try_send(mail.clone()),
            Err(TrySendError::Closed(mail.clone()))
        );
        assert!(matches!(
            desk.mails.try_submit(mail.clone()),
            Err(TrySendError::Closed(_))
        ));
        assert_eq!(desk.mails.reserve().await.err(), Some(ReserveError));
        // Room that was taken before gives the message back, too.
        assert_eq!(permit.send(mail.clone()), Err(TrySendError::Closed(mail)));
        let again = desk.mails.clone().abort().await;
        assert_eq!(again, report);
        desk.judge(&again, Evidence::new());
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
        let orders = mails()
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        let mut receipts = Vec::new();
        for key in [1, 1, 2, 3] {
            receipts.push(desk.submit(key).await);
        }
        let (ending, lane) = (desk.mails.drain(), desk.mails.lane(&1));
        let clone = desk.mails.clone();
        drop(desk);
        quiet().await;
        clone
            .send(Mail {
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
        let orders = mails()
            .on_exhausted(keylane::Exhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        let receipts = [desk.submit(1).await, desk.submit(1).await];
        quiet().await;
        drop(desk);
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
    paused().block_on(async {
        let orders = Dispatcher::builder(|n: &u64| *n)
            .spawn(|ctx: Context<u64>, _: u64| async move {
                tokio::select! {
                    () = ctx.cancelled() => Ok::<_, ()>("told to stop"),
                    () = tokio::time::sleep(10 * SECOND) => Ok("to its end"),
                }
            })
            .unwrap();
        let first = orders.submit(1).await.unwrap();
        quiet().await;
        let drain = tokio::spawn(orders.drain().into_future());
        assert_eq!(first.await, Ok("to its end"));
        drain.await.unwrap();

        let orders = Dispatcher::builder(|n: &u64| *n)
            .spawn(|ctx: Context<u64>, _: u64| async move {
                assert!(!ctx.is_cancelled());
                ctx.cancelled().await;
                Ok::<_, ()>(ctx.is_cancelled())
            })
            .unwrap();
        let first = orders.submit(1).await.unwrap();
        quiet().await;
        let report = orders.close().await;
        assert_eq!(first.await, Ok(true));
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
                .spawn(move |n: u64| {
                    let held = Arc::clone(&held);
                    async move {
                        tokio::time::sleep(MS).await;
                        drop(held);
                        Ok::<_, ()>(n)
                    }
                })
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

/// A lane that was paused while its head was with its handler has nobody to resume it at the end.
#[test]
fn a_drain_hands_back_what_waits_in_a_paused_lane_behind_a_head_in_flight() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).message(1, Act::ok().waits(&gate));
        let desk = Desk::new(&history, mails().spawn(scripted(script)).unwrap());
        desk.send_all(1, 3).await;
        quiet().await;
        desk.mails.lane(&1).pause();
        let ending = desk.mails.drain();
        let ending = tokio::spawn(async move { ending.await });
        quiet().await;
        gate.open();
        let report = within(ending).await.unwrap();
        assert_eq!((report.done, report.handed_back), (1, 2));
        desk.judge(&report, Evidence::new().handed_back([2, 3]));
    });
}
