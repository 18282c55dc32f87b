//! G3: a key that is slow, failing, backing off, halted or blocked for ever delays no other, also
//! when capacity is scarce.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use keylane::{Dispatcher, OnExhausted, Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Producer, SECOND, dispatcher, on_both, paused, quiet, scripted, threads, within,
};
use keylane_testkit::{Act, Drained, Evidence, Gate, History, Id, Rule, Script};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::boxed;

/// The key that is in trouble.
const TROUBLED: u64 = 1_000;
const OTHERS: u64 = 20;
const MESSAGES_EACH: u64 = 50;

/// What is wrong with one key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    None,
    /// Its handler never ends.
    Blocked,
    /// It fails each time, and is tried again for ever.
    BacksOff,
    /// It was given up on, and the operator does not decide.
    Halted,
    /// Its handler takes much longer than the others'.
    Slow,
}

/// Messages per second of the other keys, in paused time.
///
/// The troubled key has more senders than its lane has room for, and the capacity is small.
async fn throughput_beside(trouble: Trouble) -> (f64, History, Evidence) {
    let history = History::new();
    let script = Script::new(&history).otherwise(Act::ok().sleeps(MS)).key(
        TROUBLED,
        match trouble {
            Trouble::None => Act::ok(),
            Trouble::Blocked => Act::never(),
            Trouble::BacksOff | Trouble::Halted => Act::error(),
            Trouble::Slow => Act::ok().sleeps(SECOND),
        },
    );
    let orders = dispatcher()
        .concurrency(32)
        .capacity(64)
        .lane_capacity(8, Overflow::Wait)
        .retry(Retry::custom(move |_, _| {
            (trouble == Trouble::BacksOff).then_some(Duration::from_secs(1))
        }))
        .on_exhausted(OnExhausted::Halt)
        .spawn(scripted(script))
        .unwrap();
    let producer = Producer::new(&history, orders);

    let mut troubled = tokio::task::JoinSet::new();
    let mut ids = Vec::new();
    if trouble != Trouble::None {
        // Some are in; then the rest queues up.
        ids = producer.send_all(TROUBLED, 8).await;
        tokio::time::sleep(MS).await;
        for _ in 0..100 {
            let producer = producer.clone();
            troubled.spawn(async move {
                drop(producer.dispatcher.send(producer.next(TROUBLED).0).await)
            });
        }
        tokio::time::sleep(MS).await;
        let view = producer
            .dispatcher
            .inspect(&TROUBLED)
            .expect("the lane is there");
        assert!(view.full && view.depth >= 8, "{view:?}");
    }

    let began = Instant::now();
    for n in 0..OTHERS * MESSAGES_EACH {
        producer.send(n % OTHERS).await;
    }
    while producer.dispatcher.stats().lanes > usize::from(trouble != Trouble::None) {
        tokio::time::sleep(MS / 10).await;
    }
    let took = began.elapsed().as_secs_f64();

    // What the troubled key still holds comes back, also from the senders that did not get in.
    troubled.shutdown().await;
    let report = producer.dispatcher.abort().await;
    let drained = Drained::new(history.position(), &report);
    let evidence = Evidence::new()
        .quiescent(Instant::now())
        .drained(drained)
        .handed_back(ids);
    ((OTHERS * MESSAGES_EACH) as f64 / took, history, evidence)
}

async fn others_keep_their_throughput_beside(trouble: Trouble) {
    let (without, _, _) = throughput_beside(Trouble::None).await;
    let (with, history, evidence) = throughput_beside(trouble).await;
    println!("{without:.0} messages/s without, {with:.0} beside a key that is {trouble:?}");
    let verdict = history
        .check(&evidence.throughput(with, without))
        .expect("nothing is broken");
    verdict.assert_judged(&[
        Rule::Independence,
        Rule::Exclusion,
        Rule::Order,
        Rule::NoLoss,
    ]);
}

#[test]
fn a_key_blocked_for_ever_delays_no_other() {
    paused().block_on(others_keep_their_throughput_beside(Trouble::Blocked));
}

#[test]
fn a_key_that_backs_off_delays_no_other() {
    paused().block_on(others_keep_their_throughput_beside(Trouble::BacksOff));
}

