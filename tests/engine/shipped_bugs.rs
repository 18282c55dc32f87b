//! Bugs that others have shipped, each as a test.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use keylane::{Dispatcher, Exhausted, Overflow, ReserveError, Retry, RetryBudget, TrySendError};
use keylane_testkit::{Act, Event, Evidence, Gate, History, Id, Rule, Script};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::rig::{
    Desk, MS, Mail, SECOND, mails, on_both, paused, quiet, scripted, threads, within,
};

/// The ids in the order in which their attempts started.
fn starts(history: &History) -> Vec<Id> {
    let start = |event| match event {
        Event::Start { id, .. } => Some(id),
        _ => None,
    };
    history
        .records()
        .iter()
        .filter_map(|record| start(record.event))
        .collect()
}

// ---- The way in -----------------------------------------------------------------------------------

/// The dispatch path looked at the worker before the backlog: a worker that was free again took the
/// new message, and the parked one came after it.
#[test]
fn a_new_message_does_not_overtake_a_parked_one() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let desk = Desk::new(&history, mails().spawn(scripted(script)).unwrap());
        for round in 0..20 {
            desk.send_all(1, 2).await;
            gate.arrivals(1).await;
            // The key becomes free, and before anybody has noticed the next message is there.
            gate.release(1);
            desk.try_send(1).unwrap();
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            desk.try_send(1).unwrap();
            gate.release(3);
            quiet().await;
        }
        assert!(starts(&history).is_sorted());
        desk.finish(Evidence::new()).await;
    });
}

/// A key that had just been freed for a parked message was taken by one that arrived that moment.
#[test]
fn a_freed_key_is_not_stolen_by_a_new_arrival() {
    threads().block_on(async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| Act::ok().yields((cue.id % 2) as u32));
        let orders = mails()
            .concurrency(8)
            .quantum(1)
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        for n in 0..5_000 {
            desk.send(n % 2).await;
            if n % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let report = desk.finish(Evidence::new()).await;
        assert_eq!(report.done, 5_000);
    });
}

/// Futures that were ready at their first poll were not seen to complete, and their elements lost.
#[test]
fn futures_that_complete_at_once_lose_nothing() {
    on_both(|| async {
        for keys in [1, 2, 1_000] {
            let history = History::new();
            let orders = mails()
                .capacity(500)
                .spawn(scripted(Script::new(&history)))
                .unwrap();
            let desk = Desk::new(&history, orders);
            let mut receipts = Vec::new();
            for n in 0..3_000 {
                receipts.push(desk.submit(n % keys).await);
            }
            for (n, receipt) in receipts.into_iter().enumerate() {
                assert_eq!(within(receipt).await.unwrap(), n as u64 + 1);
            }
            let report = desk.finish(Evidence::new()).await;
            assert_eq!(report.done, 3_000);
        }
    });
}

