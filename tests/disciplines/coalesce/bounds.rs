//! How much room a coalescing lane takes.

use keylane::discipline::Coalesce;
use keylane::error::TrySendError;
use keylane::{Overflow, Retry};
use keylane_testkit::scenario::{SECOND, paused, quiet};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Script};

use crate::support::{Client, Job, jobs, merging};

/// Coalescing lanes without receipts to keep hold two messages, whatever the capacities are: no sender
/// waits for room in a lane that would not grow.
#[test]
fn senders_do_not_wait_for_a_lane_that_does_not_grow() {
    for overflow in [
        Overflow::Wait,
        Overflow::Reject,
        Overflow::DropOldest,
        Overflow::DeadLetter,
    ] {
        for lane_capacity in 1..=2 {
            for first in [true, false] {
                paused().block_on(async {
                    let history = History::new();
                    let gate = Gate::new();
                    let letters = LetterBox::new(&history);
                    let script = Script::new(&history).message(1, Act::ok().waits(&gate));
                    let jobs = jobs()
                        .lane_capacity(lane_capacity, overflow)
                        .overflow_sink(letters.sink(|job: &Job| job.id))
                        .coalesce(match first {
                            true => Coalesce::keep_first(),
                            false => Coalesce::keep_latest(),
                        });
                    let client = Client::start(&history, script, jobs);
                    for _ in 0..5 {
                        tokio::time::timeout(SECOND, client.submit(1))
                            .await
                            .unwrap();
                        quiet().await;
                    }
                    gate.open();
                    let evidence = match first {
                        true => Evidence::new(),
                        false => Evidence::new().coalescing(),
                    };
                    let (report, _) = client.clone().finish(evidence).await;
                    assert_eq!((report.done, report.coalesced), (2, 3));
                    assert_eq!(client.history.handled(), [1, if first { 2 } else { 5 }]);
                });
            }
        }
    }
}

/// What a key merges is its own affair: it is bounded, and others go on.
#[test]
fn merging_lanes_are_bounded_and_never_wedge() {
    for overflow in [Overflow::Wait, Overflow::Reject] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).key(1, Act::ok().waits(&gate));
            let jobs = jobs()
                .lane_capacity(4, overflow)
                .coalesce(merging(&history));
            let client = Client::start(&history, script, jobs);
            for _ in 0..4 {
                client.submit(1).await;
                quiet().await;
            }
            assert!(client.jobs.inspect(&1).unwrap().full);
            let extra = Job {
                key: 1,
                id: 100,
                version: 100,
                parts: Vec::new(),
            };
            let refused = client.jobs.try_send(extra.clone());
            assert!(matches!(refused, Err(TrySendError::LaneFull(_))));
            let waiting = match overflow {
                Overflow::Wait => {
                    let client = client.clone();
                    Some(tokio::spawn(async move { client.submit(1).await }))
                }
                _ => None,
            };
            client.submit(2).await;
            quiet().await;
            assert_eq!(client.history.handled().len(), 1, "the other key");
            gate.release(1);
            quiet().await;
            if let Some(waiting) = waiting {
                waiting.await.unwrap();
            }
            client.submit(1).await;
            gate.open();
            quiet().await;
            let (report, outcomes) = client.finish(Evidence::new().coalescing()).await;
            assert_eq!(report.discarded, 0, "{outcomes:?}");
            assert_eq!(report.done + report.coalesced, report.accepted);
        });
    }
}

/// `DropOldest` drops what waits with all that is in it, for the new one; `DeadLetter` gives the new
/// one up.
#[test]
fn merging_lanes_at_an_exact_limit() {
    for oldest in [true, false] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let letters = LetterBox::new(&history);
            let overflow = match oldest {
                true => Overflow::DropOldest,
                false => Overflow::DeadLetter,
            };
            let script = Script::new(&history).message(1, Act::ok().waits(&gate));
            let jobs = jobs()
                .lane_capacity(3, overflow)
                .overflow_sink(letters.sink(|job: &Job| job.id))
                .coalesce(merging(&history));
            let client = Client::start(&history, script, jobs);
            for _ in 0..4 {
                client.submit(1).await;
                quiet().await;
            }
            gate.open();
            let evidence = match oldest {
                true => Evidence::new().coalescing(),
                false => Evidence::new().overflow_letters(),
            };
            let (_, outcomes) = client.finish(evidence).await;
            let words = match oldest {
                true => ["done", "unmerged", "dropped", "done"],
                false => ["done", "merged", "done", "dead-lettered"],
            };
            assert_eq!(outcomes.words(), words);
        });
    }
}

/// Merged debts of a key that fails are no load for the others.
#[test]
fn a_failing_key_keeps_no_room_for_what_was_merged() {
    for shares in [false, true] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).key(1, Act::error().waits(&gate));
            let builder = jobs()
                .capacity(10)
                .lane_capacity(10, Overflow::Wait)
                .retry(Retry::fixed(1_000 * SECOND).max_attempts(2));
            let builder = match shares {
                false => builder.coalesce(merging(&history)),
                true => builder
                    .coalesce(Coalesce::keep_first())
                    .share_answers::<u64>(),
            };
            let client = Client::start(&history, script, builder);
            // The head runs, and what comes meanwhile is load: nine of ten places.
            client.submit(1).await;
            quiet().await;
            client.submit_all(1, 8).await;
            quiet().await;
            assert_eq!(client.jobs.stats().capacity_left, 1);
            gate.release(1);
            quiet().await;
            let stats = client.jobs.stats();
            assert_eq!((stats.capacity_left, stats.stalled), (10, 9), "{stats:?}");
            // The second one fails too, and has eight debts.
            client.jobs.lane(&1).skip().unwrap();
            quiet().await;
            gate.release(1);
            quiet().await;
            let stats = client.jobs.stats();
            assert_eq!(
                (stats.capacity_left, stats.backing_off),
                (10, 1),
                "{stats:?}"
            );
            for _ in 0..20 {
                let sent = tokio::time::timeout(SECOND, client.submit(2)).await;
                sent.expect("another key has all the room");
                quiet().await;
            }
            let _ = client.jobs.abort().await;
            assert_eq!(client.jobs.stats().capacity_left, 10);
            assert_eq!(client.jobs.stats().stalled, 0);
        });
    }
}
