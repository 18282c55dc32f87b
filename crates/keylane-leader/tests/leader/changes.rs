//! Changes of leaders that go as they should.

use std::sync::Arc;

use keylane_leader::error::{CandidateError, CommandError, WatchEnded};
use keylane_leader::store::CandidateId;
use keylane_leader::{Event, Lost};

use crate::support::{Act, Faulty, LONGEST, Log, SECOND, Script, candidate, process, run, until};

#[tokio::test(start_paused = true)]
async fn a_leader_that_resigns_hands_over_before_its_successor_begins() {
    let (store, log) = (Arc::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let mut script = Script::new("a", &log);
    script.hand_over.push_back(Act::Take(SECOND));
    let a = candidate(&here, "a").run(script).unwrap();
    log.until("a executes").await;
    let _b = run(&there, "b", &log);
    tokio::time::sleep(SECOND).await;
    a.resign().unwrap();
    log.until("b executes").await;
    assert_eq!(
        log.lines(),
        [
            "a inaugurates",
            "a executes under 1",
            "a has stopped",
            "a hands over, holding: resigned",
            "b prepares after a",
            "b inaugurates",
            "b executes under 2",
        ]
    );
    // It stands again, behind.
    a.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_successor_begins_at_once_when_the_leader_resigns() {
    let (store, log) = (Arc::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let a = run(&here, "a", &log);
    log.until("a executes").await;
    let _b = run(&there, "b", &log);
    tokio::time::sleep(10 * SECOND).await;
    let resigned = tokio::time::Instant::now();
    a.resign().unwrap();
    log.until("b executes").await;
    let gap = resigned.elapsed();
    assert!(gap <= SECOND / 50, "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn the_lowest_rank_succeeds_and_never_takes_the_term() {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let a = run(&elections, "a", &log);
    log.until("a executes").await;
    let with = |rank, name| {
        let process = process(&store);
        let built = candidate(&process, name).rank(rank);
        built.run(Script::new(name, &log)).unwrap()
    };
    let _last = with(200, "last");
    let _b = with(7, "b");
    let first = with(3, "first");
    tokio::time::sleep(60 * SECOND).await;
    assert!(a.leads(), "{:?}", log.lines());
    a.resign().unwrap();
    log.until("first executes").await;
    first.close().await;
    log.until("b executes").await;
    assert_eq!(log.count("last"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_chosen_successor_leads() {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let a = run(&elections, "a", &log);
    log.until("a executes").await;
    let _b = run(&process(&store), "b", &log);
    let c = run(&process(&store), "c", &log);
    tokio::time::sleep(SECOND).await;
    a.hand_to(c.id()).unwrap();
    log.until("c executes").await;
    assert_eq!(log.count("b inaugurates"), 0);
    assert_eq!(log.count("a hands over, holding: handed to c"), 1);
    // A successor that is not there is no reason to have no leader.
    c.hand_to(&CandidateId::new("nothing").unwrap()).unwrap();
    log.until("b executes").await;
}

#[tokio::test(start_paused = true)]
async fn two_candidates_of_one_process_lead_in_turn() {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let a = run(&elections, "a", &log);
    log.until("a executes").await;
    let b = run(&elections, "b", &log);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(log.count("b"), 0);
    assert!(a.leads() && !b.leads());
    a.close().await;
    log.until("b executes").await;
}

#[tokio::test(start_paused = true)]
async fn followers_see_who_leads() {
    let (store, log) = (Arc::default(), Log::default());
    let (here, there) = (process(&store), process(&store));
    let a = run(&here, "a", &log);
    log.until("a executes").await;
    let mut watch = there.watch("billing");
    let mut seen = Vec::new();
    while seen
        .last()
        .is_none_or(|leader: &Option<_>| leader.is_none())
    {
        seen.push(watch.changed().await.unwrap());
    }
    let b = run(&there, "b", &log);
    let mut events = b.events();
    let leader = watch.leader().unwrap();
    assert_eq!(leader.leader.as_str(), "a");
    assert!(!leader.is_leaving);
    let found = until(&mut events, |event| matches!(event, Event::Leader(_))).await;
    assert_eq!(found.last(), Some(&Event::Leader(leader)));
    a.close().await;
    log.until("b executes").await;
    while watch.leader().is_none_or(|leader| leader.leader != *b.id()) {
        watch.changed().await.unwrap();
    }
    let led = b.current().unwrap();
    assert_eq!(led.leader, *b.id());
    // A watch of an office ends with it, and says so after what it has seen.
    let mut of_office = b.leader();
    b.close().await;
    let ends = async { while of_office.changed().await.is_ok() {} };
    assert!(tokio::time::timeout(10 * SECOND, ends).await.is_ok());
    assert_eq!(of_office.changed().await, Err(WatchEnded));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_finishes_is_over() {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let mut script = Script::new("a", &log);
    script.execute.push_back(Act::Take(SECOND));
    let a = candidate(&elections, "a").run(script).unwrap();
    a.over().await;
    assert_eq!(log.count("hands over, holding: the work has ended"), 1);
    assert_eq!(a.resign(), Err(CommandError::Over));
    let _b = run(&elections, "b", &log);
    log.until("b executes").await;
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_is_dropped_closes_the_candidate() {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let a = run(&elections, "a", &log);
    log.until("a executes").await;
    drop(a);
    log.until("a hands over, holding: the candidate was closed")
        .await;
}

#[tokio::test(start_paused = true)]
async fn events_come_before_what_they_announce() {
    let (store, log) = (Arc::default(), Log::default());
    let elections = process(&store);
    let a = run(&elections, "a", &log);
    let mut events = a.events();
    log.until("a executes").await;
    a.resign().unwrap();
    let seen = until(&mut events, |event| matches!(event, Event::Standing)).await;
    let kinds: Vec<String> = seen
        .iter()
        .map(|event| {
            format!("{event:?}")
                .split(['(', ' '])
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        kinds,
        ["Elected", "Inaugurated", "Leaving", "NoLeader", "Standing"]
    );
}

#[tokio::test]
async fn settings_out_of_range_are_errors() {
    let elections = process(&Arc::<Faulty>::default());
    let log = Log::default();
    let script = || Script::new("a", &log);
    let run = |builder: keylane_leader::CandidateBuilder| builder.run(script()).map(drop);
    let zero = std::time::Duration::ZERO;
    let built = || candidate(&elections, "a");
    assert_eq!(run(built().ttl(zero)), Err(CandidateError::Ttl(zero)));
    assert_eq!(run(built().ttl(LONGEST)), Ok(()));
    let (ttl, longest) = (LONGEST + SECOND, LONGEST);
    let of_store = CandidateError::TtlOfStore { ttl, longest };
    assert_eq!(run(built().ttl(ttl)), Err(of_store));
    assert_eq!(
        run(built().stop_limit(zero)),
        Err(CandidateError::Zero("stop_limit"))
    );
    // One that was started above may still be leaving.
    let (b, log) = (candidate(&elections, "b"), Log::default());
    let office = b.clone().run(Script::new("b", &log)).unwrap();
    let taken = CandidateError::IdTaken(CandidateId::new("b").unwrap());
    assert_eq!(run(b.clone()), Err(taken));
    office.close().await;
    assert_eq!(run(b), Ok(()));
    for id in ["", "a b", "a/b", "ä", &"x".repeat(101)] {
        assert_eq!(run(built().id(id)), Err(CandidateError::Id(id.to_owned())));
    }
    assert_eq!(run(built().id("c").lost(Lost::Wait(zero))), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_careers_share_one_keeper() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let elections = process(&store);
    let offices: Vec<_> = (0..1_000)
        .map(|number| {
            let built = keylane_leader::Candidate::builder(&elections, format!("shard-{number}"));
            built.run(Script::new("a", &log)).unwrap()
        })
        .collect();
    log.until_count("a executes", 1_000).await;
    let before = store.calls();
    tokio::time::sleep(60 * SECOND).await;
    let calls = store.calls() - before;
    assert!(offices.iter().all(|office| office.leads()));
    // A term of 10 seconds is renewed each third of it, 1,000 in a call.
    assert!(
        calls <= 2 * 60 * 3 / 10,
        "{calls} calls to renew 1,000 terms for a minute"
    );
}

#[test]
fn all_that_is_not_async_works_outside_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let elections = runtime.block_on(async { process(&store) });
    let office = run(&elections, "a", &log);
    let watch = elections.watch("billing");
    runtime.block_on(log.until("a executes"));
    let mut events = office.events();
    office.resign().unwrap();
    runtime.block_on(until(&mut events, |event| matches!(event, Event::Standing)));
    drop((watch, office));
    // The runtime ends before what it ran.
    let office = run(&elections, "b", &log);
    runtime.block_on(log.until("b executes"));
    assert!(office.leads());
    drop(runtime);
    assert!(!office.leads());
    assert_eq!(office.resign(), Err(CommandError::Over));
    drop(run(&elections, "c", &log));
}

#[tokio::test(start_paused = true)]
async fn the_first_reader_misses_no_event() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let elections = process(&store);
    let a = run(&elections, "a", &log);
    log.until("a executes").await;
    let b = run(&elections, "b", &log);
    // The candidate has run for long before the first call.
    tokio::time::sleep(5 * SECOND).await;
    let mut events = b.events();
    let first = tokio::time::timeout(SECOND, events.next()).await;
    assert!(matches!(first, Ok(Some(Event::Leader(_)))), "{first:?}");
    a.close().await;
    until(&mut events, |event| matches!(event, Event::Inaugurated(_))).await;
    // Another one reads from now on.
    let mut later = b.events();
    b.close().await;
    assert!(matches!(later.next().await, Some(Event::Leaving(_))));
}

#[tokio::test(start_paused = true)]
async fn candidates_end_when_their_elections_are_closed() {
    let (store, log) = (Arc::<Faulty>::default(), Log::default());
    let elections = process(&store);
    let a = run(&elections, "a", &log);
    log.until("a executes").await;
    let b = run(&elections, "b", &log);
    let _c = run(&process(&store), "c", &log);
    tokio::time::sleep(SECOND).await;
    let mut events = [a.events(), b.events()];
    elections.close().await;
    for events in &mut events {
        until(events, |event| *event == Event::Closed).await;
        until(events, |event| *event == Event::Over).await;
    }
    assert_eq!(log.count("a hands over"), 1);
    log.until("c executes").await;
    assert_eq!(log.count("b inaugurates"), 0);
    // One that is started later ends at once.
    let late = run(&elections, "d", &log);
    late.over().await;
    assert_eq!(late.events().next().await, Some(Event::Closed));
}
