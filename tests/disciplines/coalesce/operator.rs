//! A coalescing lane under an operator.

use keylane::discipline::Coalesce;
use keylane::error::{Failure, ReceiptError};
use keylane::watching::LaneState;
use keylane_testkit::scenario::{paused, quiet};
use keylane_testkit::{Evidence, History, Script};

use crate::support::{Client, jobs, merging};

/// Operators: paused, resumed, purged, skipped, replaced.
#[test]
fn a_paused_key_coalesces_and_an_operator_decides() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs().coalesce(merging(&history));
        let client = Client::start(&history, Script::new(&history), jobs);
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
        let jobs = jobs().coalesce(Coalesce::keep_latest());
        let client = Client::start(&history, Script::new(&history), jobs);
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
