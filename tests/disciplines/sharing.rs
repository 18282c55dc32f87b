//! `share_answers`: who was coalesced gets the answer of who stands for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keylane::discipline::Coalesce;
use keylane::error::{BuildError, Failure, ReceiptError};
use keylane::{Dispatcher, OnExhausted, Overflow};
use keylane_testkit::scenario::{SECOND, paused, quiet};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Script, ScriptError};

use crate::support::{Client, Job, jobs, merging, scripted};

fn policy(name: &str, history: &History) -> Coalesce<Job> {
    match name {
        "first" => Coalesce::keep_first(),
        "latest" => Coalesce::keep_latest(),
        _ => merging(history),
    }
}

/// Message 1 is in flight; 2 to 5 become one, whose handler does as `act` says.
async fn five(
    name: &str,
    act: Act,
    history: &History,
    exhausted: OnExhausted<u64, Job, ScriptError>,
) -> Client {
    let gate = Gate::new();
    let script = Script::new(history)
        .message(1, Act::ok().waits(&gate))
        .otherwise(act);
    let jobs = jobs()
        .on_exhausted(exhausted)
        .coalesce(policy(name, history))
        .share_answers::<u64>();
    let client = Client::start(history, script, jobs);
    client.submit(1).await;
    quiet().await;
    client.submit_all(1, 4).await;
    quiet().await;
    assert_eq!(client.jobs.inspect(&1).unwrap().depth, 5, "all are kept");
    assert_eq!(client.jobs.stats().coalesced, 0, "and none has an outcome");
    gate.open();
    quiet().await;
    client
}

#[test]
fn a_success_is_shared() {
    for name in ["first", "latest", "merge"] {
        paused().block_on(async {
            let history = History::new();
            let client = five(name, Act::ok(), &history, OnExhausted::Discard).await;
            let stands = if name == "first" { 2 } else { 5 };
            let answers = client.answered();
            for id in 2..=5 {
                assert_eq!(answers[&id], Ok(stands), "{name}");
            }
            let report = client.jobs.drain().await;
            assert_eq!((report.done, report.coalesced), (2, 3));
        });
    }
}

#[test]
fn a_success_that_is_shared_is_judged() {
    for name in ["latest", "merge"] {
        paused().block_on(async {
            let history = History::new();
            let client = five(name, Act::ok(), &history, OnExhausted::Discard).await;
            let (_, outcomes) = client.finish(Evidence::new().coalescing()).await;
            assert_eq!(
                outcomes.words(),
                ["done", "shared", "shared", "shared", "done"]
            );
        });
    }
}

#[test]
fn failures_and_dead_letters_are_shared() {
    for name in ["first", "latest", "merge"] {
        for letter in [false, true] {
            paused().block_on(async {
                let history = History::new();
                let letters = LetterBox::new(&history).refuses(2);
                let exhausted = match letter {
                    false => OnExhausted::Discard,
                    true => OnExhausted::dead_letter(letters.sink(|job: &Job| job.id)),
                };
                let client = five(name, Act::error(), &history, exhausted).await;
                tokio::time::sleep(SECOND).await;
                let stands = if name == "first" { 2 } else { 5 };
                let answers = client.answered();
                for id in 2..=5 {
                    let failure = Failure::Error(ScriptError::Error(stands));
                    let error = match letter {
                        false => ReceiptError::Failed(failure),
                        true => ReceiptError::DeadLettered(failure),
                    };
                    assert_eq!(answers[&id], Err(error), "{name}");
                }
                let report = client.jobs.drain().await;
                let given_up = report.discarded + report.dead_lettered;
                assert_eq!((report.done, given_up, report.coalesced), (1, 1, 3));
            });
        }
    }
}

#[test]
fn a_panic_is_shared_as_a_failure() {
    paused().block_on(async {
        let history = History::new();
        let client = five("merge", Act::panic(), &history, OnExhausted::Discard).await;
        let answers = client.answered();
        for id in 2..=5 {
            let is = &answers[&id];
            let panicked = matches!(is, Err(ReceiptError::Failed(Failure::Panicked(_))));
            assert!(panicked, "{is:?}");
        }
        client.jobs.drain().await;
    });
}

/// Without a receipt the engine makes no clone.
#[derive(Debug)]
struct Costly(Arc<AtomicU64>, bool);

