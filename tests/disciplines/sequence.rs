//! `Sequence`: only the next version runs, as TCP does.

use keylane::discipline::{OnGap, Sequence};
use keylane::watching::LaneState;
use keylane::{Overflow, Retry};
use keylane_testkit::scenario::{SECOND, paused, quiet};
use keylane_testkit::{Act, Evidence, Gate, History, Script};
use proptest::prelude::*;

use crate::support::{Client, Job, jobs};

pub(crate) fn contiguous() -> Sequence<u64, Job> {
    Sequence::contiguous(|job: &Job| job.version)
}

pub(crate) fn monotonic() -> Sequence<u64, Job> {
    Sequence::monotonic(|job: &Job| job.version)
}

fn client(sequence: Sequence<u64, Job>, history: &History) -> Client {
    let script = Script::new(history);
    Client::start(history, script, jobs().sequence(sequence))
}

/// The versions that were handled, in the order of the ends.
pub(crate) fn versions(client: &Client, sent: &[u64]) -> Vec<u64> {
    let version = |id: u64| sent[id as usize - 1];
    client.history.handled().into_iter().map(version).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: keylane_testkit::scenario::cases(200), ..ProptestConfig::default() })]

    /// Any order of delivery, with any duplicates: each version once, in order, and the rest
    /// duplicates.
    #[test]
    fn any_delivery_is_put_right(
        deliveries in (1_u64..40).prop_flat_map(|n| {
            let extra = proptest::collection::vec(1..=n, 0..40);
            (Just(n), extra)
        }).prop_flat_map(|(n, extra)| {
            let all: Vec<u64> = (1..=n).chain(extra).collect();
            (Just(n), Just(all).prop_shuffle())
        }),
        pace in 1_usize..8,
        concurrency in 1_usize..3,
    ) {
        let (n, sent) = deliveries;
        paused().block_on(async {
            let history = History::new();
            let script = Script::new(&history).choose(|cue| {
                Act::ok().yields((cue.id % 3) as u32)
            });
            let jobs = jobs()
                .concurrency(concurrency)
                .sequence(contiguous().from(1).early(100));
let client = Client::start(&history, script, jobs);
            for (index, version) in sent.iter().enumerate() {
                client.submit_version(1, *version).await;
                if index % pace == 0 {
                    quiet().await;
                }
            }
            quiet().await;
            assert_eq!(versions(&client, &sent), (1..=n).collect::<Vec<_>>());
            assert_eq!(client.jobs.inspect(&1), None, "nothing is left");
            let (report, _) = client.finish(Evidence::new().sequencing()).await;
            assert_eq!((report.done, report.duplicates), (n, sent.len() as u64 - n));
        });
    }

    /// Any newer version is welcome, and none goes back.
    #[test]
    fn monotonic_keys_only_go_forward(
        sent in proptest::collection::vec(0_u64..50, 1..60),
        pace in 1_usize..8,
    ) {
        paused().block_on(async {
            let history = History::new();
            let client = client(monotonic(), &history);
            let mut expected = Vec::new();
            for (index, version) in sent.iter().enumerate() {
                client.submit_version(1, *version).await;
                if expected.last().is_none_or(|last| last < version) {
                    expected.push(*version);
                }
                if index % pace == 0 {
                    quiet().await;
                }
            }
            quiet().await;
            assert_eq!(versions(&client, &sent), expected);
            let (report, _) = client.finish(Evidence::new().sequencing()).await;
            assert_eq!(report.duplicates, (sent.len() - expected.len()) as u64);
        });
    }
}

#[test]
fn a_key_starts_where_it_is_told_to() {
    paused().block_on(async {
        let history = History::new();
        let client = client(contiguous().from(5), &history);
        client.submit_versions(1, [7, 4, 6, 5, 0]).await;
        quiet().await;
        assert_eq!(versions(&client, &[7, 4, 6, 5, 0]), [5, 6, 7]);
        let (_, outcomes) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!(
            outcomes.words(),
            ["done", "duplicate", "done", "done", "duplicate"]
        );
    });
}

#[test]
fn a_key_starts_with_what_is_seen_first() {
    for version in [0, 1, 7, u64::MAX - 1] {
        paused().block_on(async {
            let history = History::new();
            let client = client(contiguous(), &history);
            let next = version + 1;
            let sent = [version, next, version, next];
            client.submit_versions(1, sent).await;
            quiet().await;
            assert_eq!(versions(&client, &sent), [version, next]);
            let (report, _) = client.finish(Evidence::new().sequencing()).await;
            assert_eq!((report.done, report.duplicates), (2, 2));
        });
    }
}

