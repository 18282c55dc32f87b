//! Bad input: typed errors, never a wedge, nothing lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keylane::Dispatcher;
use keylane::discipline::{Coalesce, OnGap, Sequence};
use keylane::error::{BuildError, Failure, ReceiptError};
use keylane_testkit::scenario::{MS, SECOND, paused, quiet, within};
use keylane_testkit::{Act, Evidence, Gate, History, Script};

use crate::sequence::{contiguous, monotonic, versions};
use crate::support::{Client, Job, jobs, scripted};

#[test]
fn settings_that_cannot_work_are_named() {
    paused().block_on(async {
        let never = std::time::Duration::ZERO;
        let refused = |sequence: Sequence<u64, Job>| {
            let script = Script::new(&History::new());
            jobs().sequence(sequence).spawn(scripted(script)).err()
        };
        let zero = |what| Some(BuildError::Zero(what));
        assert_eq!(refused(contiguous().early(0)), zero("Sequence::early"));
        let gap = contiguous().gap_timeout(never, OnGap::Skip);
        assert_eq!(refused(gap), zero("Sequence::gap_timeout"));
        assert_eq!(
            refused(contiguous().remember(0, SECOND)),
            zero("Sequence::remember")
        );
        assert_eq!(
            refused(contiguous().remember(1, never)),
            zero("Sequence::remember")
        );
        let letters = contiguous().gap_timeout(SECOND, OnGap::DeadLetter);
        assert_eq!(refused(letters), Some(BuildError::NoDeadLetterSink));
        let both = jobs()
            .coalesce(Coalesce::keep_latest())
            .sequence(contiguous())
            .spawn(scripted(Script::new(&History::new())));
        assert_eq!(
            both.err(),
            Some(BuildError::Conflict("coalesce", "sequence"))
        );
    });
}

#[test]
fn versions_at_both_ends_of_the_numbers() {
    let max = u64::MAX;
    for (start, sent, handled) in [
        (Some(0), vec![1, 0, 0, 2], vec![0, 1, 2]),
        (Some(max), vec![max, max, 0, max - 1], vec![max]),
        (
            Some(max - 1),
            vec![max, 5, max - 1, max],
            vec![max - 1, max],
        ),
        (None, vec![max, 0, max], vec![max]),
        (None, vec![max - 1, max, max - 1, 0], vec![max - 1, max]),
        (Some(1), vec![0, 0, 1], vec![1]),
    ] {
        paused().block_on(async {
            let history = History::new();
            let sequence = start.map_or(contiguous(), |first| contiguous().from(first));
            let jobs = jobs().sequence(sequence);
            let client = Client::start(&history, Script::new(&history), jobs);
            for version in &sent {
                client.submit_version(1, *version).await;
                quiet().await;
            }
            assert_eq!(versions(&client, &sent), handled);
            assert_eq!(client.jobs.inspect(&1), None);
            let (report, _) = client.finish(Evidence::new().sequencing()).await;
            assert_eq!(report.duplicates, (sent.len() - handled.len()) as u64);
        });
    }
}

/// A version from the far end is early, and its gap is as large as the numbers go.
#[test]
fn a_version_that_jumps_to_the_end_is_a_gap() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs().sequence(contiguous().from(0).gap_timeout(SECOND, OnGap::Skip));
        let client = Client::start(&history, Script::new(&history), jobs);
        let sent = [u64::MAX, 0, 1];
        for version in sent {
            client.submit_version(1, version).await;
            quiet().await;
        }
        tokio::time::sleep(2 * SECOND).await;
        client.submit_version(1, 2).await;
        quiet().await;
        assert_eq!(versions(&client, &sent), [0, 1, u64::MAX]);
        let (report, outcomes) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!((report.duplicates, outcomes.count("done")), (1, 3));
    });
}

#[test]
fn a_monotonic_key_at_its_end_takes_nothing_more() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs().sequence(monotonic());
        let client = Client::start(&history, Script::new(&history), jobs);
        client.submit_versions(1, [0, u64::MAX, u64::MAX, 7]).await;
        quiet().await;
        client.submit_version(1, u64::MAX).await;
        let (report, _) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!((report.done, report.duplicates), (2, 3));
    });
}

/// A time-out that no clock reaches is a wait for ever, and no panic.
#[test]
fn a_gap_time_out_beyond_all_times() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs().sequence(
            contiguous()
                .from(1)
                .gap_timeout(std::time::Duration::MAX, OnGap::Skip),
        );
        let client = Client::start(&history, Script::new(&history), jobs);
        client.submit_version(1, 2).await;
        quiet().await;
        client.submit_version(1, 1).await;
        quiet().await;
        assert_eq!(client.history.handled(), [2, 1]);
        client.finish(Evidence::new().sequencing()).await;
    });
}

