//! Odd settings, destructors that panic, and elections that are closed too early.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane_leader::error::CommandError;
use keylane_leader::store::Stage;
use keylane_leader::{Career, ElectionStore, Elections, End, Event, Office, Stop, Term};

use crate::support::{Act, Faulty, Log, SECOND, Script, candidate, process, run, until};

#[tokio::test(start_paused = true)]
async fn a_limit_without_an_end_is_a_limit() {
    let log = Log::default();
    let store = Arc::default();
    let elections = process(&store);
    let a = candidate(&elections, "a")
        .prepare_limit(Duration::MAX)
        .inaugurate_limit(Duration::MAX)
        .stop_limit(Duration::MAX)
        .hand_over_limit(Duration::MAX)
        .retry_after(SECOND, Duration::MAX)
        .run(Script::new("a", &log))
        .unwrap();
    log.until("a executes").await;
    let _b = candidate(&elections, "b")
        .prepare_limit(Duration::MAX)
        .run(Script::new("b", &log))
        .unwrap();
    tokio::time::sleep(SECOND).await;
    a.resign().unwrap();
    log.until("b executes").await;
    assert_eq!(log.count("a hands over"), 1, "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_an_end_is_a_wait() {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let mut script = Script::new("a", &log);
    script.hand_over.push_back(Act::Panic);
    let a = candidate(&elections, "a").run(script).unwrap();
    log.until("a executes").await;
    let b = candidate(&elections, "b")
        .lost(keylane_leader::Lost::Wait(Duration::MAX))
        .run(Script::new("b", &log))
        .unwrap();
    let mut events = b.events();
    a.close().await;
    until(&mut events, |event| matches!(event, Event::Elected(_))).await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(b.leads());
    assert_eq!(log.count("b inaugurates"), 0, "{:?}", log.lines());
}

/// A career whose `execute` panics when it is dropped, and which keeps its term.
struct Brittle {
    log: Log,
    kept: Vec<Term>,
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a destructor panics");
        }
    }
}

impl Career for Brittle {
    type Error = String;

    async fn inaugurate(&mut self, term: &Term) -> Result<(), String> {
        self.kept.push(term.clone());
        self.log.add("a inaugurates");
        Ok(())
    }

    async fn execute(&mut self, _: &Term, _: Stop) -> Result<(), String> {
        let _panics = PanicsWhenDropped;
        self.log.add("a executes");
        std::future::pending().await
    }

    async fn hand_over(&mut self, _: &Term, why: End) {
        self.log.add(format!("a hands over: {why}"));
    }
}

/// Starts a brittle career, which leads. Its term is kept as long as the office.
async fn brittle(elections: &Elections, log: &Log) -> Office {
    let career = Brittle {
        log: log.clone(),
        kept: Vec::new(),
    };
    let office = candidate(elections, "a").run(career).unwrap();
    log.until("a executes").await;
    office
}

