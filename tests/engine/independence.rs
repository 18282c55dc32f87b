//! G3: a key that is slow, failing, backing off, halted or blocked for ever delays no other, also
//! when capacity is scarce.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use keylane::{Dispatcher, Exhausted, Overflow, Retry};
use keylane_testkit::{Act, Drained, Evidence, Gate, History, Rule, Script};
use tokio::time::Instant;

use crate::rig::{Desk, MS, SECOND, mails, on_both, paused, scripted, threads, within};

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
    /// It was given up on, and nobody decides.
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
    let orders = mails()
        .concurrency(32)
        .capacity(64)
        .lane_capacity(8, Overflow::Wait)
        .retry(Retry::custom(move |_, _| {
            (trouble == Trouble::BacksOff).then_some(Duration::from_secs(1))
        }))
        .on_exhausted(Exhausted::Halt)
        .spawn(scripted(script))
        .unwrap();
    let desk = Desk::new(&history, orders);

    let mut troubled = tokio::task::JoinSet::new();
    let mut ids = Vec::new();
    if trouble != Trouble::None {
        // Some are in; then the rest queues up.
        ids = desk.send_all(TROUBLED, 8).await;
        tokio::time::sleep(MS).await;
        for _ in 0..100 {
            let desk = desk.clone();
            troubled.spawn(async move { drop(desk.mails.send(desk.next(TROUBLED).0).await) });
        }
        tokio::time::sleep(MS).await;
        let view = desk.mails.inspect(&TROUBLED).expect("the lane is there");
        assert!(view.full && view.depth >= 8, "{view:?}");
    }

    let began = Instant::now();
    for n in 0..OTHERS * MESSAGES_EACH {
        desk.send(n % OTHERS).await;
    }
    while desk.mails.stats().lanes > usize::from(trouble != Trouble::None) {
        tokio::time::sleep(MS / 10).await;
    }
    let took = began.elapsed().as_secs_f64();

    // What the troubled key still holds comes back, also from the senders that did not get in.
    troubled.shutdown().await;
    let report = desk.mails.abort().await;
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
        let orders = mails()
            .concurrency(4)
            .capacity(16)
            .lane_capacity(4, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        desk.send(TROUBLED).await;
        within(gate.arrivals(1)).await;
        let flood = tokio::spawn({
            let desk = desk.clone();
            async move { desk.send_all(TROUBLED, 50).await }
        });
        for n in 0..500 {
            let receipt = within(desk.submit(n % 7)).await;
            if n % 10 == 0 {
                within(receipt).await.expect("the others are not held");
            }
        }
        assert_eq!(gate.waiting(), 1, "it was held all the time");
        gate.open();
        within(flood).await.unwrap();
        desk.finish(Evidence::new()).await;
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
        let mails = Dispatcher::builder(|message: &(usize, u32)| *message)
            .spawn(move |(pair, _): (usize, u32)| {
                let meeting = Arc::clone(&meeting);
                async move { meeting[pair].meet().then_some(()).ok_or("nobody came") }
            })
            .unwrap();
        // From a worker and in one poll, so that both come to the dispatcher together.
        let sender = tokio::spawn(async move {
            for pair in 0..pairs.len() {
                mails.try_send((pair, 0)).unwrap();
                mails.try_send((pair, 1)).unwrap();
                while mails.stats().done < 2 * (pair as u64 + 1) {
                    assert_eq!(mails.stats().discarded, 0, "the other one did not come");
                    tokio::time::sleep(MS / 10).await;
                }
            }
            mails.drain().await
        });
        let report = within(sender).await.unwrap();
        assert_eq!((report.done, report.discarded), (100, 0));
    });
}
