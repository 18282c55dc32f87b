//! Stores that are away, answers that are lost, leases that run out.

use std::sync::Arc;
use std::time::Duration;

use keylane_leader::error::LeaseLost;
use keylane_leader::{Career, End, Event, Lost, Stop, Term};
use tokio::time::Instant;

use crate::support::{Act, Faulty, Log, SECOND, Script, candidate, process, run, until};

#[tokio::test(start_paused = true)]
async fn a_leader_without_its_store_stops_before_another_one_begins() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let a = run(&here, "a", &log);
    let mut events = a.events();
    log.until("a executes").await;
    let _b = run(&there, "b", &log);
    tokio::time::sleep(SECOND).await;
    store.change(|faults| faults.renews_nothing = true);
    log.until("b executes").await;
    let lines = log.lines();
    let of = |part: &str| lines.iter().position(|line| line.contains(part)).unwrap();
    assert!(of("a has stopped") < of("b inaugurates"), "{lines:?}");
    assert!(
        of("a hands over, without: the term was lost") < of("b inaugurates"),
        "{lines:?}"
    );
    let seen = until(&mut events, |event| matches!(event, Event::Leaving(_))).await;
    let doubtful = seen
        .iter()
        .position(|event| matches!(event, Event::Doubtful(_)));
    assert!(doubtful.is_some(), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_short_fault_is_doubtful_and_no_more() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let elections = process(&store);
    let a = run(&elections, "a", &log);
    let mut events = a.events();
    log.until("a executes").await;
    store.change(|faults| faults.is_away = true);
    let seen = until(&mut events, |event| matches!(event, Event::Doubtful(_))).await;
    let Some(Event::Doubtful(remaining)) = seen.last() else {
        unreachable!()
    };
    assert!(
        *remaining > Duration::ZERO && *remaining < SECOND,
        "{remaining:?}"
    );
    store.change(|faults| faults.is_away = false);
    until(&mut events, |event| *event == Event::Renewed).await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(a.leads());
    assert_eq!(log.count("hands over"), 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_leader_the_next_one_waits_if_it_is_to() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let a = run(&here, "a", &log);
    log.until("a executes").await;
    let waits = Lost::Wait(20 * SECOND);
    let b = candidate(&there, "b")
        .lost(waits)
        .run(Script::new("b", &log))
        .unwrap();
    let mut events = b.events();
    tokio::time::sleep(SECOND).await;
    store.change(|faults| faults.renews_nothing = true);
    until(&mut events, |event| matches!(event, Event::Elected(_))).await;
    store.change(|faults| faults.renews_nothing = false);
    let elected = tokio::time::Instant::now();
    log.until("b inaugurates").await;
    assert!(elected.elapsed() >= 20 * SECOND);
    // After a leader that has handed over there is no wait.
    drop(a);
    let c = candidate(&here, "c")
        .lost(waits)
        .run(Script::new("c", &log))
        .unwrap();
    tokio::time::sleep(SECOND).await;
    // A lease that is free before that is recorded would be taken meanwhile.
    store.change(|faults| faults.ends_late = true);
    let resigned = tokio::time::Instant::now();
    b.resign().unwrap();
    log.until_count("inaugurates", 3).await;
    assert!(resigned.elapsed() < 10 * SECOND);
    drop(c);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_broken_off_is_waited_again() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let waits = Lost::Wait(20 * SECOND);
    let with = |name| {
        let elections = process(&store);
        let built = candidate(&elections, name).lost(waits);
        built.run(Script::new(name, &log)).unwrap()
    };
    let a = with("a");
    log.until("a executes").await;
    let b = with("b");
    let mut events = b.events();
    tokio::time::sleep(SECOND).await;
    store.change(|faults| faults.renews_nothing = true);
    until(&mut events, |event| matches!(event, Event::Elected(_))).await;
    store.change(|faults| faults.renews_nothing = false);
    a.close().await;
    let c = with("c");
    let mut events = c.events();
    b.close().await;
    until(&mut events, |event| matches!(event, Event::Elected(_))).await;
    let elected = tokio::time::Instant::now();
    until(&mut events, |event| matches!(event, Event::Inaugurated(_))).await;
    assert!(elected.elapsed() >= 20 * SECOND, "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_answer_is_lost_gives_the_term_back() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    store.change(|faults| faults.lost_records = 1);
    let elections = process(&store);
    let _a = run(&elections, "a", &log);
    log.until("a executes under 2").await;
    assert_eq!(log.count("a inaugurates"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_in_another_history_ends_the_term() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let elections = process(&store);
    let _a = run(&elections, "a", &log);
    log.until("a executes").await;
    store.change(|faults| faults.history += 1);
    log.until("a hands over, without: the store is in another history")
        .await;
    log.until("a executes under 2").await;
}

/// A career that keeps its terms.
#[derive(Clone, Default)]
struct Keeps(Arc<std::sync::Mutex<Vec<Term>>>);
impl Career for Keeps {
    type Error = String;
    async fn inaugurate(&mut self, term: &Term) -> Result<(), String> {
        self.0.lock().unwrap().push(term.clone());
        Ok(())
    }
    async fn execute(&mut self, _: &Term, stop: Stop) -> Result<(), String> {
        stop.requested().await;
        Ok(())
    }
    async fn hand_over(&mut self, _: &Term, _: End) {}
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_kept_by_the_user_ends_all_the_same() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let elections = process(&store);
    let keeps = Keeps::default();
    for round in 1..=3 {
        let a = candidate(&elections, "a").run(keeps.clone()).unwrap();
        let mut events = a.events();
        until(&mut events, |event| matches!(event, Event::Inaugurated(_))).await;
        match round {
            1 => store.change(|faults| faults.history += 1),
            2 => a.resign().unwrap(),
            _ => {}
        }
        if round < 3 {
            until(&mut events, |event| matches!(event, Event::Standing)).await;
        }
        a.close().await;
    }
    let _b = run(&process(&store), "b", &log);
    log.until("b executes").await;
    let terms = keeps.0.lock().unwrap();
    assert!(terms.len() >= 3);
    assert!(terms.iter().all(|term| term.check().is_err()));
}

/// A store that was started again has another history, which a candidate looks at once a second.
#[tokio::test(start_paused = true)]
async fn a_chosen_successor_is_not_passed_over_because_the_history_is_new() {
    let (store, log) = (Arc::default(), Log::default());
    let processes = [(); 3].map(|()| process(&store));
    let a = run(&processes[0], "a", &log);
    log.until("a executes").await;
    let _b = run(&processes[1], "b", &log);
    let c = run(&processes[2], "c", &log);
    tokio::time::sleep(10 * SECOND).await;
    store.change(|faults| faults.history += 1);
    a.hand_to(c.id()).unwrap();
    log.until("executes under 2").await;
    let last = log.lines().pop().unwrap();
    assert_eq!(last, "c executes under 2");
}

/// What the record has replaced may be that of another history, in which the last leader is not
/// known.
#[tokio::test(start_paused = true)]
async fn a_leader_that_may_have_to_wait_reads_the_history_after_its_record() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    store.change(|faults| faults.changes_at_began = true);
    let built = candidate(&process(&store), "a").lost(Lost::Wait(20 * SECOND));
    let _a = built.run(Script::new("a", &log)).unwrap();
    log.until("a executes").await;
    assert_eq!(log.count("a inaugurates"), 1, "{:?}", log.lines());
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(log.count("a hands over"), 0, "{:?}", log.lines());
}

/// The store may free the lease with the record of the end, before its answer is there.
#[tokio::test(start_paused = true)]
async fn a_term_has_ended_here_before_its_successor_begins() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let keeps = Keeps::default();
    let a = candidate(&process(&store), "a").run(keeps.clone()).unwrap();
    let mut events = a.events();
    until(&mut events, |event| matches!(event, Event::Inaugurated(_))).await;
    let _b = run(&process(&store), "b", &log);
    store.change(|faults| faults.ends_in_silence = true);
    let since = Instant::now();
    a.resign().unwrap();
    log.until("b inaugurates").await;
    assert!(since.elapsed() < SECOND, "no answer is awaited");
    let terms = keeps.0.lock().unwrap();
    assert_eq!(terms[0].check(), Err(LeaseLost::Released));
    assert_eq!(terms[0].remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_lost_while_it_hands_over_finishes_its_hand_over() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let mut script = Script::new("a", &log);
    script.hand_over.push_back(Act::Take(4 * SECOND));
    let a = candidate(&here, "a").run(script).unwrap();
    log.until("a executes").await;
    let _b = run(&there, "b", &log);
    tokio::time::sleep(SECOND).await;
    store.change(|faults| faults.renews_nothing = true);
    a.resign().unwrap();
    log.until("b executes").await;
    assert_eq!(log.count("hands over"), 1);
}

#[tokio::test(start_paused = true)]
async fn candidates_wait_for_a_store_that_is_away() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    store.change(|faults| faults.is_away = true);
    let elections = process(&store);
    let a = run(&elections, "a", &log);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(log.lines(), Vec::<String>::new());
    store.change(|faults| faults.is_away = false);
    log.until("a executes").await;
    store.change(|faults| faults.is_away = true);
    a.close().await;
    assert_eq!(log.count("hands over"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_successor_of_a_hand_over_that_overran_waits() {
    for act in [Act::Hang, Act::Panic] {
        let (store, log) = (Arc::<Faulty>::default(), Log::default());
        let waits = Lost::Wait(20 * SECOND);
        let (here, there) = (process(&store), process(&store));
        let mut script = Script::new("a", &log);
        script.hand_over.push_back(act);
        let a = candidate(&here, "a").run(script).unwrap();
        log.until("a executes").await;
        let built = candidate(&there, "b").lost(waits);
        let b = built.run(Script::new("b", &log)).unwrap();
        let mut events = b.events();
        tokio::time::sleep(SECOND).await;
        a.close().await;
        until(&mut events, |event| matches!(event, Event::Elected(_))).await;
        let elected = tokio::time::Instant::now();
        log.until("b inaugurates").await;
        assert!(elected.elapsed() >= 20 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_answer_was_lost_waits() {
    // What it has replaced is not known then: the leader before may have been lost.
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let waits = Lost::Wait(20 * SECOND);
    store.change(|faults| faults.lost_records = 1);
    let elections = process(&store);
    let built = candidate(&elections, "a").lost(waits);
    let _a = built.run(Script::new("a", &log)).unwrap();
    let began = tokio::time::Instant::now();
    log.until("a inaugurates").await;
    assert!(began.elapsed() >= 20 * SECOND);
}

/// Two threads: one stands still, as a process does after SIGSTOP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stood_still_does_nothing_more() {
    struct Blocks(Log);
    impl Career for Blocks {
        type Error = String;
        async fn inaugurate(&mut self, _: &Term) -> Result<(), String> {
            Ok(())
        }
        async fn execute(&mut self, term: &Term, _: Stop) -> Result<(), String> {
            self.0.add("executes");
            // Blocks the only thread for longer than the term lasts: nothing can be renewed.
            let term = term.clone();
            tokio::spawn(async move {
                let until = std::time::Instant::now() + Duration::from_millis(500);
                while std::time::Instant::now() < until || term.check().is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.0.add("goes on");
            Ok(())
        }
        async fn hand_over(&mut self, _: &Term, why: End) {
            self.0.add(why.to_string());
        }
    }
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let here = std::thread::spawn({
        let (store, log) = (Arc::clone(&store), log.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let elections = process(&store);
                let built = candidate(&elections, "a").ttl(Duration::from_millis(300));
                let a = built.run(Blocks(log.clone())).unwrap();
                log.until("the term was lost").await;
                a.close().await;
            });
        }
    });
    log.until("executes").await;
    let built = candidate(&process(&store), "b").ttl(Duration::from_millis(300));
    let b = built.run(Script::new("b", &log)).unwrap();
    log.until("b executes").await;
    tokio::task::spawn_blocking(move || here.join())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(log.count("goes on"), 0, "{:?}", log.lines());
    b.close().await;
}
