//! Elections: no herd, sessions that are lost, candidates that are silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane_leader::store::{CandidateId, Election, Entry, Recorded, Stage, TermRecord};
use keylane_leases::Token;
use keylane_testkit::scenario::{until, until_async};
use keylane_zookeeper::{ElectionStore, ZooKeeperLeases};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{LONG, PATIENCE, Process, client, new_root, own, shared, store};

fn id(name: &str) -> CandidateId {
    CandidateId::new(name).unwrap()
}

fn entry(name: &str) -> Entry {
    Entry {
        id: id(name),
        rank: 1,
    }
}

async fn enter(store: &ZooKeeperLeases, name: &str) -> Election {
    let key = Bytes::from_static(b"billing");
    store.enter(&key, &entry(name), LONG).await.unwrap()
}

async fn next(store: &ZooKeeperLeases) -> Option<CandidateId> {
    store.look(&"billing".into()).await.unwrap().next
}

/// How many watches the server has.
async fn watches(server: &testkit_servers::ZooKeeper) -> usize {
    let answer = server.word(0, "wchs").await.unwrap();
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix("Total watches:"));
    line.unwrap().parse().unwrap()
}

/// A record relies on what its session has read last, and is still refused, and exact, if another
/// one has written since.
#[tokio::test]
async fn what_a_session_knows_is_compared_before_it_counts() {
    let server = shared().await;
    let root = new_root();
    let [here, there] = [(); 2].map(|()| store(&server.hosts(), &root, LONG));
    let term = |token, leader| TermRecord {
        token: Token(token),
        leader: id(leader),
        stage: Stage::Began,
        chosen: None,
    };
    let key = Bytes::from_static(b"billing");
    enter(&here, "a").await;
    let other = there.record(&key, &term(9, "b")).await.unwrap();
    assert_eq!(other, Recorded::Written(None));
    let older = here.record(&key, &term(7, "a")).await.unwrap();
    assert_eq!(older, Recorded::Refused);
    enter(&here, "a").await;
    let other = there.record(&key, &term(10, "b")).await.unwrap();
    assert_eq!(other, Recorded::Written(Some(term(9, "b"))));
    let newer = here.record(&key, &term(11, "a")).await.unwrap();
    assert_eq!(newer, Recorded::Written(Some(term(10, "b"))));
}

/// Fifty candidates, each waiting as the library does: it looks again when it is woken.
#[tokio::test]
async fn a_change_wakes_one_of_fifty() {
    const COUNT: usize = 50;
    let server = own().await;
    let (hosts, root) = (server.hosts(), new_root());
    let stores = Vec::from_iter((0..5).map(|_| store(&hosts, &root, LONG)));
    let leader = Process::new(&hosts, &root);
    let token = leader.granted("billing").await;
    let woken = Arc::new(AtomicUsize::new(0));
    let mut waiting = JoinSet::new();
    for n in 0..COUNT {
        let (store, woken) = (Arc::clone(&stores[n % stores.len()]), Arc::clone(&woken));
        let name = format!("candidate-{n:02}");
        let mut seen = enter(&store, &name).await;
        waiting.spawn(async move {
            let (key, id) = ("billing".into(), id(&name));
            loop {
                store.changed(&key, Some(&id), &seen).await.unwrap();
                woken.fetch_add(1, Ordering::SeqCst);
                seen = store.look(&key).await.unwrap();
            }
        });
    }
    // Each has its own node and the one before it; the first one has the record and the lease.
    let all = 2 * COUNT + 1;
    until_async("all wait", async || watches(&server).await == all).await;

    let term = |stage| TermRecord {
        token,
        leader: id("leader"),
        stage,
        chosen: None,
    };
    let key = Bytes::from_static(b"billing");
    let mut change = 0;
    let mut is_one = async |what: &str, left: usize| {
        change += 1;
        let so_far = || woken.load(Ordering::SeqCst);
        until(|| so_far() >= change).await;
        // Those that were woken wait again.
        let all = 2 * left + 1;
        until_async("all wait again", async || watches(&server).await == all).await;
        assert_eq!(so_far(), change, "more than one was woken by {what}");
    };
    leader
        .store
        .record(&key, &term(Stage::Began))
        .await
        .unwrap();
    is_one("a term", COUNT).await;
    leader
        .store
        .record(&key, &term(Stage::Leaving))
        .await
        .unwrap();
    is_one("a leader that leaves", COUNT).await;
    leader.release("billing", token).await;
    is_one("a free lease", COUNT).await;
    waiting.abort_all();
}