impl Clone for Costly {
    fn clone(&self) -> Self {
        let clones = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(!self.1 || clones != 1, "the second clone panics");
        Self(Arc::clone(&self.0), self.1)
    }
}

#[test]
fn answers_are_cloned_for_receipts_and_a_panic_of_a_clone_costs_one_receipt() {
    paused().block_on(async {
        let clones = Arc::new(AtomicU64::new(0));
        let gate = Gate::new();
        let jobs = Dispatcher::builder(|_: &u64| 1_u64)
            .coalesce(Coalesce::keep_latest())
            .share_answers::<Costly>()
            .spawn({
                let (gate, clones) = (gate.clone(), Arc::clone(&clones));
                move |_: u64| {
                    let (gate, clones) = (gate.clone(), Arc::clone(&clones));
                    async move {
                        gate.pass().await;
                        Ok::<_, ()>(Costly(clones, true))
                    }
                }
            })
            .unwrap();
        jobs.send(0).await.unwrap();
        quiet().await;
        let mut receipts = Vec::new();
        for number in 1..=4 {
            receipts.push(jobs.submit(number).await.unwrap());
            jobs.send(number).await.unwrap();
        }
        quiet().await;
        gate.open();
        quiet().await;
        let mut panicked = 0;
        for receipt in receipts {
            match receipt.await {
                Ok(_) => {}
                Err(ReceiptError::Failed(Failure::Panicked(text))) => {
                    assert_eq!(text, "the second clone panics");
                    panicked += 1;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(panicked, 1);
        assert_eq!(clones.load(Ordering::Relaxed), 4, "one per receipt");
        assert_eq!(jobs.stats().panics, 1);
        let report = jobs.drain().await;
        assert_eq!((report.accepted, report.done, report.coalesced), (9, 2, 7));
    });
}

#[test]
fn an_answer_of_another_type_is_a_build_error() {
    paused().block_on(async {
        let spawned = jobs()
            .coalesce(Coalesce::keep_latest())
            .share_answers::<String>()
            .spawn(scripted(Script::new(&History::new())));
        assert_eq!(spawned.err(), Some(BuildError::AnswerType));
    });
}

/// At an exact limit a message is coalesced without a share of the answer, and none is lost: the last
/// one is handled.
#[test]
fn at_an_exact_limit_sharing_ends_and_coalescing_does_not() {
    for overflow in [Overflow::DropOldest, Overflow::DeadLetter] {
        for first in [true, false] {
            paused().block_on(async {
                let history = History::new();
                let gate = Gate::new();
                let letters = LetterBox::new(&history);
                let script = Script::new(&history).message(1, Act::ok().waits(&gate));
                let jobs = jobs()
                    .lane_capacity(3, overflow)
                    .overflow_sink(letters.sink(|job: &Job| job.id))
                    .coalesce(policy(if first { "first" } else { "latest" }, &history))
                    .share_answers::<u64>();
                let client = Client::start(&history, script, jobs);
                for _ in 0..5 {
                    client.submit(1).await;
                    quiet().await;
                    assert!(client.jobs.inspect(&1).unwrap().depth <= 3);
                }
                gate.open();
                quiet().await;
                let stands = if first { 2 } else { 5 };
                assert_eq!(client.history.handled(), [1, stands]);
                let evidence = match first {
                    true => Evidence::new(),
                    false => Evidence::new().coalescing(),
                };
                let (report, outcomes) = client.finish(evidence).await;
                let words = match first {
                    true => ["done", "done", "shared", "declined", "declined"],
                    false => ["done", "shared", "superseded", "superseded", "done"],
                };
                assert_eq!(outcomes.words(), words);
                assert_eq!((report.done, report.coalesced), (2, 3));
            });
        }
    }
}

/// An abort in the middle: each receipt hears of it.
#[test]
fn an_abort_resolves_every_share() {
    for name in ["first", "latest", "merge"] {
        paused().block_on(async {
            let history = History::new();
            let client = five(name, Act::never(), &history, OnExhausted::Discard).await;
            let report = client.jobs.abort().await;
            assert_eq!(
                (report.done, report.handed_back, report.coalesced),
                (1, 1, 3)
            );
            let answers = client.answered();
            let unmerged = Err(ReceiptError::Merged { handled: false });
            assert_eq!(answers.values().filter(|is| **is == unmerged).count(), 3);
            assert_eq!(answers.len(), 5);
        });
    }
}
