//! Lanes that start only while the lease of their key is held, with leases that do as they are told.

mod lanes;
mod load;
mod office;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use keylane::discipline::{Coalesce, Sequence};
use keylane::error::{BoxError, ReceiptError};
use keylane::watching::{Event, LaneState};
use keylane::{DeadLetter, DeadLetterSink, Dispatcher, OnExhausted, Overflow, Rate, Retry};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use self::office::{Call, LINGER, Leases, Log, MS, Message, builder, plain, rig, settle};

#[tokio::test(start_paused = true)]
async fn a_message_starts_under_its_lease() {
    let leases = Leases::new();
    let rig = plain(&leases);
    for message in [10, 11, 20] {
        rig.submit(message).await.await.unwrap();
    }
    let started = [(10, 1, Some(1)), (11, 1, Some(1)), (20, 1, Some(2))];
    assert_eq!(rig.log.started(), started);
    assert_eq!((leases.held(), leases.calls()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_key_needs_none() {
    let leases = Leases::new();
    leases.tell(|state| state.all_taken = true);
    let rig = rig(&leases, Dispatcher::key_by_opt(|_: &Message| None));
    rig.submit(10).await.await.unwrap();
    assert_eq!(rig.log.started(), [(10, 1, None)]);
    assert_eq!(leases.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_shows_why_and_holds_up_no_other() {
    let leases = Leases::new();
    leases.take(1);
    let rig = rig(&leases, builder().concurrency(1).capacity(2));
    let waits = rig.submit(10).await;
    let behind = rig.submit(11).await;
    settle().await;
    rig.assert_waits(1);
    assert_eq!(rig.lanes.inspect(&1).unwrap().depth, 2);
    assert_eq!(rig.lanes.stats().capacity_left, 2, "they do not count");
    for message in 20..28 {
        rig.submit(message).await.await.unwrap();
    }
    leases.leave(1);
    waits.await.unwrap();
    behind.await.unwrap();
    let mine: Vec<_> = rig.log.done().into_iter().filter(|m| *m < 20).collect();
    assert_eq!(mine, [10, 11], "in order");
}

#[tokio::test(start_paused = true)]
async fn an_idle_key_keeps_its_lease_for_a_moment() {
    let leases = Leases::new();
    let rig = plain(&leases);
    rig.submit(10).await.await.unwrap();
    sleep(LINGER - MS).await;
    assert_eq!(leases.held(), 1);
    rig.submit(11).await.await.unwrap();
    assert_eq!(leases.calls(), 1, "it is still here");
    sleep(LINGER - MS).await;
    assert_eq!(leases.held(), 1, "it was used meanwhile");
    sleep(LINGER * 2).await;
    assert_eq!((leases.held(), rig.lanes.stats().lanes), (0, 0));
    rig.submit(12).await.await.unwrap();
    assert_eq!(leases.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_as_long_as_its_lane() {
    let leases = Leases::new();
    let rig = plain(&leases);
    let slow = rig.submit(19).await;
    sleep(LINGER * 10).await;
    assert_eq!((leases.held(), rig.log.running()), (1, 1));
    rig.gate.add_permits(1);
    slow.await.unwrap();
    // It lingers from when its lane has gone, however long that was there.
    sleep(LINGER - MS).await;
    assert_eq!(leases.held(), 1);
    sleep(LINGER * 2).await;
    assert_eq!(leases.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_linger_of_nothing_gives_it_up_soon() {
    let leases = Leases::lingering(Duration::ZERO);
    let rig = plain(&leases);
    rig.submit(10).await.await.unwrap();
    sleep(12 * MS).await;
    assert_eq!(leases.held(), 0);
    let slow = rig.submit(19).await;
    sleep(100 * MS).await;
    assert_eq!(leases.held(), 1, "it is in use");
    rig.gate.add_permits(1);
    slow.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_the_attempt() {
    let leases = Leases::new();
    let rig = plain(&leases);
    let slow = rig.submit(19).await;
    let behind = rig.submit(11).await;
    settle().await;
    assert_eq!(rig.log.running(), 1);
    leases.lose(1);
    settle().await;
    assert_eq!((rig.log.running(), leases.held()), (0, 0));
    rig.assert_waits(1);
    rig.gate.add_permits(1);
    sleep(LINGER * 10).await;
    assert_eq!(rig.log.done(), [0; 0], "another has the key");
    leases.leave(1);
    slow.await.unwrap();
    behind.await.unwrap();
    let started = [(19, 1, Some(1)), (19, 1, Some(2)), (11, 1, Some(2))];
    assert_eq!(rig.log.started(), started, "the attempt does not count");
    let stats = rig.lanes.stats();
    assert_eq!((stats.failures, stats.retries), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_seen_by_the_clock_before_the_next_poll() {
    let leases = Leases::new();
    let rig = plain(&leases);
    let slow = rig.submit(19).await;
    settle().await;
    let flag = leases.lose_silently(1);
    sleep(MS).await;
    assert_eq!(rig.log.running(), 1, "nothing has woken it");
    // It would end with this poll.
    rig.gate.add_permits(1);
    settle().await;
    assert_eq!((rig.log.running(), rig.log.done()), (0, vec![]));
    drop(flag);
    leases.leave(1);
    rig.gate.add_permits(1);
    slow.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_between_two_messages_is_not_used() {
    let leases = Leases::new();
    let rig = plain(&leases);
    rig.submit(10).await.await.unwrap();
    drop(leases.lose_silently(1));
    sleep(MS).await;
    let next = rig.submit(11).await;
    settle().await;
    rig.assert_waits(1);
    leases.leave(1);
    next.await.unwrap();
    assert_eq!(rig.log.started()[1], (11, 1, Some(2)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_while_its_message_waits_for_a_runner_is_not_used() {
    let leases = Leases::new();
    let rig = rig(&leases, builder().concurrency(1));
    rig.submit(20).await.await.unwrap();
    rig.submit(30).await.await.unwrap();
    let slow = rig.submit(19).await;
    settle().await;
    let (lost, kept) = (rig.submit(21).await, rig.submit(31).await);
    settle().await;
    assert_eq!((leases.held(), rig.log.running()), (3, 1));
    drop(leases.lose_silently(2));
    rig.gate.add_permits(1);
    slow.await.unwrap();
    kept.await.unwrap();
    rig.assert_waits(2);
    leases.leave(2);
    lost.await.unwrap();
    let started = rig.log.started();
    assert_eq!(started[3..], [(31, 1, Some(2)), (21, 1, Some(4))]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_the_lease_and_keeps_its_number() {
    let leases = Leases::new();
    let retry = Retry::fixed(50 * MS).max_attempts(2);
    let rig = rig(&leases, builder().retry(retry));
    let failing = rig.submit(18).await;
    settle().await;
    leases.lose(1);
    sleep(60 * MS).await;
    rig.assert_waits(1);
    leases.leave(1);
    let failed = failing.await;
    assert!(matches!(failed, Err(ReceiptError::Failed(_))), "{failed:?}");
    assert_eq!(rig.log.started(), [(18, 1, Some(1)), (18, 2, Some(2))]);
    assert_eq!(rig.lanes.stats().retries, 1);
}

#[derive(Clone, Default)]
struct Letters {
    accepted: Arc<Mutex<Vec<Message>>>,
    running: Arc<AtomicUsize>,
    gate: Arc<Notify>,
}

#[keylane::async_trait]
impl DeadLetterSink<u64, Message, ()> for Letters {
    async fn accept(&self, letter: &DeadLetter<u64, Message, ()>) -> Result<(), BoxError> {
        self.running.fetch_add(1, Ordering::SeqCst);
        let _running = Call(&self.running);
        self.gate.notified().await;
        self.accepted.lock().unwrap().push(letter.message);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_delivered_under_the_lease() {
    let (leases, letters) = (Leases::new(), Letters::default());
    let exhausted = OnExhausted::dead_letter(letters.clone());
    let rig = rig(&leases, builder().on_exhausted(exhausted));
    let failing = rig.submit(18).await;
    let behind = rig.submit(11).await;
    settle().await;
    let running = || letters.running.load(Ordering::SeqCst);
    assert_eq!(running(), 1);
    leases.lose(1);
    settle().await;
    assert_eq!(running(), 0, "the delivery is dropped");
    rig.assert_waits(1);
    leases.leave(1);
    settle().await;
    assert_eq!(running(), 1);
    assert_eq!(rig.lanes.stats().letter_failures, 0);
    letters.gate.notify_one();
    let failed = failing.await;
    assert!(matches!(failed, Err(ReceiptError::DeadLettered(_))));
    behind.await.unwrap();
    assert_eq!(*letters.accepted.lock().unwrap(), [18]);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_the_lease() {
    let leases = Leases::new();
    leases.take(1);
    let rig = plain(&leases);
    for message in [10, 11, 20] {
        rig.lanes.send(message).await.unwrap();
    }
    let mut drain = Box::pin(rig.lanes.drain().into_future());
    assert!(timeout(LINGER * 100, &mut drain).await.is_err());
    leases.leave(1);
    let report = drain.await;
    assert_eq!((report.done, report.handed_back), (3, 0));
    assert_eq!((leases.held(), leases.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn close_abort_and_a_deadline_hand_back_what_waits() {
    for end in 0..3 {
        let leases = Leases::new();
        leases.take(1);
        leases.take(3);
        let rig = plain(&leases);
        // Two that have not started, and one that was dropped with its lease.
        let lost = rig.submit(29).await;
        settle().await;
        for message in [10, 11, 30] {
            rig.lanes.send(message).await.unwrap();
        }
        settle().await;
        leases.lose(2);
        settle().await;
        let report = match end {
            0 => rig.lanes.close().await,
            1 => rig.lanes.abort().await,
            _ => rig.lanes.drain().within(LINGER).await,
        };
        let back: Vec<_> = report.returned.iter().map(|back| back.message).collect();
        assert_eq!(back, [Some(10), Some(11), Some(30)], "{end}");
        let answer = lost.await;
        let attempts = match &answer {
            Err(ReceiptError::HandedBack {
                message: 29,
                attempts,
            }) => *attempts,
            _ => panic!("{answer:?}"),
        };
        assert_eq!(attempts, 0, "what was dropped does not count");
        assert_eq!((report.accepted, report.handed_back), (4, 4));
        settle().await;
        assert_eq!((leases.held(), leases.waiting()), (0, 0), "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn abort_drops_what_runs_before_its_lease_is_given_up() {
    let leases = Leases::new();
    let rig = plain(&leases);
    rig.lanes.send(19).await.unwrap();
    settle().await;
    let report = rig.lanes.abort().await;
    assert_eq!((report.interrupted, rig.log.running()), (1, 0));
    assert_eq!(leases.held(), 0);
}

#[test]
fn the_runtime_is_dropped_while_heads_wait() {
    let leases = Leases::new();
    leases.take(1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let (rig, waits, runs) = runtime.block_on(async {
        let rig = plain(&leases);
        let (waits, runs) = (rig.submit(10).await, rig.submit(29).await);
        settle().await;
        (rig, waits, runs)
    });
    assert_eq!((leases.held(), leases.waiting()), (1, 1));
    drop(runtime);
    assert_eq!((leases.held(), leases.waiting()), (0, 0));
    let answers = [waits, runs].map(|receipt| receipt.now_or_never());
    assert!(matches!(
        answers[0],
        Some(Err(ReceiptError::HandedBack { message: 10, .. }))
    ));
    assert!(matches!(
        answers[1],
        Some(Err(ReceiptError::Interrupted(Some(29))))
    ));
    let report = rig.lanes.drain().into_future().now_or_never().unwrap();
    assert_eq!((report.accepted, report.handed_back), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_closed_hold_up_no_drain() {
    for early in [true, false] {
        let leases = Leases::new();
        leases.take(1);
        let rig = plain(&leases);
        for message in [10, 11, 20] {
            rig.lanes.send(message).await.unwrap();
        }
        settle().await;
        let close = || leases.tell(|state| state.closed = true);
        if early {
            close();
            settle().await;
            rig.assert_waits(1);
            rig.lanes.send(30).await.unwrap();
            settle().await;
            rig.assert_waits(3);
        }
        let mut drain = Box::pin(rig.lanes.drain().into_future());
        if !early {
            assert!(timeout(LINGER, &mut drain).await.is_err());
            close();
        }
        let report = timeout(LINGER * 50, drain).await.expect("it ends");
        assert_eq!(report.done, 1);
        assert_eq!(report.handed_back, if early { 3 } else { 2 });
        assert_eq!((leases.held(), leases.waiting()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn errors_are_told_now_and_then_and_end_by_themselves() {
    let leases = Leases::new();
    leases.tell(|state| state.fails = true);
    let rig = plain(&leases);
    let mut events = rig.lanes.events();
    let waits = [rig.submit(10).await, rig.submit(20).await];
    sleep(Duration::from_secs(9)).await;
    rig.assert_waits(1);
    let mut whys = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        match event {
            Event::Unleased { why, .. } => whys.push(why),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(whys, ["the office is on fire"], "once, for both keys");
    assert!(leases.calls() > 10, "{} calls", leases.calls());
    leases.tell(|state| state.panics = true);
    sleep(Duration::from_secs(3)).await;
    match events.next().await {
        Some(Event::Unleased { why, .. }) => assert_eq!(why, "told to panic"),
        other => panic!("{other:?}"),
    }
    leases.tell(|state| (state.fails, state.panics) = (false, false));
    for receipt in waits {
        receipt.await.unwrap();
    }
    assert_eq!(rig.log.done().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn where_room_is_short_idle_leases_go_first() {
    let leases = Leases::lingering(Duration::from_secs(3_600));
    leases.tell(|state| state.most = Some(2));
    let rig = plain(&leases);
    rig.submit(10).await.await.unwrap();
    let busy = rig.submit(29).await;
    settle().await;
    assert_eq!(leases.held(), 2);
    let third = rig.submit(30).await;
    timeout(50 * MS, third)
        .await
        .expect("an idle one goes")
        .unwrap();
    assert_eq!((leases.held(), rig.log.running()), (2, 1));
    // Both are in use now.
    let (busy_too, fifth) = (rig.submit(39).await, rig.submit(50).await);
    sleep(LINGER).await;
    rig.leases.0.changed.notify_waiters();
    assert_eq!(rig.state(5), Some(LaneState::Leasing));
    rig.gate.add_permits(2);
    busy.await.unwrap();
    busy_too.await.unwrap();
    timeout(50 * MS, fifth)
        .await
        .expect("there is room")
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_no_message_waits_for_is_not_asked_for() {
    let leases = Leases::new();
    leases.take(1);
    let rig = plain(&leases);
    let purged = rig.submit(10).await;
    settle().await;
    assert_eq!(leases.waiting(), 1);
    assert_eq!(rig.lanes.lane(&1).purge(), 1);
    assert!(matches!(purged.await, Err(ReceiptError::Purged(10))));
    sleep(LINGER * 2).await;
    assert_eq!(leases.waiting(), 0, "the call is dropped");
    leases.leave(1);
    rig.submit(11).await.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_operator_decides_about_heads_that_wait() {
    let leases = Leases::new();
    leases.take(1);
    let rig = plain(&leases);
    let lane = rig.lanes.lane(&1);
    let (first, second, third) = (
        rig.submit(10).await,
        rig.submit(11).await,
        rig.submit(12).await,
    );
    settle().await;
    lane.skip().unwrap();
    assert!(matches!(first.await, Err(ReceiptError::Failed(_))));
    settle().await;
    rig.assert_waits(1);
    assert_eq!(lane.replace(13).unwrap(), 11);
    assert!(lane.retry_now().is_err(), "it waits for no time");
    lane.pause();
    assert_eq!(rig.state(1), Some(LaneState::Paused));
    leases.leave(1);
    sleep(LINGER).await;
    assert_eq!(rig.log.done(), [0; 0]);
    lane.resume().unwrap();
    second.await.unwrap();
    third.await.unwrap();
    assert_eq!(rig.log.done(), [13, 12]);

    // The same with one that has started.
    let slow = rig.submit(19).await;
    settle().await;
    leases.lose(1);
    settle().await;
    assert!(lane.retry_now().is_err(), "it waits for no time");
    lane.pause();
    rig.assert_counted();
    leases.leave(1);
    settle().await;
    assert_eq!(rig.log.running(), 0);
    lane.resume().unwrap();
    settle().await;
    assert_eq!(rig.log.running(), 1);
    leases.lose(1);
    settle().await;
    lane.skip().unwrap();
    assert!(matches!(slow.await, Err(ReceiptError::Failed(_))));
    settle().await;
    assert_eq!(rig.lanes.stats().lanes, 0);
}

#[tokio::test(start_paused = true)]
async fn what_expires_does_so_while_it_waits() {
    let leases = Leases::new();
    leases.take(1);
    let rig = rig(&leases, builder().expire_after(50 * MS));
    let late = rig.submit(10).await;
    let expired = timeout(60 * MS, late).await.expect("at its time");
    assert!(matches!(expired, Err(ReceiptError::Expired(10))));
    settle().await;
    assert_eq!(rig.lanes.stats().lanes, 0);
    sleep(LINGER * 2).await;
    assert_eq!(leases.waiting(), 0);
    // Behind one that expires.
    let late = rig.submit(11).await;
    sleep(30 * MS).await;
    let next = rig.submit(12).await;
    assert!(matches!(late.await, Err(ReceiptError::Expired(11))));
    leases.leave(1);
    next.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_coalesced() {
    let leases = Leases::new();
    leases.take(1);
    let rig = rig(&leases, builder().coalesce(Coalesce::keep_latest()));
    let (first, second) = (rig.submit(10).await, rig.submit(11).await);
    settle().await;
    let third = rig.submit(19).await;
    assert!(matches!(first.await, Err(ReceiptError::Superseded(10))));
    assert!(matches!(second.await, Err(ReceiptError::Superseded(11))));
    leases.leave(1);
    settle().await;
    assert_eq!(rig.log.running(), 1);
    leases.lose(1);
    let fourth = rig.submit(12).await;
    settle().await;
    leases.leave(1);
    rig.gate.add_permits(1);
    third.await.unwrap();
    fourth.await.unwrap();
    let numbers: Vec<_> = rig.log.started().iter().map(|start| start.0).collect();
    assert_eq!(numbers, [19, 19, 12], "what has started is not superseded");
}

#[tokio::test(start_paused = true)]
async fn versions_stay_in_order() {
    let leases = Leases::new();
    leases.take(1);
    let sequence = Sequence::contiguous(|message: &Message| message % 10).from(1);
    let rig = rig(&leases, builder().sequence(sequence));
    let mut receipts = Vec::new();
    for message in [12, 11, 13] {
        receipts.push(rig.submit(message).await);
    }
    settle().await;
    rig.assert_waits(1);
    leases.leave(1);
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert_eq!(rig.log.done(), [11, 12, 13]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_has_waited_has_used_nothing_of_its_rate() {
    let leases = Leases::new();
    leases.take(1);
    let rate = Rate::per_second(1);
    let rig = rig(&leases, builder().rate_per_key(rate));
    let waits = rig.submit(10).await;
    settle().await;
    rig.assert_waits(1);
    leases.leave(1);
    timeout(10 * MS, waits).await.expect("at once").unwrap();
    let next = rig.submit(11).await;
    assert!(timeout(Duration::from_millis(900), next).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_full_lane_that_waits_holds_up_its_own_senders() {
    let leases = Leases::new();
    leases.take(1);
    let rig = rig(&leases, builder().lane_capacity(2, Overflow::Wait));
    for message in [10, 11] {
        rig.lanes.send(message).await.unwrap();
        settle().await;
    }
    assert!(rig.lanes.send(12).now_or_never().is_none());
    rig.submit(20).await.await.unwrap();
    leases.leave(1);
    rig.submit(13).await.await.unwrap();
    assert_eq!(rig.log.done(), [20, 10, 11, 13]);
}

/// Its messages, and its token.
type Batch = (Vec<Message>, Option<u64>);

#[tokio::test(start_paused = true)]
async fn a_batch_is_under_one_lease() {
    let leases = Leases::new();
    leases.take(1);
    let (log, gate) = (Arc::new(Log::default()), Arc::new(Semaphore::new(0)));
    let batches: Arc<Mutex<Vec<Batch>>> = Arc::default();
    let lanes = {
        let (log, gate, batches) = (Arc::clone(&log), Arc::clone(&gate), Arc::clone(&batches));
        builder()
            .batch(3, 5 * MS)
            .leased_by(leases.clone())
            .spawn_batches(move |context: keylane::Context<u64>, all: Vec<Message>| {
                let (log, gate) = (Arc::clone(&log), Arc::clone(&gate));
                batches
                    .lock()
                    .unwrap()
                    .push((all.clone(), context.lease_token()));
                async move {
                    log.running.fetch_add(1, Ordering::SeqCst);
                    let _running = Call(&log.running);
                    gate.acquire().await.unwrap().forget();
                    Ok::<_, ()>(all)
                }
            })
            .unwrap()
    };
    let mut receipts = Vec::new();
    for message in [10, 11, 12, 13] {
        receipts.push(lanes.submit(message).await.unwrap());
    }
    sleep(20 * MS).await;
    assert_eq!(lanes.inspect(&1).unwrap().state, LaneState::Leasing);
    assert_eq!(lanes.inspect(&1).unwrap().depth, 4);
    leases.leave(1);
    settle().await;
    assert_eq!(log.running(), 1);
    leases.lose(1);
    settle().await;
    assert_eq!((log.running(), lanes.inspect(&1).unwrap().depth), (0, 4));
    leases.leave(1);
    gate.add_permits(9);
    for receipt in receipts {
        receipt.await.unwrap();
    }
    let batches = batches.lock().unwrap().clone();
    let all = [
        (vec![10, 11, 12], Some(1)),
        (vec![10], Some(2)),
        (vec![11, 12, 13], Some(2)),
    ];
    assert_eq!(
        batches, all,
        "the first one alone, and the others behind it"
    );
    assert_eq!(lanes.stats().failures, 0);
}