#[test]
fn a_halted_key_delays_no_other() {
    paused().block_on(others_keep_their_throughput_beside(Trouble::Halted));
}

#[test]
fn a_slow_key_delays_no_other() {
    paused().block_on(others_keep_their_throughput_beside(Trouble::Slow));
}

/// On threads there is no clock to go by: the others end while the one still stands at its gate.
#[test]
fn others_end_while_one_is_held() {
    on_both(|| async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history)
            .otherwise(Act::ok().yields(1))
            .key(TROUBLED, Act::ok().waits(&gate));
        let orders = dispatcher()
            .concurrency(4)
            .capacity(16)
            .lane_capacity(4, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send(TROUBLED).await;
        within(gate.arrivals(1)).await;
        let flood = tokio::spawn({
            let producer = producer.clone();
            async move { producer.send_all(TROUBLED, 50).await }
        });
        for n in 0..500 {
            let receipt = within(producer.submit(n % 7)).await;
            if n % 10 == 0 {
                within(receipt).await.expect("the others are not held");
            }
        }
        assert_eq!(gate.waiting(), 1, "it was held all the time");
        gate.open();
        within(flood).await.unwrap();
        producer.finish(Evidence::new()).await;
    });
}

/// Two of these can only end together: each keeps its worker until the other is there too.
#[derive(Default)]
struct Pair {
    inside: Mutex<u32>,
    both: Condvar,
}

impl Pair {
    /// Blocks the thread. False: the other one did not come.
    fn meet(&self) -> bool {
        let mut inside = self.inside.lock().unwrap();
        *inside += 1;
        self.both.notify_all();
        let met = self
            .both
            .wait_timeout_while(inside, Duration::from_secs(5), |inside| *inside < 2);
        !met.unwrap().1.timed_out()
    }
}

/// Handlers that keep their core busy run on all cores: the second of two that come together does
/// not queue up behind the first while another worker sleeps.
#[test]
fn busy_handlers_run_side_by_side() {
    threads().block_on(async {
        let pairs: Arc<Vec<Pair>> = Arc::new((0..50).map(|_| Pair::default()).collect());
        let meeting = Arc::clone(&pairs);
        // Messages 0 and 1 are a pair, 2 and 3 are the next one.
        let dispatcher = Dispatcher::builder(|n: &u64| *n)
            .spawn(boxed(move |_, n| {
                let meeting = Arc::clone(&meeting);
                async move {
                    let met = meeting[n as usize / 2].meet();
                    met.then_some(n).ok_or(())
                }
            }))
            .unwrap();
        // From a worker and in one poll, so that both come to the dispatcher together.
        let sender = tokio::spawn(async move {
            for pair in 0..pairs.len() as u64 {
                dispatcher.try_send(2 * pair).unwrap();
                dispatcher.try_send(2 * pair + 1).unwrap();
                while dispatcher.stats().done < 2 * (pair + 1) {
                    assert_eq!(
                        dispatcher.stats().discarded,
                        0,
                        "the other one did not come"
                    );
                    tokio::time::sleep(MS / 10).await;
                }
            }
            dispatcher.drain().await
        });
        let report = within(sender).await.unwrap();
        assert_eq!((report.done, report.discarded), (100, 0));
    });
}

/// A key that fails for ever counted as load, until nothing was fetched any more.
#[test]
fn a_key_that_fails_for_ever_is_no_load() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).key(1, Act::error());
        let orders = dispatcher()
            .capacity(8)
            .retry(Retry::fixed(SECOND).max_attempts(u32::MAX))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let stuck = producer.send_all(1, 8).await;
        quiet().await;
        assert_eq!(producer.dispatcher.stats().capacity_left, 8);
        for n in 0..100 {
            within(producer.send(2 + n % 3)).await;
        }
        // The same while the failing key is being tried.
        for n in 0..100 {
            tokio::time::sleep(SECOND / 7).await;
            within(producer.send(2 + n % 3)).await;
        }
        let report = producer.dispatcher.drain().within(SECOND / 2).await;
        assert_eq!(report.done, 200);
        producer.judge(&report, Evidence::new().handed_back(stuck));
    });
}

