//! Phases that fail, panic, or take too long.

use std::sync::Arc;

use keylane_leader::Event;

use crate::support::{Act, Log, SECOND, Script, candidate, process, run, until};

/// Runs one candidate with a script until it leads for the usual time.
async fn lead(change: impl FnOnce(&mut Script)) -> (Log, Vec<Event>) {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let mut script = Script::new("a", &log);
    change(&mut script);
    let a = candidate(&elections, "a").run(script).unwrap();
    let mut events = a.events();
    let mut seen = until(&mut events, |event| matches!(event, Event::Inaugurated(_))).await;
    tokio::time::sleep(60 * SECOND).await;
    a.close().await;
    seen.extend(until(&mut events, |event| *event == Event::Over).await);
    (log, seen)
}

#[tokio::test(start_paused = true)]
async fn an_inauguration_that_fails_gives_the_term_back() {
    for act in [Act::Fail, Act::Panic, Act::Hang] {
        let (log, events) = lead(|script| script.inaugurate.push_back(act.clone())).await;
        assert_eq!(log.count("a inaugurates"), 2, "{act:?}: {:?}", log.lines());
        assert_eq!(
            log.count("a executes under 2"),
            1,
            "{act:?}: {:?}",
            log.lines()
        );
        assert_eq!(log.count("hands over"), 1, "{act:?}: {:?}", log.lines());
        let failed = |event: &&Event| {
            matches!(
                event,
                Event::Failed {
                    method: "inaugurate",
                    ..
                }
            )
        };
        assert_eq!(
            events.iter().filter(failed).count(),
            1,
            "{act:?}: {events:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn another_candidate_leads_while_an_inauguration_fails() {
    let (store, log) = (Arc::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let mut script = Script::new("a", &log);
    script.inaugurate.push_back(Act::Hang);
    let _a = candidate(&here, "a").rank(1).run(script).unwrap();
    log.until("a inaugurates").await;
    let b = run(&there, "b", &log);
    log.until("b executes").await;
    tokio::time::sleep(10 * SECOND).await;
    b.resign().unwrap();
    log.until("a executes").await;
}

#[tokio::test(start_paused = true)]
async fn pauses_double_while_inaugurations_fail() {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let mut script = Script::new("a", &log);
    script.inaugurate.extend(vec![Act::Fail; 1_000]);
    let _a = candidate(&elections, "a").run(script).unwrap();
    tokio::time::sleep(63 * SECOND).await;
    // At 0, 1, 3, 7, 15, 31 and, a little later, 63 seconds.
    assert!(
        (5..=7).contains(&log.count("a inaugurates")),
        "{:?}",
        log.lines()
    );
    tokio::time::sleep(1_000 * SECOND).await;
    assert!(
        log.count("a inaugurates") >= 20,
        "the pause is 60 seconds at most"
    );
}

#[tokio::test(start_paused = true)]
async fn execute_that_fails_is_handed_over_and_stands_again() {
    for (act, why) in [
        (Act::Fail, "the work failed: execute fails"),
        (Act::Panic, "the work panicked: execute panics"),
    ] {
        let (log, _) = lead(|script| script.execute.push_back(act.clone())).await;
        assert_eq!(
            log.count(&format!("a hands over, holding: {why}")),
            1,
            "{:?}",
            log.lines()
        );
        assert_eq!(log.count("a executes"), 2);
        assert_eq!(log.count("hands over"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_career_that_never_stops_is_dropped() {
    let (log, _) = lead(|script| script.execute.push_back(Act::Hang)).await;
    let lines = log.lines();
    let last: Vec<_> = lines.iter().rev().take(2).rev().collect();
    assert_eq!(
        last,
        [
            "a has stopped",
            "a hands over, holding: the candidate was closed"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_that_panics_or_overruns_is_called_once() {
    for act in [Act::Panic, Act::Hang] {
        let (log, events) = lead(|script| script.hand_over.push_back(act.clone())).await;
        assert_eq!(log.count("hands over"), 1, "{:?}", log.lines());
        let failed = |event: &&Event| {
            matches!(
                event,
                Event::Failed {
                    method: "hand_over",
                    ..
                }
            )
        };
        assert_eq!(
            events.iter().filter(failed).count(),
            1,
            "{act:?}: {events:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_preparation_that_fails_costs_no_election() {
    for act in [Act::Fail, Act::Panic, Act::Hang, Act::Take(2 * SECOND)] {
        let (store, log) = (Arc::default(), Log::default());
        let (here, there) = (process(&store), process(&store));
        let mut script = Script::new("a", &log);
        script.hand_over.push_back(Act::Take(SECOND));
        let a = candidate(&here, "a").run(script).unwrap();
        log.until("a executes").await;
        let mut script = Script::new("b", &log);
        script.prepare.push_back(act.clone());
        let _b = candidate(&there, "b").run(script).unwrap();
        tokio::time::sleep(SECOND).await;
        a.resign().unwrap();
        log.until("b prepares").await;
        log.until_count("executes", 2).await;
        assert_eq!(log.count("b executes"), 1, "{act:?}: {:?}", log.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn steps_end_between_two_of_them() {
    use keylane_leader::{Career, End, Term};
    struct Steps(Log);
    impl Career for Steps {
        type Error = String;
        async fn inaugurate(&mut self, _: &Term) -> Result<(), String> {
            Ok(())
        }
        async fn step(&mut self, _: &Term) -> Result<(), String> {
            self.0.add("begins");
            tokio::time::sleep(SECOND).await;
            self.0.add("ends");
            Ok(())
        }
        async fn hand_over(&mut self, _: &Term, why: End) {
            self.0.add(why.to_string());
        }
    }
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let a = candidate(&elections, "a").run(Steps(log.clone())).unwrap();
    log.until_count("begins", 3).await;
    a.close().await;
    let lines = log.lines();
    assert_eq!(log.count("begins"), log.count("ends"), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "the candidate was closed");
}
