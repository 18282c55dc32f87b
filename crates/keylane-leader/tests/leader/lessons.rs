//! What other elections got wrong: each test is named after what must be so instead.

use std::sync::Arc;

use bytes::Bytes;
use keylane_leader::store::{ElectionStore, Stage};
use keylane_leader::{Career, End, LeaderWatch, Stop, Term};

use crate::support::{Act, Faulty, Log, SECOND, Script, candidate, process, run};

/// Takes a second to stop, and a second to hand over, and notes what the store has then.
struct Slow {
    store: Arc<Faulty>,
    log: Log,
}

impl Slow {
    async fn note(&self, what: &str) {
        let seen = self.store.look(&Bytes::from("leader/billing")).await;
        let seen = seen.unwrap();
        let holder = seen.holder.map(|holder| holder.token.0);
        let stage = seen.term.map(|term| term.stage);
        self.log.add(format!("a {what}: {holder:?}, {stage:?}"));
    }
}

impl Career for Slow {
    type Error = String;

    async fn inaugurate(&mut self, _: &Term) -> Result<(), String> {
        Ok(())
    }

    async fn execute(&mut self, _: &Term, stop: Stop) -> Result<(), String> {
        self.note("executes").await;
        stop.requested().await;
        tokio::time::sleep(SECOND).await;
        self.note("has stopped").await;
        Ok(())
    }

    async fn hand_over(&mut self, _: &Term, _: End) {
        tokio::time::sleep(SECOND).await;
        self.note("has handed over").await;
    }
}

/// Others release first and stop then, or say that nothing leads before the work has stopped.
#[tokio::test(start_paused = true)]
async fn a_term_is_released_after_the_work_has_stopped() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let slow = Slow {
        store: Arc::clone(&store),
        log: log.clone(),
    };
    let a = candidate(&here, "a").run(slow).unwrap();
    log.until("a executes").await;
    let _b = run(&there, "b", &log);
    tokio::time::sleep(SECOND).await;
    a.close().await;
    log.until("b executes").await;
    let held = |what: &str, stage| format!("a {what}: Some(1), {:?}", Some(stage));
    let mut lines = log.lines();
    lines.retain(|line| !line.starts_with("b prepares"));
    assert_eq!(
        lines,
        [
            held("executes", Stage::Began),
            held("has stopped", Stage::Leaving),
            held("has handed over", Stage::Leaving),
            "b inaugurates".to_owned(),
            "b executes under 2".to_owned(),
        ]
    );
}

/// Others tell the leader that it has lost, and leave it to its code to stop.
#[tokio::test(start_paused = true)]
async fn work_that_never_looks_up_is_dropped_before_the_term_is_over() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let mut script = Script::new("a", &log);
    script.execute.push_back(Act::Hang);
    let _a = candidate(&here, "a").run(script).unwrap();
    log.until("a executes").await;
    let _b = run(&there, "b", &log);
    tokio::time::sleep(SECOND).await;
    store.change(|faults| faults.renews_nothing = true);
    log.until("b inaugurates").await;
    let lines = log.lines();
    let of = |part: &str| lines.iter().position(|line| line.contains(part));
    let [stopped, handed, began] = ["a has stopped", "a hands over", "b inaugurates"].map(of);
    assert!(stopped < handed && handed < began, "{lines:?}");
}

/// Others go on to name the last leader.
#[tokio::test(start_paused = true)]
async fn a_watcher_hears_that_nothing_leads() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let a = run(&here, "a", &log);
    log.until("a executes").await;
    let mut watch = there.watch("billing");
    hears(&mut watch, true).await;
    a.close().await;
    hears(&mut watch, false).await;
    // Also if the leader could not say that it leaves.
    let _a = run(&here, "a", &log);
    hears(&mut watch, true).await;
    store.change(|faults| faults.renews_nothing = true);
    hears(&mut watch, false).await;
}

/// Waits until a watcher hears that something leads, or that nothing does.
async fn hears(watch: &mut LeaderWatch, leads: bool) {
    let hears = async { while watch.changed().await.unwrap().is_some() != leads {} };
    let heard = tokio::time::timeout(300 * SECOND, hears).await;
    assert!(heard.is_ok(), "leads: {leads}, heard: {:?}", watch.leader());
}

/// Others forget the candidate that resigns, or leave its key behind, which elects nothing.
#[tokio::test(start_paused = true)]
async fn a_leader_that_has_resigned_is_a_candidate_again() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let a = run(&process(&store), "a", &log);
    for term in 1..=3 {
        log.until(&format!("a executes under {term}")).await;
        a.resign().unwrap();
    }
    log.until("a executes under 4").await;
    let b = run(&process(&store), "b", &log);
    tokio::time::sleep(SECOND).await;
    a.close().await;
    log.until("b executes under 5").await;
    // What is closed leaves nothing that others wait for.
    b.close().await;
    let seen = store.look(&Bytes::from("leader/billing")).await.unwrap();
    assert_eq!((seen.next, seen.holder), (None, None));
}

/// Others remove the key of their own new term when they tidy up after the old one.
#[tokio::test(start_paused = true)]
async fn a_candidate_that_was_lost_ends_no_later_term() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let a = run(&here, "a", &log);
    log.until("a executes").await;
    let b = run(&there, "b", &log);
    tokio::time::sleep(SECOND).await;
    store.change(|faults| faults.renews_nothing = true);
    log.until("b executes").await;
    store.change(|faults| faults.renews_nothing = false);
    // It stands again, and is closed.
    tokio::time::sleep(5 * SECOND).await;
    a.close().await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(b.leads(), "{:?}", log.lines());
    assert_eq!(log.count("b inaugurates"), 1);
}
