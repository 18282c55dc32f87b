//! `Coalesce`: many requests for one key are one piece of work.

use keylane::error::{Failure, ReceiptError};
use keylane::watching::LaneState;
use keylane::{Coalesce, Delayed, OnExhausted, Overflow, Retry};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Script};

use crate::support::{Client, Job, jobs, merging, scripted, word};
use keylane_testkit::scenario::{MS, SECOND, paused, quiet};

/// The three policies, by name.
fn policies(history: &History) -> [(&'static str, Coalesce<Job>); 3] {
    [
        ("first", Coalesce::keep_first()),
        ("latest", Coalesce::keep_latest()),
        ("merge", merging(history)),
    ]
}

fn expected(name: &str, first: &'static str, latest: &'static str) -> Evidence {
    let _ = (first, latest);
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
            let [..] = policies(&history);
            let (name, coalesce) = policies(&history).into_iter().nth(policy).unwrap();
            let gate = Gate::new();
            let script = Script::new(&history).key(1, Act::ok().waits(&gate));
            let jobs = jobs().coalesce(coalesce).spawn(scripted(script)).unwrap();
            let client = Client::new(&history, jobs);
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
            let evidence = expected(name, "", "");
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
            let jobs = jobs()
                .concurrency(1)
                .coalesce(coalesce)
                .spawn(scripted(script))
                .unwrap();
            let client = Client::new(&history, jobs);
            client.submit(9).await;
            quiet().await;
            for _ in 0..3 {
                client.submit_all(1, 5).await;
                quiet().await;
            }
            let view = client.jobs.inspect(&1).unwrap();
            assert_eq!(view.state, LaneState::Ready);
            assert_eq!(view.depth, if name == "merge" { 15 } else { 1 });
            hog.open();
            let (report, _) = client.clone().finish(expected(name, "", "")).await;
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
            let jobs = jobs()
                .concurrency(1)
                .quantum(1)
                .coalesce(coalesce)
                .spawn(scripted(script))
                .unwrap();
            let client = Client::new(&history, jobs);
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
            let (report, _) = client.clone().finish(expected(name, "", "")).await;
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
                .coalesce(coalesce)
                .spawn(scripted(script))
                .unwrap();
            let client = Client::new(&history, jobs);
            client.submit(1).await;
            quiet().await;
            for _ in 0..2 {
                client.submit_all(1, 2).await;
                tokio::time::sleep(SECOND).await;
            }
            let (report, outcomes) = client.clone().finish(expected(name, "", "")).await;
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
            let jobs = jobs()
                .on_exhausted(exhausted)
                .coalesce(merging(&history))
                .spawn(scripted(script))
                .unwrap();
            let client = Client::new(&history, jobs);
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

/// What a merged message settles with is the outcome of the one it was merged into.
#[test]
fn merged_messages_settle_with_the_one_they_were_merged_into() {
    paused().block_on(async {
        let history = History::new();
        let (gate, slow) = (Gate::new(), Gate::new());
        let script = Script::new(&history)
            .message(1, Act::ok().waits(&gate))
            .message(4, Act::ok().waits(&slow))
            .message(6, Act::error());
        let jobs = jobs()
            .coalesce(merging(&history))
            .spawn(scripted(script))
            .unwrap();
        let client = Client::new(&history, jobs);
        client.submit_all(1, 1).await;
        quiet().await;
        client.submit_all(1, 3).await;
        gate.open();
        quiet().await;
        // In flight, and so none of the three has an outcome yet.
        assert_eq!(client.answered().len(), 1);
        assert_eq!(client.jobs.stats().coalesced, 0);
        client.submit_all(1, 2).await;
        slow.open();
        quiet().await;
        let answers = client.answered();
        let words: Vec<_> = answers
            .iter()
            .map(|(id, is)| (*id, word(*id, is)))
            .collect();
        let all = [
            (2, "merged"),
            (3, "merged"),
            (4, "done"),
            (5, "unmerged"),
            (6, "failed"),
        ];
        assert_eq!(words, all);
        let report = client.jobs.drain().await;
        assert_eq!((report.done, report.coalesced, report.discarded), (2, 3, 1));
    });
}

/// The merged message is what the function made, under the key of the two.
#[test]
fn the_handler_gets_what_was_merged_in_order() {
    paused().block_on(async {
        let history = History::new();
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let jobs = jobs()
            .concurrency(1)
            .coalesce(Coalesce::merge(|waiting: &Job, new: &Job| Job {
                // Another key: it is not asked again.
                key: 77,
                id: new.id,
                version: 0,
                parts: [&waiting.parts[..], &[waiting.id]].concat(),
            }))
            .spawn({
                let seen = std::sync::Arc::clone(&seen);
                move |ctx: keylane::Context<u64>, job: Job| {
                    seen.lock().unwrap().push((ctx.key().copied(), job.parts));
                    async move { Ok(job.id) }
                }
            })
            .unwrap();
        let client = Client::new(&history, jobs);
        for _ in 0..2 {
            client.submit_all(5, 4).await;
            quiet().await;
        }
        let report = client.jobs.drain().await;
        assert_eq!((report.done, report.coalesced), (2, 6));
        let seen = seen.lock().unwrap();
        assert_eq!(*seen, [(Some(5), vec![1, 2, 3]), (Some(5), vec![5, 6, 7])]);
    });
}

/// The newcomer takes the place of the one that waits, and that one's reason to wait goes with it.
#[test]
fn a_newcomer_does_not_wait_for_the_time_of_the_one_it_replaces() {
    for merges in [false, true] {
        paused().block_on(async {
            let history = History::new();
            let coalesce = match merges {
                false => Coalesce::keep_latest(),
                true => merging(&history),
            };
            let jobs = jobs()
                .delayed(Delayed::Wait)
                .coalesce(coalesce)
                .spawn(scripted(Script::new(&history)))
                .unwrap();
            let late = Job {
                key: 1,
                id: 100,
                version: 0,
                parts: Vec::new(),
            };
            let sending = history.sending(1, 0, 100);
            let receipt = jobs.submit_when(late, 1_000 * SECOND).await.unwrap();
            sending.ok();
            let client = Client::new(&history, jobs);
            quiet().await;
            assert!(matches!(
                client.jobs.inspect(&1).unwrap().state,
                LaneState::Delayed { .. }
            ));
            client.submit(1).await;
            quiet().await;
            assert_eq!(client.history.handled(), [1]);
            let answer = receipt.await.unwrap_err();
            match merges {
                false => assert!(matches!(answer, ReceiptError::Superseded(job) if job.id == 100)),
                true => assert_eq!(answer, ReceiptError::Merged { handled: true }),
            }
            client.jobs.drain().await;
        });
    }
}

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
                        })
                        .spawn(scripted(script))
                        .unwrap();
                    let client = Client::new(&history, jobs);
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
                .coalesce(merging(&history))
                .spawn(scripted(script))
                .unwrap();
            let client = Client::new(&history, jobs);
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
            assert!(matches!(
                refused,
                Err(keylane::error::TrySendError::LaneFull(_))
            ));
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
                .coalesce(merging(&history))
                .spawn(scripted(script))
                .unwrap();
            let client = Client::new(&history, jobs);
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
            let client = Client::new(&history, builder.spawn(scripted(script)).unwrap());
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