/// Failing versions hold the next ones up, and what is given up on is over.
#[test]
fn retries_come_before_the_next_version() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history)
            .attempt(1, 1, Act::error())
            .message(2, Act::error());
        let jobs = jobs()
            .retry(Retry::fixed(SECOND).max_attempts(2))
            .sequence(contiguous().from(1));
        let client = Client::start(&history, script, jobs);
        client.submit_versions(1, 1..=3).await;
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(
            client.history.attempts(),
            [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]
        );
        // Also of the one that was given up on.
        client.submit_versions(1, [2, 1, 3, 4]).await;
        let (report, _) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!(
            (report.done, report.discarded, report.duplicates),
            (3, 1, 3)
        );
    });
}

/// A copy of a version is a duplicate wherever the first one is.
#[test]
fn a_copy_is_a_duplicate_wherever_the_first_one_is() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(1, Act::ok().waits(&gate));
        let jobs = jobs().sequence(contiguous().from(1));
        let client = Client::start(&history, script, jobs);
        // In flight, parked, early.
        for version in [1, 2, 9] {
            client.submit_versions(1, [version, version]).await;
            quiet().await;
        }
        let stats = client.jobs.stats();
        assert_eq!(
            (stats.duplicates, stats.stalled, stats.done),
            (3, 1, 0),
            "at once"
        );
        gate.open();
        quiet().await;
        client.jobs.lane(&1).skip().unwrap();
        let (report, _) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!((report.done, report.duplicates), (3, 3));
    });
}

/// Early messages wait for messages of other senders: they take no room from other keys.
#[test]
fn early_messages_are_no_load() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs()
            .capacity(8)
            .lane_capacity(8, Overflow::Wait)
            .capacity_bytes(80, |_| 10)
            .sequence(contiguous().from(1).early(8));
        let client = Client::start(&history, Script::new(&history), jobs);
        for version in 2..=8 {
            client.submit_version(1, version).await;
            quiet().await;
        }
        let stats = client.jobs.stats();
        assert_eq!((stats.capacity_left, stats.stalled, stats.ready), (8, 7, 0));
        for version in 1..=50 {
            let sent = tokio::time::timeout(SECOND, client.submit_version(2, version));
            sent.await.expect("another key has all the room");
            quiet().await;
        }
        client.submit_version(1, 1).await;
        let (report, _) = client.clone().finish(Evidence::new().sequencing()).await;
        assert_eq!(report.done, 58);
        assert_eq!(client.jobs.stats().capacity_left, 8);
    });
}