/// A worker ended, or a lane was evicted, while its queue was being filled.
#[test]
fn a_lane_that_runs_empty_while_it_is_filled_is_not_lost() {
    threads().block_on(async {
        let history = History::new();
        let orders = mails().spawn(scripted(Script::new(&history))).unwrap();
        let desk = Desk::new(&history, orders);
        let mut senders = JoinSet::new();
        for sender in 0..4 {
            let desk = desk.clone();
            senders.spawn(async move {
                // The lane comes and goes with nearly each message.
                for n in 0..2_000 {
                    desk.send(sender).await;
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
            while desk.mails.stats().done < 8_000 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        desk.finish(Evidence::new()).await;
    });
}

/// A sender that was woken and found that another had taken the room waited without having
/// registered again.
#[test]
fn a_woken_sender_that_finds_no_room_waits_again() {
    on_both(|| async {
        for overflow in [None, Some(Overflow::Wait)] {
            let history = History::new();
            let script = Script::new(&history).choose(|cue| Act::ok().yields((cue.id % 2) as u32));
            let builder = match overflow {
                // Short of room in all …
                None => mails().capacity(1),
                // … or short of room in one lane.
                Some(overflow) => mails().lane_capacity(1, overflow),
            };
            let desk = Desk::new(&history, builder.spawn(scripted(script)).unwrap());
            let mut senders = JoinSet::new();
            for sender in 0..8 {
                let desk = desk.clone();
                senders.spawn(async move {
                    for n in 0..100 {
                        // Half of them take room without waiting in the queue for it.
                        let key = if overflow.is_some() { 7 } else { sender };
                        let mail = Mail {
                            key: Some(key),
                            id: sender * 1_000 + n,
                        };
                        if sender % 2 == 0 {
                            desk.mails.send(mail).await.unwrap();
                        } else {
                            while desk.mails.try_send(mail.clone()).is_err() {
                                tokio::task::yield_now().await;
                            }
                        }
                    }
                });
            }
            while let Some(sender) = within(senders.join_next()).await {
                sender.unwrap();
            }
            let report = within(async { desk.mails.drain().await }).await;
            assert_eq!(report.done, 800);
        }
    });
}

/// A batch taken from the channel, or prefetched, was started in another order.
#[test]
fn a_batch_keeps_its_order() {
    paused().block_on(async {
        let history = History::new();
        let desk = Desk::new(
            &history,
            mails().spawn(scripted(Script::new(&history))).unwrap(),
        );
        // All of it is in the channel before the dispatcher sees the first.
        for n in 0..1_000 {
            desk.try_send(n % 3).unwrap();
        }
        desk.finish(Evidence::new()).await;
    });
}

// ---- Load ---------------------------------------------------------------------------------------

/// A key that fails for ever counted as load, until nothing was fetched any more.
#[test]
fn a_key_that_fails_for_ever_is_no_load() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).key(1, Act::error());
        let orders = mails()
            .capacity(8)
            .retry(Retry::fixed(SECOND).max_attempts(u32::MAX))
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        let stuck = desk.send_all(1, 8).await;
        quiet().await;
        assert_eq!(desk.mails.stats().capacity_left, 8);
        for n in 0..100 {
            within(desk.send(2 + n % 3)).await;
        }
        // The same while the failing key is being tried.
        for n in 0..100 {
            tokio::time::sleep(SECOND / 7).await;
            within(desk.send(2 + n % 3)).await;
        }
        let report = desk.mails.drain().within(SECOND / 2).await;
        assert_eq!(report.done, 200);
        desk.judge(&report, Evidence::new().handed_back(stuck));
    });
}

/// The queue of retries had no limit: memory ran out.
#[test]
fn retries_are_bounded() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::error());
        let orders = mails()
            .lane_capacity(5, Overflow::Reject)
            .retry(Retry::fixed(SECOND).max_attempts(u32::MAX))
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        let mut accepted = Vec::new();
        for _ in 0..200 {
            match desk.try_send(1) {
                Ok(id) => accepted.push(id),
                Err(error) => assert!(matches!(error, TrySendError::LaneFull(_)), "{error}"),
            }
            tokio::time::sleep(SECOND / 3).await;
        }
        assert_eq!(accepted.len(), 5);
        let stats = desk.mails.stats();
        assert_eq!((stats.lanes, stats.backing_off, stats.stalled), (1, 1, 5));
        let report = desk.mails.abort().await;
        desk.judge(&report, Evidence::new().handed_back(accepted));
    });
}

/// One dominant key filled the buffer that all share.
#[test]
fn one_dominant_key_does_not_fill_the_shared_room() {
    on_both(|| async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(1, Act::ok().waits(&gate));
        let orders = mails()
            .concurrency(2)
            .capacity(64)
            .lane_capacity(8, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        // All at once, before the dispatcher can say that the lane is full.
        while desk.try_send(1).is_ok() {}
        let mut flood = JoinSet::new();
        for _ in 0..100 {
            let desk = desk.clone();
            flood.spawn(async move { drop(desk.mails.send(desk.next(1).0).await) });
        }
        for n in 0..300 {
            within(desk.send(2 + n % 5)).await;
        }
        let mails = desk.mails.clone();
        within(async {
            while mails.stats().done < 300 {
                quiet().await;
            }
        })
        .await;
        flood.shutdown().await;
        gate.open();
        let report = within(async { desk.mails.drain().await }).await;
        desk.judge(&report, Evidence::new());
    });
}

