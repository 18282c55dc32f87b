//! Many candidates wait, and a change wakes one of them.

use std::time::Duration;

use keylane_leader::ElectionStore;
use keylane_leader::store::{Election, Stage};
use keylane_leases::{LeaseStore, Owner};
use keylane_sql::Database;
use keylane_testkit::scenario::until_async;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::{LONG, Scene, choosing, elections, id};
use crate::support::{Kind, Place};

const CANDIDATES: usize = 50;

/// None looks by itself.
const NEVER: Duration = Duration::from_secs(3_600);

const SOON: Duration = Duration::from_secs(120);

fn name(at: usize) -> String {
    format!("candidate-{at}")
}

/// Scenes in two processes, as it were: each has a pool and a listener of its own.
async fn two(place: &Place) -> [(Database, Scene); 2] {
    let mut scenes = Vec::new();
    for _ in 0..2 {
        let other = Place::at(place.kind, place.address.clone()).await;
        let store = elections(&other).await.poll(NEVER);
        let scene = Scene {
            store: store.into(),
            key: "50".into(),
        };
        scenes.push((other.database, scene));
    }
    scenes
        .try_into()
        .unwrap_or_else(|_| panic!("there are two"))
}

/// Waits in the background, and says when the wait is over.
fn wait(
    scene: &Scene,
    at: Option<usize>,
    seen: Election,
    woken: &mpsc::UnboundedSender<Option<usize>>,
) {
    let (scene, woken) = (scene.clone(), woken.clone());
    tokio::spawn(async move {
        let candidate = at.map(|at| id(&name(at)));
        let changed = || scene.store.changed(&scene.key, candidate.as_ref(), &seen);
        // A test may have ended the connection by which it looks.
        while changed().await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
        let _ = woken.send(at);
    });
}

/// Returns who is woken next: a candidate, or one that watches.
async fn next(wakes: &mut mpsc::UnboundedReceiver<Option<usize>>) -> Option<usize> {
    let next = timeout(SOON, wakes.recv()).await;
    next.expect("it is woken").expect("there are others")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_candidates_one_is_woken_for_each_change() {
    const TERMS: usize = 10;
    let place = Place::new(Kind::Postgres).await;
    let scenes = two(&place).await;
    let of = |at: usize| &scenes[at % 2].1;
    let (woken, mut wakes) = mpsc::unbounded_channel();
    let first = Owner::random();
    let mut held = of(0).grant(&first).await;
    let mut owner = first;
    for at in 0..CANDIDATES {
        of(at).enter(&name(at), 7, LONG).await;
    }
    for at in 0..CANDIDATES {
        wait(of(at), Some(at), of(at).look().await, &woken);
    }
    for at in 0..TERMS {
        // The lease is free: only the next one hears of it.
        of(at).store.release(&owner, &[held]).await.unwrap();
        assert_eq!(next(&mut wakes).await, Some(at));
        owner = Owner::random();
        held = of(at).grant(&owner).await;
        // It leads now, and is no candidate any more: only the one behind it hears of that.
        of(at).record(held.token.0, &name(at), Stage::Began).await;
        assert_eq!(next(&mut wakes).await, Some(at + 1));
        let seen = of(at).look().await;
        assert_eq!(seen.next, Some(id(&name(at + 1))));
        wait(of(at + 1), Some(at + 1), seen, &woken);
    }
    // One in the middle withdraws, and none hears of it: the one behind it looks, and goes on.
    let gone = id(&name(30));
    of(0).store.withdraw(&of(0).key, &gone).await.unwrap();
    let seen = of(0).look().await;
    // A watcher hears of a stage.
    wait(of(0), None, seen, &woken);
    let token = held.token.0;
    of(0)
        .write(&choosing(token, &name(TERMS - 1), &name(40)))
        .await;
    let mut last = Vec::new();
    for _ in 0..3 {
        last.push(next(&mut wakes).await);
    }
    last.sort_unstable();
    assert_eq!(
        last,
        [None, Some(TERMS), Some(40)],
        "the one that watches, the one whose turn it was, and the chosen one"
    );
    assert!(wakes.try_recv().is_err());
    // Each has looked a few times. If each change made all of them look, they would do it 1,500 times.
    for (database, _) in &scenes {
        database.close().await;
    }
    let commits = "select xact_commit from pg_stat_database where datname = current_database()";
    let commits = place.number(commits).await;
    println!("{commits} transactions");
    assert!((200..900).contains(&commits), "{commits} transactions");
}

/// The one before it is silent and comes again, behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_lost_its_place_holds_none_up() {
    let place = Place::new(Kind::Postgres).await;
    let scenes = two(&place).await;
    let of = |at: usize| &scenes[at % 2].1;
    let (woken, mut wakes) = mpsc::unbounded_channel();
    // Long enough to be seen on a machine that stands still for a second or two.
    let short = Duration::from_secs(4);
    of(0).enter(&name(0), 7, short).await;
    let seen = of(1).enter(&name(1), 7, LONG).await;
    assert_eq!(seen.next, Some(id(&name(0))));
    wait(of(1), Some(1), seen, &woken);
    // Without a look of its own the other one does not see that time has passed.
    until_async("it has run out", async || {
        of(0).look().await.next == Some(id(&name(1)))
    })
    .await;
    of(0).enter(&name(0), 7, LONG).await;
    assert_eq!(next(&mut wakes).await, Some(1));
}

/// A listener whose connection is ended listens again, and all waiters look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_announced_while_none_listens_is_found() {
    let place = Place::new(Kind::Postgres).await;
    let [(_, scene), _] = two(&place).await;
    let (woken, mut wakes) = mpsc::unbounded_channel();
    let owner = Owner::random();
    let held = scene.grant(&owner).await;
    let seen = scene.enter(&name(0), 7, LONG).await;
    wait(&scene, Some(0), seen, &woken);
    let listeners = "select count(*) from pg_stat_activity
        where datname = current_database() and query ilike 'listen %'";
    until_async("it listens", async || place.number(listeners).await == 1).await;
    place.kill_connections().await;
    // The connections of the pool were ended, too.
    let mut released = scene
        .store
        .release(&owner, std::slice::from_ref(&held))
        .await;
    while released.is_err() {
        released = scene
            .store
            .release(&owner, std::slice::from_ref(&held))
            .await;
    }
    assert_eq!(next(&mut wakes).await, Some(0));
}
