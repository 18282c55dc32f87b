//! The end in the midst: the accounting is exact, and every receipt resolves.

use keylane::discipline::{Coalesce, OnGap};
use keylane::{Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Random, SECOND, assert_no_engine_panics, assert_nothing_left, cases, paused, quiet,
    settle_until, threads, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, Script};

use crate::sequence::contiguous;
use crate::support::{Client, Job, Jobs, jobs, merging, scripted};

fn end(jobs: &Jobs, way: u64) -> keylane::Shutdown<u64, Job, u64, keylane_testkit::ScriptError> {
    match way {
        0 => jobs.drain(),
        1 => jobs.close(),
        2 => jobs.abort(),
        _ => jobs.drain().within(2 * SECOND),
    }
}

/// In flight, merged and waiting, in backoff with more behind it, ready: all at once.
#[test]
fn coalescing_lanes_meet_each_end() {
    for seed in 0..cases(120).into() {
        paused().block_on(async {
            let mut dice = Random::new(seed);
            let way = dice.below(4);
            let history = History::new();
            let script = Script::new(&history)
                .key(1, Act::ok().sleeps(SECOND))
                .key(2, Act::error())
                .key(3, Act::never());
            let policy = dice.below(3);
            let shares = dice.one_in(2);
            let mut builder = jobs()
                .concurrency(1 + dice.below(3) as usize)
                .attempt_timeout(3 * SECOND)
                .retry(Retry::fixed(SECOND).max_attempts(2))
                .lane_capacity(8, Overflow::Wait)
                .coalesce(match policy {
                    0 => Coalesce::keep_first(),
                    1 => Coalesce::keep_latest(),
                    _ => merging(&history),
                });
            if shares {
                builder = builder.share_answers::<u64>();
            }
            let client = Client::start(&history, script, builder);
            for _ in 0..16 {
                let key = 1 + dice.below(4);
                let full = client.jobs.inspect(&key).is_some_and(|view| view.full);
                if !full {
                    client.submit(key).await;
                }
                if dice.one_in(3) {
                    quiet().await;
                }
                if dice.one_in(8) {
                    tokio::time::sleep(SECOND / 2).await;
                }
            }
            let report = within(async { end(&client.jobs, way).await }).await;
            let accepted = report.accepted;
            let sum = report.done + report.discarded + report.coalesced + report.handed_back;
            assert_eq!(sum, accepted, "{report}");
            let answers = client.answered();
            assert_eq!(answers.len() as u64, accepted, "every receipt resolves");
            let mut counts = std::collections::BTreeMap::<_, u64>::new();
            for (id, answer) in &answers {
                *counts.entry(crate::support::word(*id, answer)).or_default() += 1;
            }
            let count = |word: &str| counts.get(word).copied().unwrap_or(0);
            assert_eq!(count("done"), report.done, "{counts:?} {report}");
            assert_eq!(
                count("handed back") + count("interrupted"),
                report.handed_back
            );
            assert_nothing_left(&client.jobs);
            assert_no_engine_panics();
        });
    }
}

#[test]
fn sequencing_lanes_meet_each_end() {
    for seed in 0..cases(120).into() {
        paused().block_on(async {
            let mut dice = Random::new(1_000 + seed);
            let way = dice.below(4);
            let history = History::new();
            let script = Script::new(&history)
                .key(1, Act::ok().sleeps(SECOND))
                .key(2, Act::error());
            let then = if dice.one_in(2) {
                OnGap::Skip
            } else {
                OnGap::Halt
            };
            let jobs = jobs()
                .concurrency(1 + dice.below(3) as usize)
                .retry(Retry::fixed(SECOND).max_attempts(2))
                .sequence(contiguous().from(1).early(4).gap_timeout(SECOND, then));
            let client = Client::start(&history, script, jobs);
            for _ in 0..24 {
                let (key, version) = (1 + dice.below(3), dice.below(12));
                client.submit_version(key, version).await;
                if dice.one_in(3) {
                    quiet().await;
                }
                if dice.one_in(8) {
                    tokio::time::sleep(SECOND / 2).await;
                }
            }
            let report = within(async { end(&client.jobs, way).await }).await;
            client.judge(report, Evidence::new().sequencing());
        });
    }
}

/// The runtime goes away: receipts resolve, and nothing panics.
#[test]
fn the_runtime_is_dropped_in_the_midst() {
    for merges in [false, true] {
        for workers in [false, true] {
            let history = History::new();
            let runtime = if workers { threads() } else { paused() };
            let gate = Gate::new();
            let client = runtime.block_on(async {
                let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
                let builder = jobs();
                let jobs = match merges {
                    true => builder.coalesce(merging(&history)).spawn(scripted(script)),
                    false => builder
                        .sequence(contiguous().from(1))
                        .spawn(scripted(script)),
                };
                let client = Client::new(&history, jobs.unwrap());
                client.submit_version(1, 1).await;
                gate.arrivals(1).await;
                client.submit_versions(1, [2, 3, 9]).await;
                let stats = || client.jobs.stats();
                settle_until(|| stats().accepted == 4 && stats().ready == 0).await;
                client
            });
            drop(runtime);
            let answers = client.answered();
            assert_eq!(answers.len(), 4, "{answers:?}");
            let stats = client.jobs.stats();
            let settled = stats.handed_back + stats.coalesced;
            assert_eq!(settled, 4, "{stats:?}");
            assert_no_engine_panics();
        }
    }
}

/// The last handle goes: what was accepted is still handled.
#[test]
fn the_last_handle_goes() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs()
            .concurrency(1)
            .coalesce(merging(&history))
            .spawn(scripted(
                Script::new(&history).otherwise(Act::ok().sleeps(MS)),
            ))
            .unwrap();
        let mut receipts = Vec::new();
        for id in 1..=5 {
            let job = Job {
                key: 1,
                id,
                version: id,
                parts: Vec::new(),
            };
            receipts.push(jobs.submit(job).await.unwrap());
        }
        drop(jobs);
        for (receipt, id) in receipts.into_iter().zip(1..) {
            let answer = within(receipt).await;
            assert!(
                answer == Ok(id)
                    || answer == Err(keylane::error::ReceiptError::Merged { handled: true })
            );
        }
    });
}