/// One dominant key kept its slot for as long as it had messages, and the others of the slot waited.
#[test]
fn one_dominant_key_does_not_keep_its_runner() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).message(1, Act::ok().waits(&gate));
        let orders = mails()
            .lane_capacity(10_000, Overflow::Wait)
            .quantum(16)
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        desk.send_all(1, 5_000).await;
        quiet().await;
        // The whole backlog of the hot key may go, and now come ten others.
        gate.open();
        let cold: Vec<_> = (2..12).map(|key| desk.try_send(key).unwrap()).collect();
        desk.finish(Evidence::new()).await;
        let starts = starts(&history);
        let place = |id: &Id| starts.iter().position(|start| start == id).unwrap();
        let last = cold.iter().map(place).max().unwrap();
        assert!(
            last < 1_000,
            "a cold key waited for {last} messages of the hot one"
        );
    });
}

// ---- Keys ---------------------------------------------------------------------------------------

/// A key that is equal to another one of other bytes.
#[derive(Clone, Debug)]
struct Caseless(String);

impl PartialEq for Caseless {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Caseless {}

impl Hash for Caseless {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_ascii_lowercase().hash(state);
    }
}

/// Runs a message of each key at once and counts the most that were in flight together.
async fn most_in_flight<K>(keys: Vec<K>) -> usize
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let orders = Dispatcher::builder(|key: &K| key.clone())
        .spawn(move |_: K| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(MS).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok::<(), ()>(())
            }
        })
        .unwrap();
    let count = keys.len() as u64;
    for key in keys {
        orders.send(key).await.unwrap();
    }
    assert_eq!(orders.drain().await.done, count);
    seen.load(Ordering::SeqCst)
}

/// Keys were compared by their bytes, or by the address of an array.
#[test]
fn keys_are_the_same_if_they_are_equal_and_only_then() {
    paused().block_on(async {
        let caseless = ["Ada@x", "ada@X", "ADA@x"].map(|name| Caseless(name.to_owned()));
        assert_eq!(most_in_flight(caseless.to_vec()).await, 1);
        // Equal arrays at different addresses.
        let arrays = vec![vec![1_u8, 2, 3], [1, 2, 3].to_vec(), (1..4).collect()];
        assert_eq!(most_in_flight(arrays).await, 1);
        // The same key from two topics is two keys, if the topic is a part of it.
        let topics = vec![("a", 7), ("b", 7), ("a", 7), ("b", 7)];
        assert_eq!(most_in_flight(topics).await, 2);
    });
}

/// All keys in one bucket: slower, and nothing else.
#[test]
fn keys_of_the_same_hash_are_different_keys() {
    #[derive(Clone, PartialEq, Eq)]
    struct Colliding(u32);
    impl Hash for Colliding {
        fn hash<H: Hasher>(&self, state: &mut H) {
            state.write_u8(0);
        }
    }
    paused().block_on(async {
        let keys: Vec<_> = (0..60).map(|n| Colliding(n % 20)).collect();
        assert_eq!(most_in_flight(keys).await, 20);
    });
}

/// A message without a key crashed the consumer, or all of them went into one lane.
#[test]
fn absent_keys_are_no_key_that_they_share() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let desk = Desk::new(&history, mails().spawn(scripted(script)).unwrap());
        desk.send_all(None, 10).await;
        // Zero is a key like any other, and so is the hash that absent keys carry.
        desk.send_all(0, 2).await;
        quiet().await;
        assert_eq!(gate.waiting(), 11);
        gate.open();
        desk.finish(Evidence::new()).await;
    });
}

// ---- Retries ------------------------------------------------------------------------------------

/// A failed message went to the end of the queue.
#[test]
fn a_failed_message_stays_at_the_head() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            if cue.id % 4 == 0 && cue.attempt < 3 {
                Act::error()
            } else {
                Act::ok()
            }
        });
        let orders = mails()
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        for n in 0..60 {
            desk.send(n % 3).await;
        }
        let report = desk.finish(Evidence::new().max_attempts(5)).await;
        assert_eq!(report.done, 60);
    });
}