/// The first of those that wait leaves, again and again: the next one alone hears of it.
#[tokio::test]
async fn a_candidate_that_leaves_wakes_the_one_behind() {
    const COUNT: usize = 20;
    let server = own().await;
    let (hosts, root) = (server.hosts(), new_root());
    let here = store(&hosts, &root, LONG);
    let names = Vec::from_iter((0..COUNT).map(|n| format!("candidate-{n:02}")));
    let mut seen = Vec::new();
    for name in &names {
        seen.push(enter(&here, name).await);
    }
    let woken = Arc::new(AtomicUsize::new(0));
    let mut waiting = JoinSet::new();
    for (name, seen) in names.iter().zip(seen).skip(1) {
        let (store, woken, id) = (Arc::clone(&here), Arc::clone(&woken), id(name));
        waiting.spawn(async move {
            let key = "billing".into();
            store.changed(&key, Some(&id), &seen).await.unwrap();
            assert_eq!(store.look(&key).await.unwrap().next, Some(id));
            woken.fetch_add(1, Ordering::SeqCst);
        });
    }
    // Its own node and the one before it; in one session a node has one watch, however many wait
    // for it, and each but the last one has another behind it.
    let all = 2 * (COUNT - 1) - (COUNT - 2);
    until_async("all wait", async || watches(&server).await == all).await;
    for (gone, name) in names.iter().enumerate().take(COUNT - 1) {
        here.withdraw(&"billing".into(), &id(name)).await.unwrap();
        let woken = || woken.load(Ordering::SeqCst);
        until(|| woken() > gone).await;
        assert_eq!(woken(), gone + 1);
    }
    while let Some(ended) = waiting.join_next().await {
        ended.unwrap();
    }
    until_async("no watch is left", async || watches(&server).await == 0).await;
}

#[tokio::test]
async fn a_chosen_candidate_is_woken_wherever_it_stands() {
    let server = own().await;
    let (hosts, root) = (server.hosts(), new_root());
    let here = store(&hosts, &root, LONG);
    let there = store(&hosts, &root, LONG);
    let key = Bytes::from_static(b"billing");
    for name in ["a", "b", "c"] {
        enter(&here, name).await;
    }
    let seen = enter(&there, "d").await;
    let waits = tokio::spawn({
        let (there, key) = (Arc::clone(&there), key.clone());
        async move { there.changed(&key, Some(&id("d")), &seen).await }
    });
    // Its own node, and the one before it.
    until_async("it waits", async || watches(&server).await == 2).await;
    let term = TermRecord {
        token: keylane_leases::Token(7),
        leader: id("x"),
        stage: Stage::Leaving,
        chosen: Some(id("d")),
    };
    here.record(&key, &term).await.unwrap();
    timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    assert_eq!(next(&there).await, Some(id("d")));
    // When it leaves, the first one is next again, and hears of it.
    let seen = here.look(&key).await.unwrap();
    let waits = tokio::spawn({
        let (here, key) = (Arc::clone(&here), key.clone());
        async move { here.changed(&key, Some(&id("a")), &seen).await }
    });
    // Its own node, the record, and the chosen one.
    until_async("it waits", async || watches(&server).await == 3).await;
    there.withdraw(&key, &id("d")).await.unwrap();
    timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    assert_eq!(next(&here).await, Some(id("a")));
}

/// The process lives, and so does its session, but the candidate is not entered again.
#[tokio::test]
async fn a_silent_candidate_of_a_live_session_is_removed() {
    let server = shared().await;
    let here = store(&server.hosts(), &new_root(), LONG);
    let key = Bytes::from_static(b"billing");
    let short = Duration::from_millis(500);
    here.enter(&key, &entry("a"), short).await.unwrap();
    enter(&here, "b").await;
    until_async("it is removed", async || next(&here).await == Some(id("b"))).await;
}

/// A candidate of a lost session is another one, though it has the same name: the process enters
/// anew, and does not take the place of a node that is about to go.
#[tokio::test]
async fn a_candidate_of_a_lost_session_is_no_own_one() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    let (before, now) = (store(&hosts, &root, LONG), store(&hosts, &root, LONG));
    let observer = client(&hosts).await;
    enter(&before, "a").await;
    enter(&now, "b").await;
    enter(&now, "a").await;
    let path = format!("{root}/elections/kbilling");
    let count = async || observer.list_children(&path).await.unwrap().len();
    assert_eq!(count().await, 3);
    drop(before);
    until_async("the old one is gone", async || {
        next(&now).await == Some(id("b"))
    })
    .await;
    now.withdraw(&"billing".into(), &id("b")).await.unwrap();
    assert_eq!(next(&now).await, Some(id("a")));
    // The leader of a term is no candidate, with any session.
    let again = store(&hosts, &root, LONG);
    enter(&again, "a").await;
    let term = TermRecord {
        token: keylane_leases::Token(7),
        leader: id("a"),
        stage: Stage::Began,
        chosen: None,
    };
    now.record(&"billing".into(), &term).await.unwrap();
    assert_eq!(next(&now).await, None);
}