/// The version function panics in the task of the sender: nothing was accepted, and nothing is taken.
#[test]
fn a_version_function_that_panics() {
    paused().block_on(async {
        let jobs = jobs()
            .capacity(2)
            .sequence(Sequence::contiguous(|job: &Job| {
                assert_ne!(job.version, 13, "unlucky");
                job.version
            }))
            .spawn(scripted(Script::new(&History::new())))
            .unwrap();
        for _ in 0..5 {
            let sends = jobs.clone();
            let sent = tokio::spawn(async move { sends.send(Job::new(1, 13)).await }).await;
            assert!(sent.unwrap_err().is_panic());
        }
        assert_eq!((jobs.stats().capacity_left, jobs.stats().accepted), (2, 0));
        jobs.send(Job::new(1, 15)).await.unwrap();
        let report = jobs.drain().await;
        assert_eq!((report.accepted, report.done), (1, 1));
    });
}

/// The message that waits stays, the newcomer settles as failed, and the key goes on.
#[test]
fn a_merge_function_that_panics() {
    for shares in [false, true] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).message(1, Act::ok().waits(&gate));
            let merge = Coalesce::merge({
                let history = history.clone();
                move |waiting: &Job, new: &Job| {
                    if new.id == 4 {
                        std::panic::resume_unwind(Box::new("no merge".to_owned()));
                    }
                    history.coalesced(waiting.id, new.id);
                    new.clone()
                }
            });
            let mut builder = jobs().coalesce(merge);
            if shares {
                builder = builder.share_answers::<u64>();
            }
            let client = Client::start(&history, script, builder);
            client.submit(1).await;
            quiet().await;
            for _ in 2..=5 {
                client.submit(1).await;
                quiet().await;
            }
            let failure = Failure::Panicked("no merge".to_owned());
            let answers = client.answered();
            assert_eq!(answers[&4], Err(ReceiptError::Failed(failure)));
            assert_eq!(client.jobs.inspect(&1).unwrap().depth, 4);
            assert_eq!(client.jobs.stats().panics, 1);
            gate.open();
            quiet().await;
            assert_eq!(client.history.handled(), [1, 5]);
            let report = client.jobs.drain().await;
            let figures = (report.done, report.coalesced, report.discarded);
            assert_eq!(figures, (2, 2, 1));
            assert_eq!(client.jobs.stats().lanes, 0);
        });
    }
}

/// Every merge panics, on a busy dispatcher, for an idle key: the first one is handled.
#[test]
fn merges_that_always_panic_lose_nothing_that_waits() {
    paused().block_on(async {
        let history = History::new();
        let merge = Coalesce::merge(|_: &Job, _: &Job| {
            std::panic::resume_unwind(Box::new("never".to_owned()))
        });
        let jobs = jobs().concurrency(1).coalesce(merge);
        let client = Client::start(&history, Script::new(&history), jobs);
        for key in 1..=3 {
            client.submit_all(key, 10).await;
        }
        let (report, outcomes) = client.finish(Evidence::new()).await;
        assert_eq!((report.done, report.discarded), (3, 27));
        assert_eq!((outcomes.count("done"), outcomes.count("failed")), (3, 27));
    });
}

/// Panics in its drop, once it is told to.
#[derive(Clone)]
struct Touchy(u64, Arc<AtomicU64>);

impl Drop for Touchy {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("in drop"));
        }
    }
}

/// The messages that go are the user's to drop, whatever that does.
#[test]
fn messages_that_panic_when_they_are_dropped() {
    for policy in 0..4 {
        paused().block_on(async {
            let drops = Arc::new(AtomicU64::new(0));
            let gate = Gate::new();
            let coalesce = match policy {
                0 => Coalesce::keep_first(),
                1 | 2 => Coalesce::keep_latest(),
                _ => Coalesce::merge(|_: &Touchy, new: &Touchy| new.clone()),
            };
            let mut builder = Dispatcher::builder(|touchy: &Touchy| touchy.0).coalesce(coalesce);
            if policy != 1 {
                builder = builder.share_answers::<u64>();
            }
            let jobs = builder
                .spawn({
                    let gate = gate.clone();
                    move |touchy: Touchy| {
                        let gate = gate.clone();
                        async move {
                            gate.pass().await;
                            let key = touchy.0;
                            std::mem::forget(touchy);
                            Ok::<_, ()>(key)
                        }
                    }
                })
                .unwrap();
            for _ in 0..6 {
                jobs.send(Touchy(1, Arc::clone(&drops))).await.unwrap();
                quiet().await;
            }
            assert!(drops.load(Ordering::Relaxed) >= 4);
            gate.open();
            tokio::time::sleep(MS).await;
            let report = within(async { jobs.drain().await }).await;
            assert_eq!((report.done, report.coalesced), (2, 4), "{policy}");
            assert_eq!(jobs.stats().lanes, 0);
        });
    }
}