/// The set of retries was ordered by a field that changed while they were in it: some were never
/// found again.
#[test]
fn retries_due_together_and_retries_put_off_are_all_found_again() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            if cue.attempt < 4 {
                Act::error()
            } else {
                Act::ok()
            }
        });
        let orders = mails()
            .retry(Retry::fixed(100 * MS).max_attempts(4))
            .retry_budget(RetryBudget::new().ratio(0.0).min_per_second(100))
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        for key in 0..300 {
            desk.send(Some(key).filter(|key| key % 10 != 0)).await;
        }
        let mails = desk.mails.clone();
        let report = desk.finish(Evidence::new().max_attempts(4)).await;
        assert_eq!(report.done, 300);
        let stats = mails.stats();
        assert_eq!(stats.retries, 900);
        assert!(stats.postponed > 100, "{stats:?}");
    });
}

// ---- The end ------------------------------------------------------------------------------------

/// Drain went on taking messages in.
#[test]
fn drain_stops_the_intake() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let orders = mails()
            .capacity(3)
            .lane_capacity(2, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        desk.send_all(1, 2).await;
        quiet().await;
        // One waits at the gate of the lane, one for room.
        let (at_gate, for_room) = (desk.next(1), desk.next(3));
        let mut at_gate_send = Box::pin(desk.mails.send(at_gate.0));
        assert!((&mut at_gate_send).now_or_never().is_none());
        desk.send(2).await;
        let mut for_room_send = Box::pin(desk.mails.send(for_room.0));
        assert!((&mut for_room_send).now_or_never().is_none());

        let mut drain = Box::pin(std::future::IntoFuture::into_future(desk.mails.drain()));
        assert!((&mut drain).now_or_never().is_none());
        // From the first moment on, and for all ways in.
        assert!(desk.mails.is_closed());
        let refused = desk.try_send(4).unwrap_err();
        assert!(matches!(refused, TrySendError::Closed(_)), "{refused:?}");
        assert_eq!(desk.mails.reserve().await.err(), Some(ReserveError));
        let (mail, sending) = desk.next(5);
        assert!(desk.mails.send(mail).await.is_err());
        sending.fail();
        assert!(within(at_gate_send).await.is_err());
        at_gate.1.fail();
        assert!(within(for_room_send).await.is_err());
        for_room.1.fail();

        gate.open();
        let report = drain.await;
        assert_eq!((report.accepted, report.done), (3, 3));
        desk.judge(&report, Evidence::new());
    });
}

/// A shutdown without a drain killed what was in flight.
#[test]
fn close_does_not_kill_what_is_in_flight() {
    on_both(|| async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate).yields(3));
        let desk = Desk::new(&history, mails().spawn(scripted(script)).unwrap());
        for key in 0..5 {
            desk.send_all(key, 2).await;
        }
        within(gate.arrivals(5)).await;
        let close = tokio::spawn(std::future::IntoFuture::into_future(desk.mails.close()));
        while !desk.mails.is_closed() {
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
        desk.judge(&report, Evidence::new().handed_back(back));
    });
}

/// One stuck key, and the query for the next batch found nothing else for ever.
#[test]
fn a_blocked_key_does_not_starve_those_behind_it() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history)
            .key(0, Act::ok().waits(&gate))
            .key(1, Act::error())
            .otherwise(Act::ok().sleeps(MS));
        let orders = mails()
            .concurrency(2)
            .on_exhausted(Exhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        let mut halted = Vec::new();
        let mut per_key: HashMap<u64, u32> = HashMap::new();
        // The two in trouble are in front of everybody, and come again and again.
        for n in 0..300 {
            let key = if n % 3 == 0 { n % 2 } else { 2 + n % 50 };
            let id = desk.send(key).await;
            *per_key.entry(key).or_default() += 1;
            if key == 1 {
                halted.push(id);
            }
        }
        let healthy: u32 = per_key
            .iter()
            .filter(|(key, _)| **key > 1)
            .map(|(_, n)| n)
            .sum();
        let began = Instant::now();
        while desk.mails.stats().done < u64::from(healthy) {
            quiet().await;
        }
        assert!(
            began.elapsed() < SECOND,
            "200 messages of 1 ms, by one runner"
        );
        gate.open();
        let report = desk.mails.drain().await;
        let verdict = desk.judge(&report, Evidence::new().handed_back(halted));
        verdict.assert_judged(&[Rule::NoLoss, Rule::Order, Rule::Exclusion]);
    });
}
