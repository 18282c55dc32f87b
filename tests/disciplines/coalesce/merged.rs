//! What becomes of messages that are merged into a newer one, or replaced by it.

use std::sync::{Arc, Mutex};

use keylane::discipline::{Coalesce, Delayed};
use keylane::error::ReceiptError;
use keylane::watching::LaneState;
use keylane::{Context, Overflow, Rate};
use keylane_testkit::scenario::{MS, SECOND, paused, quiet, settle_until, within};
use keylane_testkit::{Act, Gate, History, Script};
use tokio::runtime::{Builder, Handle};

use crate::support::{Client, Job, jobs, merging, scripted, word};

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
        let jobs = jobs().coalesce(merging(&history));
        let client = Client::start(&history, script, jobs);
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
        let seen = Arc::new(Mutex::new(Vec::new()));
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
                let seen = Arc::clone(&seen);
                move |ctx: Context<u64>, job: Job| {
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

/// What expires takes what was merged into it along, and leaves nothing that counts.
#[test]
fn a_message_that_expires_leaves_nothing_in_the_lane() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).message(1, Act::ok().waits(&gate));
        let jobs = jobs()
            .concurrency(1)
            .rate_per_key(Rate::per_second(1))
            .expire_after(10 * MS)
            .coalesce(merging(&history));
        let client = Client::start(&history, script, jobs);
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

/// The messages that are merged have left the lane: the merge function need not end for others to
/// come in.
#[test]
fn senders_come_in_while_messages_are_merged() {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let (came, comes) = std::sync::mpsc::channel();
    let comes = Mutex::new(comes);
    let history = History::new();
    let hog = Gate::new();
    let script = Script::new(&history).key(9, Act::ok().waits(&hog));
    let all = runtime.block_on(async {
        let jobs = jobs()
            .concurrency(1)
            .lane_capacity(3, Overflow::Wait)
            .coalesce(Coalesce::merge(move |_: &Job, new: &Job| {
                if new.id == 3 {
                    // The fourth one is sent while the second and the third are merged.
                    let came = comes.lock().unwrap().recv_timeout(20 * SECOND);
                    came.expect("it comes in meanwhile");
                }
                new.clone()
            }));
        let client = Client::start(&history, script, jobs);
        client.submit(9).await;
        client.submit_all(1, 3).await;
        // On a thread of its own, which no task of the dispatcher can hold up.
        let late = std::thread::spawn({
            let (client, runtime) = (client.clone(), Handle::current());
            move || {
                runtime.block_on(client.submit(1));
                came.send(()).unwrap();
            }
        });
        settle_until(|| client.jobs.inspect(&1).is_some_and(|lane| lane.depth >= 3)).await;
        hog.open();
        settle_until(|| late.is_finished()).await;
        late.join().unwrap();
        within(client.jobs.drain().into_future()).await
    });
    assert_eq!((all.accepted, all.done + all.coalesced), (5, 5));
}