/// Early messages fill a lane; the sender of what it waits for is not made to wait for them.
#[test]
fn a_full_lane_lets_in_the_missing_version() {
    for overflow in [Overflow::Wait, Overflow::Reject] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).key(1, Act::ok().waits(&gate));
            let jobs = jobs().lane_capacity(2, overflow).sequence(
                contiguous()
                    .from(1)
                    .gap_timeout(1_000 * SECOND, OnGap::Halt),
            );
            let client = Client::start(&history, script, jobs);
            for version in [4, 5] {
                client.submit_version(1, version).await;
                quiet().await;
            }
            let view = client.jobs.inspect(&1).unwrap();
            assert!(
                view.full
                    && matches!(
                        view.state,
                        LaneState::Gap {
                            first: 1,
                            last: 3,
                            ..
                        }
                    )
            );
            // The second one waits at the gate until the first one has made it the next.
            let late = |version| {
                let client = client.clone();
                tokio::spawn(async move {
                    loop {
                        let job = Job {
                            key: 1,
                            id: 100 + version,
                            version,
                            parts: Vec::new(),
                        };
                        let sending = client.history.sending(1, version, job.id);
                        match client.jobs.send(job).await {
                            Ok(()) => break sending.ok(),
                            Err(keylane::error::SendError::LaneFull(_)) => {
                                sending.fail();
                                tokio::time::sleep(SECOND).await;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            };
            let waits = [late(2), late(3)];
            quiet().await;
            tokio::time::timeout(SECOND, client.submit_version(1, 1))
                .await
                .unwrap();
            quiet().await;
            gate.open();
            for waits in waits {
                tokio::time::timeout(100 * SECOND, waits)
                    .await
                    .expect("it comes in")
                    .unwrap();
            }
            tokio::time::sleep(10 * SECOND).await;
            assert_eq!(client.history.handled(), [3, 102, 103, 1, 2]);
            let report = client.jobs.drain().await;
            assert_eq!((report.done, report.duplicates), (5, 0));
        });
    }
}

/// The policies that are exact about a lane's limit are so here too.
#[test]
fn an_exact_limit_holds_for_sequences() {
    for overflow in [Overflow::DropOldest, Overflow::DeadLetter] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let letters = keylane_testkit::LetterBox::new(&history);
            let script = Script::new(&history).message(1, Act::ok().waits(&gate));
            let jobs = jobs()
                .lane_capacity(3, overflow)
                .overflow_sink(letters.sink(|job: &Job| job.id))
                .sequence(contiguous().from(1));
            let client = Client::start(&history, script, jobs);
            // In line: the head and two more have a place.
            client.submit_version(1, 1).await;
            quiet().await;
            client.submit_versions(1, 2..=5).await;
            quiet().await;
            assert_eq!(client.jobs.inspect(&1).unwrap().depth, 3);
            gate.open();
            quiet().await;
            let handled = match overflow {
                Overflow::DropOldest => [1, 4, 5],
                _ => [1, 2, 3],
            };
            assert_eq!(client.history.handled(), handled);
            // The line goes on behind what was given up.
            client.submit_version(1, 6).await;
            quiet().await;
            assert_eq!(client.history.handled().len(), 4);
            // Early: three have a place, and the missing one still comes in.
            client.submit_versions(1, 8..=12).await;
            quiet().await;
            assert_eq!(client.jobs.inspect(&1).unwrap().depth, 3);
            client.submit_version(1, 7).await;
            quiet().await;
            assert_eq!(client.history.handled()[4..], [12, 7, 8, 9]);
            let (report, outcomes) = client
                .finish(Evidence::new().sequencing().overflow_letters())
                .await;
            let gone = match overflow {
                Overflow::DropOldest => "dropped",
                _ => "dead-lettered",
            };
            assert_eq!(outcomes.count(gone), 4, "{outcomes:?}");
            assert_eq!(report.done, 8);
        });
    }
}

/// What `inspect` and `stats` say at each step.
#[test]
fn every_state_can_be_seen() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(1, Act::ok().waits(&gate));
        let jobs = jobs().sequence(contiguous().from(1).gap_timeout(10 * SECOND, OnGap::Halt));
        let client = Client::start(&history, script, jobs);
        let lane = client.jobs.lane(&1);
        client.submit_version(1, 3).await;
        quiet().await;
        let view = lane.inspect().unwrap();
        let LaneState::Gap {
            first: 1,
            last: 2,
            due_in: Some(due_in),
        } = view.state
        else {
            panic!("{view:?}")
        };
        assert!(due_in <= 10 * SECOND && due_in > 9 * SECOND);
        assert_eq!(
            (
                view.depth,
                view.head_age.is_some(),
                view.oldest_waiting.is_some()
            ),
            (1, true, false)
        );
        lane.pause();
        assert_eq!(lane.inspect().unwrap().state, LaneState::Paused);
        assert_eq!(client.jobs.stats().paused, 1);
        lane.resume().unwrap();
        quiet().await;
        assert!(matches!(
            lane.inspect().unwrap().state,
            LaneState::Gap { .. }
        ));
        tokio::time::sleep(10 * SECOND).await;
        let view = lane.inspect().unwrap();
        assert_eq!(
            view.state,
            LaneState::Gap {
                first: 1,
                last: 2,
                due_in: None
            }
        );
        let stats = client.jobs.stats();
        assert_eq!((stats.halted, stats.stalled, stats.lanes), (1, 1, 1));
        client.submit_version(1, 1).await;
        quiet().await;
        assert!(matches!(
            lane.inspect().unwrap().state,
            LaneState::Running { .. }
        ));
        assert_eq!(client.jobs.stats().halted, 0);
        gate.release(1);
        quiet().await;
        assert_eq!(
            lane.inspect().unwrap().state,
            LaneState::Gap {
                first: 2,
                last: 2,
                due_in: None
            }
        );
        assert_eq!(client.jobs.stats().halted, 1);
        lane.skip().unwrap();
        gate.open();
        quiet().await;
        assert_eq!(lane.inspect(), None);
        let (report, _) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!(report.done, 2);
    });
}
