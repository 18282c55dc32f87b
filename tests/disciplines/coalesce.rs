//! `Coalesce`: many requests for one key are one piece of work.

use keylane::discipline::Coalesce;
use keylane::watching::LaneState;
use keylane::{OnExhausted, Retry};
use keylane_testkit::scenario::{SECOND, paused, quiet};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Script};

use crate::support::{Client, Job, jobs, merging};

mod bounds;
mod merged;
mod operator;

/// The three policies, by name.
fn policies(history: &History) -> [(&'static str, Coalesce<Job>); 3] {
    [
        ("first", Coalesce::keep_first()),
        ("latest", Coalesce::keep_latest()),
        ("merge", merging(history)),
    ]
}

fn expected(name: &str) -> Evidence {
    match name {
        "first" => Evidence::new(),
        _ => Evidence::new().coalescing(),
    }
}

/// *Init*, *Process*, *Block*, *Decline*: one in flight, one that waits, and the others meet it.
#[test]
fn at_most_one_is_in_flight_and_one_waits() {
    for policy in 0..3 {
        paused().block_on(async {
            let history = History::new();
            let (name, coalesce) = policies(&history).into_iter().nth(policy).unwrap();
            let gate = Gate::new();
            let script = Script::new(&history).key(1, Act::ok().waits(&gate));
            let client = Client::start(&history, script, jobs().coalesce(coalesce));
            // Init.
            assert_eq!(client.jobs.inspect(&1), None);
            client.submit(1).await;
            quiet().await;
            // Process.
            let view = client.jobs.inspect(&1).unwrap();
            assert!(matches!(view.state, LaneState::Running { attempt: 1, .. }));
            assert_eq!(view.depth, 1);
            client.submit(1).await;
            quiet().await;
            // Block.
            assert_eq!(client.jobs.inspect(&1).unwrap().depth, 2);
            client.submit_all(1, 3).await;
            quiet().await;
            // Decline, whichever way.
            assert_eq!(client.history.attempts(), [(1, 1)]);
            assert_eq!(
                client.jobs.stats().coalesced,
                if policy == 2 { 0 } else { 3 }
            );
            gate.release(1);
            quiet().await;
            let stands = if name == "first" { 2 } else { 5 };
            assert_eq!(client.history.attempts(), [(1, 1), (stands, 1)]);
            assert_eq!(client.jobs.inspect(&1).unwrap().depth, 1);
            gate.release(1);
            quiet().await;
            assert_eq!(client.jobs.inspect(&1), None);
            let evidence = expected(name);
            let (report, outcomes) = client.finish(evidence).await;
            assert_eq!((report.done, report.coalesced), (2, 3));
            let words = match name {
                "first" => ["done", "done", "declined", "declined", "declined"],
                "latest" => ["done", "superseded", "superseded", "superseded", "done"],
                _ => ["done", "merged", "merged", "merged", "done"],
            };
            assert_eq!(outcomes.words(), words);
        });
    }
}

/// The one message that the only handler slot is taken for others does not make two of it.
#[test]
fn a_burst_for_an_idle_key_on_a_busy_dispatcher_is_one_piece_of_work() {
    for policy in 0..3 {
        paused().block_on(async {
            let history = History::new();
            let (name, coalesce) = policies(&history).into_iter().nth(policy).unwrap();
            let hog = Gate::new();
            let script = Script::new(&history).key(9, Act::ok().waits(&hog));
            let jobs = jobs().concurrency(1).coalesce(coalesce);
            let client = Client::start(&history, script, jobs);
            client.submit(9).await;
            quiet().await;
            for _ in 0..3 {
                client.submit_all(1, 5).await;
                quiet().await;
            }
            let view = client.jobs.inspect(&1).unwrap();
            assert_eq!(view.state, LaneState::Ready);
            // The first one in the ready queue meets the one that stands for the others when its
            // turn comes.
            assert_eq!(view.depth, if name == "merge" { 15 } else { 2 });
            hog.open();
            let (report, _) = client.clone().finish(expected(name)).await;
            assert_eq!((report.done, report.coalesced), (2, 14));
            let stands = if name == "first" { 2 } else { 16 };
            assert_eq!(client.history.handled(), [1, stands]);
        });
    }
}

/// The one that waits behind a head that has settled has not started either while others are first.
#[test]
fn what_waits_for_a_runner_behind_a_settled_head_counts_as_waiting() {
    for policy in 0..3 {
        paused().block_on(async {
            let history = History::new();
            let (name, coalesce) = policies(&history).into_iter().nth(policy).unwrap();
            let (gate, hog) = (Gate::new(), Gate::new());
            let script = Script::new(&history)
                .message(1, Act::ok().waits(&gate))
                .key(9, Act::ok().waits(&hog));
            let jobs = jobs().concurrency(1).quantum(1).coalesce(coalesce);
            let client = Client::start(&history, script, jobs);
            client.submit(1).await;
            quiet().await;
            client.submit(9).await;
            client.submit(1).await;
            quiet().await;
            gate.release(1);
            quiet().await;
            // The hog has the only place now; id 3 is ready, and has not started.
            assert_eq!(client.history.attempts(), [(1, 1), (2, 1)]);
            client.submit_all(1, 4).await;
            quiet().await;
            hog.open();
            let (report, _) = client.clone().finish(expected(name)).await;
            assert_eq!((report.done, report.coalesced), (3, 4), "{name}");
            let stands = if name == "first" { 3 } else { 7 };
            assert_eq!(client.history.handled(), [1, 2, stands]);
        });
    }
}

/// A head that is tried again has started: one waits behind it, and no more.
#[test]
fn a_failing_head_counts_as_in_flight() {
    for policy in 0..3 {
        paused().block_on(async {
            let history = History::new();
            let (name, coalesce) = policies(&history).into_iter().nth(policy).unwrap();
            let script =
                Script::new(&history)
                    .attempt(1, 1, Act::error())
                    .attempt(1, 2, Act::panic());
            let jobs = jobs()
                .retry(Retry::fixed(SECOND).max_attempts(3))
                .coalesce(coalesce);
            let client = Client::start(&history, script, jobs);
            client.submit(1).await;
            quiet().await;
            for _ in 0..2 {
                client.submit_all(1, 2).await;
                tokio::time::sleep(SECOND).await;
            }
            let (report, outcomes) = client.clone().finish(expected(name)).await;
            assert_eq!((report.done, report.coalesced), (2, 3));
            let stands = if name == "first" { 2 } else { 5 };
            assert_eq!(
                client.history.attempts(),
                [(1, 1), (1, 2), (1, 3), (stands, 1)],
                "{outcomes:?}"
            );
        });
    }
}

/// A head that is given up on, in each way, lets the one that waits go on.
#[test]
fn a_head_that_is_given_up_on_goes_before_what_waits() {
    for way in ["discard", "letter", "halt"] {
        paused().block_on(async {
            let history = History::new();
            let letters = LetterBox::new(&history).refuses(1);
            let script = Script::new(&history).message(1, Act::error());
            let exhausted = match way {
                "discard" => OnExhausted::Discard,
                "letter" => OnExhausted::dead_letter(letters.sink(|job: &Job| job.id)),
                _ => OnExhausted::Halt,
            };
            let jobs = jobs().on_exhausted(exhausted).coalesce(merging(&history));
            let client = Client::start(&history, script, jobs);
            client.submit(1).await;
            quiet().await;
            client.submit_all(1, 3).await;
            quiet().await;
            if way == "halt" {
                let view = client.jobs.inspect(&1).unwrap();
                assert!(matches!(view.state, LaneState::Halted { .. }), "{view:?}");
                assert_eq!(view.depth, 4);
                client.jobs.lane(&1).skip().unwrap();
            }
            tokio::time::sleep(SECOND).await;
            assert_eq!(client.history.handled(), [4], "{way}");
            let (_, outcomes) = client.finish(Evidence::new().coalescing()).await;
            let gone = if way == "letter" {
                "dead-lettered"
            } else {
                "failed"
            };
            assert_eq!(outcomes.words(), [gone, "merged", "merged", "done"]);
        });
    }
}