#[tokio::test(start_paused = true)]
async fn execute_whose_destructor_panics_is_handed_over() {
    let (store, log) = (Arc::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let a = brittle(&here, &log).await;
    let _b = run(&there, "b", &log);
    tokio::time::sleep(SECOND).await;
    a.resign().unwrap();
    log.until("b executes").await;
    assert_eq!(log.count("a hands over"), 1, "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_lost_term_whose_destructor_panics_is_handed_over() {
    let (store, log) = (Arc::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let _a = brittle(&here, &log).await;
    store.change(|faults| faults.renews_nothing = true);
    log.until("a hands over").await;
    store.change(|faults| faults.renews_nothing = false);
    let _b = run(&there, "b", &log);
    log.until("b executes").await;
    assert_eq!(log.count("a hands over"), 1, "{:?}", log.lines());
}

/// An error that panics when it is shown.
struct Mute;

impl std::fmt::Display for Mute {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("an error panics")
    }
}

struct Muted(Log);

impl Career for Muted {
    type Error = Mute;

    async fn inaugurate(&mut self, _: &Term) -> Result<(), Mute> {
        Ok(())
    }

    async fn execute(&mut self, _: &Term, _: Stop) -> Result<(), Mute> {
        Err(Mute)
    }

    async fn hand_over(&mut self, _: &Term, why: End) {
        self.0.add(format!("a hands over: {why}"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_it_is_shown_is_a_panic() {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let _a = candidate(&elections, "a").run(Muted(log.clone())).unwrap();
    log.until_count("a hands over: the work panicked", 2).await;
}

#[tokio::test(start_paused = true)]
async fn candidates_whose_elections_are_closed_leave() {
    let (store, log) = (Arc::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let a = run(&here, "a", &log);
    log.until("a executes").await;
    let b = run(&there, "b", &log);
    tokio::time::sleep(SECOND).await;
    let c = run(&here, "c", &log);
    tokio::time::sleep(SECOND).await;
    here.close().await; // and its candidates are not closed before
    log.until("b executes").await;
    // The leader leaves at once, and the other one when it is next.
    let over = tokio::time::timeout(10 * SECOND, a.over()).await;
    assert!(over.is_ok(), "a stands again");
    assert_eq!(log.count("a hands over, without"), 1, "{:?}", log.lines());
    let _d = run(&there, "d", &log);
    tokio::time::sleep(SECOND).await;
    b.resign().unwrap();
    log.until("d executes").await;
    let over = tokio::time::timeout(10 * SECOND, c.over()).await;
    assert!(over.is_ok(), "c stands in the way");
}

#[tokio::test(start_paused = true)]
async fn a_successor_that_is_chosen_during_the_inauguration_leads() {
    let (store, log) = (Arc::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let mut script = Script::new("a", &log);
    script.inaugurate.push_back(Act::Take(4 * SECOND));
    let a = candidate(&here, "a").run(script).unwrap();
    log.until("a inaugurates").await;
    let _b = run(&there, "b", &log);
    let c = run(&there, "c", &log);
    tokio::time::sleep(SECOND).await;
    a.hand_to(c.id()).unwrap();
    log.until("executes").await;
    assert_eq!(log.count("c executes"), 1, "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn execute_that_fails_while_it_stops_is_reported() {
    struct Fails;
    impl Career for Fails {
        type Error = String;
        async fn inaugurate(&mut self, _: &Term) -> Result<(), String> {
            Ok(())
        }
        async fn execute(&mut self, _: &Term, stop: Stop) -> Result<(), String> {
            stop.requested().await;
            Err("the last bill is not written".to_owned())
        }
        async fn hand_over(&mut self, _: &Term, _: End) {}
    }
    let store = Arc::default();
    let elections = process(&store);
    let a = candidate(&elections, "a").run(Fails).unwrap();
    let mut events = a.events();
    until(&mut events, |event| matches!(event, Event::Inaugurated(_))).await;
    a.resign().unwrap();
    let seen = until(&mut events, |event| *event == Event::Standing).await;
    let is_it = |event: &Event| {
        matches!(
            event,
            Event::Failed {
                method: "execute",
                ..
            }
        )
    };
    assert!(seen.iter().any(is_it), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_recorded_in_another_history() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let elections = process(&store);
    let mut script = Script::new("a", &log);
    script.inaugurate.push_back(Act::Hang);
    let _a = candidate(&elections, "a").run(script).unwrap();
    log.until("a inaugurates").await;
    store.change(|faults| faults.history += 1);
    tokio::time::sleep(SECOND + SECOND / 2).await;
    let seen = store.look(&Bytes::from("leader/billing")).await.unwrap();
    assert_eq!(seen.holder, None);
    assert_eq!(seen.term.unwrap().stage, Stage::Began);
    log.until("a executes under 2").await;
}

#[test]
fn handles_outlive_their_runtime() {
    let log = Log::default();
    let start = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (first, store) = (start(), Arc::default());
    let (elections, a, watch) = first.block_on(async {
        let elections = process(&store);
        let a = run(&elections, "a", &log);
        log.until("a executes").await;
        let watch = elections.watch("billing");
        (elections, a, watch)
    });
    drop(first);
    // Outside of each runtime.
    assert!(!a.leads());
    assert_eq!(a.resign(), Err(CommandError::Over));
    assert_eq!(a.hand_to(&a.id().clone()), Err(CommandError::Over));
    let mut events = a.events();
    let b = run(&elections, "b", &log);
    let another = elections.watch("billing");
    drop((watch, another, elections));
    // In another one.
    start().block_on(async {
        // Those since the start come, and then the end.
        let events = async { while events.next().await.is_some() {} };
        assert!(tokio::time::timeout(10 * SECOND, events).await.is_ok());
        let ends = async { (a.over().await, a.close().await, b.close().await) };
        assert!(tokio::time::timeout(10 * SECOND, ends).await.is_ok());
        let _c = run(&process(&store), "c", &log);
        log.until("c executes").await;
    });
}