/// One dominant key filled the buffer that all share.
#[test]
fn one_dominant_key_does_not_fill_the_shared_room() {
    on_both(|| async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(1, Act::ok().waits(&gate));
        let orders = dispatcher()
            .concurrency(2)
            .capacity(64)
            .lane_capacity(8, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        // All at once, before the dispatcher can say that the lane is full.
        while producer.try_send(1).is_ok() {}
        let mut flood = JoinSet::new();
        for _ in 0..100 {
            let producer = producer.clone();
            flood.spawn(async move { drop(producer.dispatcher.send(producer.next(1).0).await) });
        }
        for n in 0..300 {
            within(producer.send(2 + n % 5)).await;
        }
        let dispatcher = producer.dispatcher.clone();
        within(async {
            while dispatcher.stats().done < 300 {
                quiet().await;
            }
        })
        .await;
        flood.shutdown().await;
        gate.open();
        let report = within(async { producer.dispatcher.drain().await }).await;
        producer.judge(&report, Evidence::new());
    });
}

/// One dominant key kept its slot for as long as it had messages, and the others of the slot waited.
#[test]
fn one_dominant_key_does_not_keep_its_runner() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).message(1, Act::ok().waits(&gate));
        let orders = dispatcher()
            .lane_capacity(10_000, Overflow::Wait)
            .quantum(16)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send_all(1, 5_000).await;
        quiet().await;
        // The whole backlog of the hot key may go, and now come ten others.
        gate.open();
        let cold: Vec<_> = (2..12).map(|key| producer.try_send(key).unwrap()).collect();
        producer.finish(Evidence::new()).await;
        let starts = history.started();
        let place = |id: &Id| starts.iter().position(|start| start == id).unwrap();
        let last = cold.iter().map(place).max().unwrap();
        assert!(
            last < 1_000,
            "a cold key waited for {last} messages of the hot one"
        );
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
        let orders = dispatcher()
            .concurrency(2)
            .on_exhausted(OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut halted = Vec::new();
        let mut per_key: HashMap<u64, u32> = HashMap::new();
        // The two in trouble are in front of all others, and come again and again.
        for n in 0..300 {
            let key = if n % 3 == 0 { n % 2 } else { 2 + n % 50 };
            let id = producer.send(key).await;
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
        while producer.dispatcher.stats().done < u64::from(healthy) {
            quiet().await;
        }
        assert!(
            began.elapsed() < SECOND,
            "200 messages of 1 ms, by one runner"
        );
        gate.open();
        let report = producer.dispatcher.drain().await;
        let verdict = producer.judge(&report, Evidence::new().handed_back(halted));
        verdict.assert_judged(&[Rule::NoLoss, Rule::Order, Rule::Exclusion]);
    });
}

/// Handlers that block in place run side by side, more of them than there are workers.
#[test]
fn handlers_that_block_in_place_run_side_by_side() {
    const AT_ONCE: usize = 8;
    threads().block_on(async {
        let meeting = Arc::new((Mutex::new(0), Condvar::new()));
        let blocking = {
            let meeting = Arc::clone(&meeting);
            move |_, number: u64| {
                let meeting = Arc::clone(&meeting);
                async move {
                    let (count, changed) = &*meeting;
                    let all_came = tokio::task::block_in_place(|| {
                        let mut count = count.lock().unwrap();
                        *count += 1;
                        changed.notify_all();
                        let waits = |count: &mut usize| *count < AT_ONCE;
                        let waited = changed.wait_timeout_while(count, 10 * SECOND, waits);
                        !waited.unwrap().1.timed_out()
                    });
                    all_came.then_some(number).ok_or(())
                }
            }
        };
        let dispatcher = Dispatcher::builder(|number: &u64| *number)
            .concurrency(AT_ONCE)
            .blocking_handlers(true)
            .spawn(boxed(blocking))
            .unwrap();
        for number in 0..AT_ONCE as u64 {
            dispatcher.send(number).await.unwrap();
        }
        let report = dispatcher.drain().await;
        assert_eq!(report.done, AT_ONCE as u64);
    });
}
