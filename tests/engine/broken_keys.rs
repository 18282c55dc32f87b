//! Keys whose own code panics, wherever the dispatcher calls it: it may be an abort, but it ends,
//! with its report, and takes neither a message nor the process with it.

use std::future::IntoFuture;
use std::sync::Arc;

use keylane::{Dispatcher, OnExhausted, Report, Retry};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{
    BrokenKey, Fuse, MS, Part, assert_no_engine_panics, assert_report_adds_up, on_both, paused,
    quiet, within,
};

const KEYS: u64 = 10;
/// The key whose handler always fails.
const FAILING: u64 = 3;

type Orders = Dispatcher<BrokenKey, u64, u64, ()>;

/// Handlers wait at the gate; those of one key fail, back off and halt.
fn orders(fuse: &Arc<Fuse>, gate: &Gate, concurrency: usize) -> Orders {
    let (fuse, gate) = (Arc::clone(fuse), gate.clone());
    Dispatcher::builder(move |n: &u64| BrokenKey::new(n % KEYS, &fuse))
        .concurrency(concurrency)
        .retry(Retry::fixed(MS).max_attempts(2))
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |n: u64| {
            let pass = gate.pass();
            async move {
                pass.await;
                if n % KEYS == FAILING { Err(()) } else { Ok(n) }
            }
        })
        .unwrap()
}

/// The messages came in as they are numbered.
#[track_caller]
fn assert_in_order(report: &Report<BrokenKey, u64>) {
    let returned: Vec<_> = report
        .returned
        .iter()
        .filter_map(|back| back.message)
        .collect();
    assert!(returned.is_sorted_by(|a, b| a < b), "{returned:?}");
}

/// When the fuse is lit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// Messages are on their way to lanes that are there, and to ones that are not.
    Arriving,
    /// Handlers are about to answer and to fail.
    Answering,
    /// Handlers wait, messages wait behind them, and the end is about to come.
    Closing,
    Aborting,
}

/// A whole life, with a part that panics at this call or at each. True if the fuse went off in it.
async fn goes_off(part: Part, call: Option<usize>, when: When, concurrency: usize) -> bool {
    println!("{part:?} at call {call:?}, {when:?}, {concurrency} at once");
    let fuse = Fuse::new();
    let light = || match call {
        Some(call) => fuse.light_at(part, call),
        None => fuse.light(part),
    };
    let gate = Gate::new();
    let orders = orders(&fuse, &gate, concurrency);
    let mut receipts = Vec::new();
    for n in 0..25 {
        if n == 15 && when == When::Arriving {
            within(gate.arrivals(concurrency.min(5))).await;
        }
        // The first lanes are of half the keys, the later ones of the others too.
        let n = if n < 15 { n / 5 * 10 + n % 5 } else { n + 15 };
        if n % 2 == 0 {
            receipts.push(orders.try_submit(n).unwrap());
        } else {
            orders.try_send(n).unwrap();
        }
    }
    if when == When::Arriving {
        light();
        quiet().await;
    } else {
        within(gate.arrivals(concurrency.min(10))).await;
        light();
    }
    if when == When::Answering {
        gate.open();
        // Long enough for a retry and to be given up on.
        tokio::time::sleep(5 * MS).await;
    }
    let ending = match when {
        When::Aborting => orders.abort(),
        _ => orders.close(),
    };
    let ending = tokio::spawn(ending.into_future());
    quiet().await;
    gate.open();
    let report = within(ending).await.unwrap();
    let went_off = fuse.put_out();

    assert_report_adds_up(&report);
    assert_eq!(report.accepted, 25);
    assert_in_order(&report);
    for receipt in receipts {
        let _ = within(receipt).await;
    }
    assert!(orders.is_closed());
    assert_no_engine_panics();
    went_off
}

fn breaks(part: Part, when: When) {
    for concurrency in [2, 256] {
        on_both(|| async move {
            goes_off(part, None, when, concurrency).await;
        });
        // Once, at each of the calls that such a life makes.
        paused().block_on(async {
            let mut call = 1;
            while goes_off(part, Some(call), when, concurrency).await {
                call += 1;
            }
        });
    }
}

#[test]
fn in_eq_where_messages_arrive() {
    breaks(Part::Eq, When::Arriving);
}

#[test]
fn in_clone_where_messages_arrive() {
    breaks(Part::Clone, When::Arriving);
}

#[test]
fn in_drop_where_messages_arrive() {
    breaks(Part::LoneDrop, When::Arriving);
}

#[test]
fn in_eq_where_handlers_answer() {
    breaks(Part::Eq, When::Answering);
}

#[test]
fn in_clone_where_handlers_answer() {
    breaks(Part::Clone, When::Answering);
}

#[test]
fn in_drop_where_handlers_answer() {
    breaks(Part::LoneDrop, When::Answering);
}

#[test]
fn in_eq_at_close() {
    breaks(Part::Eq, When::Closing);
}

#[test]
fn in_clone_at_close() {
    breaks(Part::Clone, When::Closing);
}

#[test]
fn in_drop_at_close() {
    breaks(Part::LoneDrop, When::Closing);
}

#[test]
fn in_eq_at_abort() {
    breaks(Part::Eq, When::Aborting);
}

#[test]
fn in_clone_at_abort() {
    breaks(Part::Clone, When::Aborting);
}

#[test]
fn in_drop_at_abort() {
    breaks(Part::LoneDrop, When::Aborting);
}

/// More than the dispatcher takes from its channel at once, and it breaks in the middle.
#[test]
fn what_a_break_sends_back_is_in_order() {
    paused().block_on(async {
        for call in [1, 20, 255, 256, 257, 400] {
            let fuse = Fuse::new();
            let orders = orders(&fuse, &Gate::new(), 256);
            for n in 0..600 {
                orders.try_send(n).unwrap();
            }
            fuse.light_at(Part::Eq, call);
            quiet().await;
            let report = within(orders.close().into_future()).await;
            assert!(fuse.put_out(), "it went off");
            assert_report_adds_up(&report);
            assert_eq!((report.accepted, report.done), (600, 0));
            assert_in_order(&report);
        }
    });
}

/// Keys are compared in the dispatcher's own tasks, where nothing but the dispatcher can fail: it
/// ends by itself, with its report.
#[test]
fn one_comparison_that_panics_is_an_abort() {
    on_both(|| async {
        // In the task that finds the lane of an arrival, or in the one that is done with a message.
        for arrives in [true, false] {
            let fuse = Fuse::new();
            let gate = Gate::new();
            let orders = orders(&fuse, &gate, 256);
            let mut receipts = Vec::new();
            for n in [0, 1, 2, 10, 11, 12, 20, 21, 22] {
                receipts.push(orders.submit(n).await.unwrap());
            }
            within(gate.arrivals(3)).await;
            fuse.light_at(Part::Eq, 1);
            if arrives {
                for n in 30..40 {
                    match orders.try_submit(n) {
                        Ok(receipt) => receipts.push(receipt),
                        Err(_) => break,
                    }
                }
            } else {
                gate.open();
            }
            let accepted = receipts.len() as u64;
            let mut done = 0;
            for receipt in receipts {
                done += u64::from(within(receipt).await.is_ok());
            }
            let report = within(async { orders.drain().await }).await;
            assert_report_adds_up(&report);
            assert_eq!((report.accepted, report.done), (accepted, done));
            assert!(orders.is_closed());
        }
    });
}