/// Operators: paused, resumed, purged, skipped, replaced.
#[test]
fn a_paused_key_coalesces_and_an_operator_decides() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs()
            .coalesce(merging(&history))
            .spawn(scripted(Script::new(&history)))
            .unwrap();
        let client = Client::new(&history, jobs);
        let lane = client.jobs.lane(&1);
        lane.pause();
        client.submit_all(1, 3).await;
        quiet().await;
        let view = lane.inspect().unwrap();
        assert_eq!((view.state, view.depth), (LaneState::Paused, 3));
        assert_eq!(lane.purge(), 1);
        assert_eq!(lane.inspect().unwrap().depth, 0);
        client.submit_all(1, 2).await;
        quiet().await;
        lane.skip().unwrap();
        assert_eq!(lane.inspect().unwrap().depth, 0);
        client.submit_all(1, 2).await;
        quiet().await;
        lane.resume().unwrap();
        quiet().await;
        assert_eq!(client.history.handled(), [7]);
        assert_eq!(lane.inspect(), None);
        let (report, outcomes) = client.finish(Evidence::new().coalescing()).await;
        let words = [
            "unmerged", "unmerged", "purged", "unmerged", "failed", "merged", "done",
        ];
        assert_eq!(outcomes.words(), words);
        assert_eq!((report.coalesced, report.discarded), (4, 2));
    });
}

/// A skipped message says so.
#[test]
fn a_skipped_head_says_that_it_was_skipped() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs()
            .coalesce(Coalesce::keep_latest())
            .spawn(scripted(Script::new(&history)))
            .unwrap();
        let client = Client::new(&history, jobs);
        client.jobs.lane(&1).pause();
        client.submit(1).await;
        quiet().await;
        client.jobs.lane(&1).skip().unwrap();
        quiet().await;
        let answers = client.answered();
        assert_eq!(answers[&1], Err(ReceiptError::Failed(Failure::Skipped)));
        client.jobs.drain().await;
    });
}

/// What expires takes what was merged into it along, and leaves nothing that counts.
#[test]
fn a_message_that_expires_leaves_nothing_in_the_lane() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).message(1, Act::ok().waits(&gate));
        let jobs = jobs()
            .concurrency(1)
            .rate_per_key(keylane::Rate::per_second(1))
            .expire_after(10 * MS)
            .coalesce(merging(&history))
            .spawn(scripted(script))
            .unwrap();
        let client = Client::new(&history, jobs);
        client.submit(1).await;
        quiet().await;
        client.submit_all(1, 4).await;
        tokio::time::advance(10 * MS).await;
        gate.open();
        quiet().await;
        let depth = client.jobs.inspect(&1).map_or(0, |view| view.depth);
        assert_eq!(depth, 0);
        let report = client.jobs.drain().await;
        assert_eq!((report.done, report.expired, report.coalesced), (1, 1, 3));
    });
}
