//! Very many messages of one key.

use keylane::Overflow;
use keylane::discipline::Coalesce;
use keylane_testkit::scenario::{paused, quiet, threads};
use keylane_testkit::{Act, Evidence, Gate, History, Script};

use crate::sequence::contiguous;
use crate::support::{Client, Job, jobs, merging};

const MANY: usize = 10_000;

/// One piece of work of ten thousand: no recursion, no quadratic walk, and all of them settle.
#[test]
fn ten_thousand_become_one() {
    for shares in [false, true] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).message(1, Act::ok().waits(&gate));
            let mut builder = jobs()
                .lane_capacity(2 * MANY, Overflow::Wait)
                // Without a list of the parts: that would be quadratic by itself.
                .coalesce(Coalesce::merge(|_: &Job, new: &Job| new.clone()));
            if shares {
                builder = builder.share_answers::<u64>();
            }
            let client = Client::start(&history, script, builder);
            client.submit(1).await;
            quiet().await;
            client.submit_all(1, MANY).await;
            quiet().await;
            assert_eq!(client.jobs.inspect(&1).unwrap().depth, MANY + 1);
            gate.open();
            quiet().await;
            let last = MANY as u64 + 1;
            assert_eq!(client.history.handled(), [1, last]);
            let answers = client.answered();
            assert_eq!(answers.len(), MANY + 1);
            if shares {
                assert!(answers.iter().all(|(id, is)| *id == 1 || *is == Ok(last)));
            }
            let report = client.jobs.drain().await;
            assert_eq!((report.done, report.coalesced), (2, MANY as u64 - 1));
        });
    }
}

/// The same, given up in the middle.
#[test]
fn ten_thousand_in_one_are_handed_back_as_one() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs()
            .lane_capacity(2 * MANY, Overflow::Wait)
            .coalesce(Coalesce::merge(|_: &Job, new: &Job| new.clone()));
        let client = Client::start(&history, Script::new(&history), jobs);
        client.jobs.lane(&1).pause();
        client.submit_all(1, MANY).await;
        quiet().await;
        let report = client.jobs.close().await;
        assert_eq!((report.handed_back, report.coalesced), (1, MANY as u64 - 1));
        assert_eq!(client.answered().len(), MANY);
    });
}

/// Ten thousand versions, the last one first.
#[test]
fn ten_thousand_versions_backwards() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs()
            .lane_capacity(2 * MANY, Overflow::Wait)
            .sequence(contiguous().from(1).early(MANY));
        let client = Client::start(&history, Script::new(&history), jobs);
        client.submit_versions(1, (1..=MANY as u64).rev()).await;
        quiet().await;
        let expected: Vec<_> = (1..=MANY as u64).rev().collect();
        assert_eq!(client.history.handled(), expected);
        let (report, _) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!(report.done, MANY as u64);
    });
}

/// Two threads, four senders, two keys each: the last version of each key is handled last.
#[test]
fn threads_that_send_at_once() {
    for merges in [false, true] {
        threads().block_on(async {
            let history = History::new();
            let script = Script::new(&history).otherwise(Act::ok().yields(1));
            let coalesce = match merges {
                false => Coalesce::keep_latest(),
                true => merging(&history),
            };
            let client = Client::start(&history, script, jobs().coalesce(coalesce));
            let mut senders = tokio::task::JoinSet::new();
            for sender in 0..4 {
                let client = client.clone();
                senders.spawn(async move {
                    for number in 0..400 {
                        client.submit(2 * sender + number % 2).await;
                        if number % 7 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                });
            }
            senders.join_all().await;
            let (report, _) = client.finish(Evidence::new().coalescing()).await;
            assert_eq!(report.done + report.coalesced, 1_600);
        });
    }
}
