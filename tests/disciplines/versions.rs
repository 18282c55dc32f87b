//! What a key remembers in memory: it outlives the lane, it has a bound, and idle keys are forgotten.

use keylane::discipline::OnGap;
use keylane::watching::LaneState;
use keylane_testkit::scenario::{MS, SECOND, paused, quiet};
use keylane_testkit::{Act, Evidence, Gate, History, Script};

use crate::sequence::{contiguous, monotonic};
use crate::support::{Client, jobs};

#[test]
fn a_key_is_remembered_when_its_lane_is_gone() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs().sequence(contiguous());
        let client = Client::start(&history, Script::new(&history), jobs);
        client.submit_versions(1, [3, 4]).await;
        quiet().await;
        assert_eq!(client.jobs.inspect(&1), None);
        client.submit_versions(1, [4, 3, 6]).await;
        quiet().await;
        let view = client.jobs.inspect(&1).unwrap();
        assert!(matches!(
            view.state,
            LaneState::Gap {
                first: 5,
                last: 5,
                ..
            }
        ));
        client.submit_version(1, 5).await;
        let (report, _) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!((report.done, report.duplicates), (4, 2));
    });
}

/// Between `idle` and twice `idle` after it was last heard of, also where nothing else happens.
#[test]
fn an_idle_key_is_forgotten() {
    let idle = 100 * SECOND;
    for (silence, remembered) in [(idle - SECOND, true), (2 * idle + SECOND, false)] {
        for others in [false, true] {
            paused().block_on(async {
                let history = History::new();
                let jobs = jobs().sequence(monotonic().remember(1_000, idle));
                let client = Client::start(&history, Script::new(&history), jobs);
                client.submit_version(1, 50).await;
                quiet().await;
                let end = tokio::time::Instant::now() + silence;
                let mut round = 0;
                while tokio::time::Instant::now() < end {
                    tokio::time::sleep(10 * SECOND - MS).await;
                    if others {
                        round += 1;
                        client.submit_version(2, round).await;
                    }
                    quiet().await;
                }
                client.submit_version(1, 3).await;
                quiet().await;
                let duplicates = client.jobs.stats().duplicates;
                assert_eq!(duplicates, u64::from(remembered), "{silence:?} {others}");
                client.jobs.drain().await;
            });
        }
    }
}

/// More keys than are remembered: the newest are, and all of them are handled.
#[test]
fn no_more_keys_are_remembered_than_told() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs().sequence(monotonic().remember(10, 1_000 * SECOND));
        let client = Client::start(&history, Script::new(&history), jobs);
        for key in 0..100 {
            client.submit_version(key, 5).await;
            quiet().await;
        }
        for key in (0..100).rev() {
            client.submit_version(key, 4).await;
            quiet().await;
        }
        let duplicates = client.jobs.stats().duplicates;
        assert!((5..=10).contains(&duplicates), "{duplicates}");
        client.jobs.drain().await;
    });
}

/// A key with a lane is never forgotten, however long and however many others there are.
#[test]
fn a_key_with_a_lane_is_never_forgotten() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(1, Act::ok().waits(&gate));
        let jobs = jobs().sequence(contiguous().from(1).remember(1, SECOND));
        let client = Client::start(&history, script, jobs);
        client.submit_versions(1, [1, 2]).await;
        gate.release(1);
        for key in 2..50 {
            client.submit_version(key, 1).await;
            tokio::time::sleep(SECOND).await;
        }
        client.submit_version(1, 1).await;
        quiet().await;
        assert_eq!(client.jobs.stats().duplicates, 1);
        gate.open();
        client.finish(Evidence::new().sequencing()).await;
    });
}

/// What an operator took out was there: the versions behind it come next, whether or not the lane was
/// gone in between.
#[test]
fn what_an_operator_took_out_is_no_gap() {
    for way in ["skip", "purge"] {
        for lane_stays in [false, true] {
            paused().block_on(async {
                let history = History::new();
                let gate = Gate::new();
                let script = Script::new(&history).message(1, Act::ok().waits(&gate));
                let jobs =
                    jobs().sequence(contiguous().from(1).gap_timeout(10 * SECOND, OnGap::Halt));
                let client = Client::start(&history, script, jobs);
                let lane = client.jobs.lane(&1);
                client.submit_version(1, 1).await;
                quiet().await;
                if !lane_stays {
                    gate.open();
                    quiet().await;
                }
                lane.pause();
                client.submit_version(1, 2).await;
                quiet().await;
                match way {
                    "purge" => assert_eq!(lane.purge(), 1),
                    // The head is in flight.
                    _ if lane_stays => {
                        gate.open();
                        quiet().await;
                        lane.skip().unwrap();
                    }
                    _ => lane.skip().unwrap(),
                }
                gate.open();
                lane.resume().unwrap();
                quiet().await;
                assert_eq!(lane.inspect(), None);
                client.submit_version(1, 3).await;
                quiet().await;
                assert_eq!(client.history.handled(), [1, 3], "{way} {lane_stays}");
                client.submit_version(1, 2).await;
                let (report, _) = client.finish(Evidence::new().sequencing()).await;
                assert_eq!((report.duplicates, report.discarded), (1, 1));
            });
        }
    }
}

/// Purged without a pause, in a gap: what was early may come again.
#[test]
fn a_purged_gap_begins_anew() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs().sequence(contiguous().from(1).gap_timeout(SECOND, OnGap::Halt));
        let client = Client::start(&history, Script::new(&history), jobs);
        client.submit_versions(1, [1, 3]).await;
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(client.jobs.stats().halted, 1);
        assert_eq!(client.jobs.lane(&1).purge(), 1);
        assert_eq!(
            (client.jobs.stats().halted, client.jobs.stats().lanes),
            (0, 0)
        );
        client.submit_versions(1, [1, 3, 2]).await;
        quiet().await;
        let (report, outcomes) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!(
            outcomes.words(),
            ["done", "purged", "duplicate", "done", "done"]
        );
        assert_eq!(report.accepted, 5);
    });
}
