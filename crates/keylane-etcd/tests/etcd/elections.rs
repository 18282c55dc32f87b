//! Elections: the suite of stores, who is woken, and data that go back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane_etcd::etcd_client::CompactionOptions;
use keylane_etcd::{Etcd, EtcdElections};
use keylane_leader::conformance;
use keylane_leader::store::{CandidateId, Election, ElectionStore, Entry, Stage, TermRecord};
use keylane_leases::store::{Answer, Claim, LeaseStore, Wish};
use keylane_leases::{Owner, Token};
use keylane_testkit::scenario::until_async as until;
use testkit_servers::EtcdKind;
use testkit_servers::proxy::Direction;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{LONG, SHORTEST, by, client, each_kind, new_namespace, own, shared};

/// Longer than a change takes to wake a candidate.
const SOON: Duration = Duration::from_secs(20);

fn elections(url: &str, namespace: &str) -> Arc<EtcdElections> {
    let etcd = Etcd::at([url]).unwrap();
    Arc::new(EtcdElections::open(&etcd, namespace).unwrap())
}

fn id(name: impl Into<String>) -> CandidateId {
    CandidateId::new(name).unwrap()
}

static KEY: Bytes = Bytes::from_static(b"billing");

/// Waits for a change, as a candidate does.
async fn changed(store: &EtcdElections, name: Option<&str>, seen: &Election) {
    let candidate = name.map(id);
    let woken = store.changed(&KEY, candidate.as_ref(), seen).await;
    woken.unwrap();
}

async fn enter(store: &EtcdElections, name: &str) -> Election {
    let entry = Entry {
        id: id(name),
        rank: 1,
    };
    store.enter(&KEY, &entry, LONG).await.unwrap()
}

async fn grant(store: &EtcdElections, owner: &Owner) -> Claim {
    let answers = store.acquire(owner, &[Wish::new(KEY.clone(), LONG)]).await;
    match answers.unwrap()[0] {
        Answer::Granted(token) => Claim::new(KEY.clone(), token, LONG),
        taken => panic!("{taken:?}"),
    }
}

fn term(token: Token, leader: &str, stage: Stage, chosen: Option<&str>) -> TermRecord {
    TermRecord {
        token,
        leader: id(leader),
        stage,
        chosen: chosen.map(id),
    }
}

#[tokio::test]
async fn elections_conform() {
    each_kind(async |kind: EtcdKind| {
        let server = shared(kind).await;
        let store = elections(&server.url(), &new_namespace());
        conformance::check(store.clone(), SHORTEST).await;
        conformance::check_end(store).await;
    })
    .await;
}

/// 50 candidates, and 10 changes of the leader. Each change wakes the candidate that is next, and
/// the one behind it when it has become the leader.
#[tokio::test]
async fn a_change_wakes_one_candidate_of_fifty() {
    const CANDIDATES: usize = 50;
    const TERMS: usize = 10;
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let store = elections(&server.url(), &namespace);
        let owner = Owner::random();
        let mut claim = grant(&store, &owner).await;
        for number in 0..CANDIDATES {
            enter(&store, &format!("c-{number}")).await;
        }
        let woken = Arc::new([const { AtomicUsize::new(0) }; CANDIDATES]);
        let mut waiting = JoinSet::new();
        for number in 0..CANDIDATES {
            let (store, woken) = (Arc::clone(&store), Arc::clone(&woken));
            waiting.spawn(async move {
                let me = id(format!("c-{number}"));
                let mut seen = store.look(&KEY).await.unwrap();
                loop {
                    store.changed(&KEY, Some(&me), &seen).await.unwrap();
                    woken[number].fetch_add(1, Ordering::Relaxed);
                    seen = store.look(&KEY).await.unwrap();
                }
            });
        }
        let all = || {
            woken
                .iter()
                .map(|woken| woken.load(Ordering::Relaxed))
                .sum::<usize>()
        };
        // They watch.
        sleep(Duration::from_secs(3)).await;
        let at_first = all();
        for number in 0..TERMS {
            let before = all();
            store.release(&owner, &[claim]).await.unwrap();
            until("the next one is woken", async || all() > before).await;
            claim = grant(&store, &owner).await;
            let leader = format!("c-{number}");
            let began = term(claim.token, &leader, Stage::Began, None);
            store.record(&KEY, &began).await.unwrap();
            let next = id(format!("c-{}", number + 1));
            assert_eq!(store.look(&KEY).await.unwrap().next, Some(next));
            sleep(Duration::from_millis(200)).await;
        }
        let count = all() - at_first;
        println!("{kind}: {count} candidates woken in {TERMS} terms");
        // The release, the grant and the record of a term concern the next one; its leaving, the
        // one behind it.
        assert!(count <= 5 * TERMS, "{kind}: {count}");
        let others = woken[TERMS + 2..]
            .iter()
            .map(|woken| woken.load(Ordering::Relaxed));
        assert_eq!(others.max(), Some(0), "{kind}: one far behind was woken");
        waiting.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn the_chosen_candidate_is_woken_wherever_it_stands() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let (store, owner) = (elections(&server.url(), &namespace), Owner::random());
        let claim = grant(&store, &owner).await;
        for name in ["a", "b", "c", "d"] {
            enter(&store, name).await;
        }
        let seen = store.look(&KEY).await.unwrap();
        let waits = async |name: &str| {
            let woken = changed(&store, Some(name), &seen);
            timeout(SOON, woken).await.is_ok()
        };
        let chooses = async {
            sleep(Duration::from_millis(500)).await;
            let leaving = term(claim.token, "leader", Stage::Leaving, Some("c"));
            store.record(&KEY, &leaving).await.unwrap();
        };
        let (chosen, first, ()) = tokio::join!(waits("c"), waits("a"), chooses);
        assert!(chosen && first, "{kind}: {chosen}, {first}");
        // The chosen one withdraws: the first one is next again, and is woken.
        let seen = store.look(&KEY).await.unwrap();
        assert_eq!(seen.next, Some(id("c")));
        let woken = timeout(SOON, changed(&store, Some("a"), &seen));
        let withdraws = async {
            sleep(Duration::from_millis(500)).await;
            store.withdraw(&KEY, &id("c")).await.unwrap();
        };
        let (woken, ()) = tokio::join!(woken, withdraws);
        assert!(woken.is_ok(), "{kind}");
    })
    .await;
}

#[tokio::test]
async fn the_next_one_is_woken_when_the_lease_of_etcd_is_revoked() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let (store, owner) = (elections(&server.url(), &namespace), Owner::random());
        let _claim = grant(&store, &owner).await;
        let seen = enter(&store, "a").await;
        let woken = timeout(SOON, changed(&store, Some("a"), &seen));
        let revokes = async {
            sleep(Duration::from_millis(500)).await;
            let mut operator = client(server).await;
            let name = format!("{namespace}/keylane/leases/kbilling");
            let found = operator.get(name, None).await.unwrap();
            operator.lease_revoke(found.kvs()[0].lease()).await.unwrap();
        };
        let (woken, ()) = tokio::join!(woken, revokes);
        assert!(woken.is_ok(), "{kind}: not woken");
        assert_eq!(store.look(&KEY).await.unwrap().holder, None);
    })
    .await;
}

/// Renewals, also those that move the key to another lease of etcd, and entering again wake no
/// candidate that waits.
#[tokio::test]
async fn renewals_wake_no_candidate() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let (store, owner) = (elections(&server.url(), &namespace), Owner::random());
        let mut claim = grant(&store, &owner).await;
        for name in ["a", "b"] {
            enter(&store, name).await;
        }
        let seen = store.look(&KEY).await.unwrap();
        let renews = async {
            for round in 0..6 {
                sleep(Duration::from_millis(200)).await;
                claim.ttl = LONG + Duration::from_secs(round);
                let claims = std::slice::from_ref(&claim);
                assert_eq!(store.renew(&owner, claims).await, Ok(vec![true]));
                for name in ["a", "b"] {
                    enter(&store, name).await;
                }
            }
        };
        tokio::select! {
            () = changed(&store, Some("a"), &seen) => panic!("{kind}: the next one"),
            () = changed(&store, Some("b"), &seen) => panic!("{kind}: the second"),
            () = changed(&store, None, &seen) => panic!("{kind}: a watcher"),
            () = renews => {}
        }
    })
    .await;
}

/// The watch begins at the revision of the read, and not when it reaches etcd.
#[tokio::test]
async fn a_change_between_the_read_and_the_watch_is_not_missed() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let proxy = server.proxy().await.unwrap();
        let (far, near) = (by(&proxy), server.url());
        let (far, near) = (elections(&far, &namespace), elections(&near, &namespace));
        let owner = Owner::random();
        let mut operator = client(server).await;
        for is_compacted in [false, true] {
            let claim = grant(&near, &owner).await;
            enter(&near, "a").await;
            // It is connected.
            let seen = far.look(&KEY).await.unwrap();
            let latency = Duration::from_millis(500);
            proxy.delay(Direction::ToServer, latency);
            let waits = timeout(SOON, changed(&far, Some("a"), &seen));
            let releases = async {
                // After the read, and before the watch.
                sleep(latency * 3 / 2).await;
                near.release(&owner, &[claim]).await.unwrap();
                if is_compacted {
                    let put = operator.put("other", "1", None).await.unwrap();
                    let revision = put.header().unwrap().revision();
                    operator.compact(revision, None).await.unwrap();
                }
            };
            let (woken, ()) = tokio::join!(waits, releases);
            proxy.delay(Direction::ToServer, Duration::ZERO);
            assert!(
                woken.is_ok(),
                "{kind}: not woken, compacted: {is_compacted}"
            );
        }
    })
    .await;
}

/// What was changed before the watch begins is not missed, also if etcd has forgotten it.
#[tokio::test]
async fn a_compaction_while_a_candidate_waits_hides_no_change() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let (store, owner) = (elections(&server.url(), "compacted"), Owner::random());
        let claim = grant(&store, &owner).await;
        let seen = enter(&store, "a").await;
        let waits = async {
            let (mut seen, me) = (seen, id("a"));
            while seen.holder.is_some() {
                store.changed(&KEY, Some(&me), &seen).await.unwrap();
                seen = store.look(&KEY).await.unwrap();
            }
        };
        let changes = async {
            let mut operator = client(&server).await;
            for number in 0..20 {
                let put = operator
                    .put("other", number.to_string(), None)
                    .await
                    .unwrap();
                let revision = put.header().unwrap().revision();
                let options = CompactionOptions::new().with_physical();
                operator.compact(revision, Some(options)).await.unwrap();
                sleep(Duration::from_millis(20)).await;
            }
            store.release(&owner, &[claim]).await.unwrap();
        };
        let both = timeout(SOON, async { tokio::join!(waits, changes) });
        both.await.unwrap_or_else(|_| panic!("{kind}: not woken"));
    })
    .await;
}

/// A server that was killed while candidates wait: their watches fail, and they look again.
#[tokio::test]
async fn candidates_outlast_a_restart() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let (store, owner) = (elections(&server.url(), "restart"), Owner::random());
        let claim = grant(&store, &owner).await;
        let seen = enter(&store, "a").await;
        let waits = async {
            let (mut seen, me) = (seen, id("a"));
            while seen.holder.is_some() {
                let _ = store.changed(&KEY, Some(&me), &seen).await;
                match store.look(&KEY).await {
                    Ok(now) => seen = now,
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
            seen
        };
        let restarts = async {
            sleep(Duration::from_millis(300)).await;
            server.kill().await.unwrap();
            server.start_again().await.unwrap();
            store.release(&owner, &[claim]).await.unwrap();
        };
        // On a busy disk a server takes long to start.
        let both = timeout(SOON * 9, async { tokio::join!(waits, restarts) });
        let (seen, ()) = both.await.unwrap_or_else(|_| panic!("{kind}: not woken"));
        assert_eq!(seen.next, Some(id("a")), "{kind}: it is still entered");
    })
    .await;
}

#[tokio::test]
async fn a_history_is_the_same_for_all_and_outlasts_a_restart() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let store = elections(&server.url(), "history");
        let history = store.history().await.unwrap();
        for _ in 0..2 {
            assert_eq!(store.history().await.unwrap(), history, "{kind}");
            let other = elections(&server.url(), "history");
            assert_eq!(other.history().await.unwrap(), history, "{kind}");
            server.kill().await.unwrap();
            server.start_again().await.unwrap();
        }
    })
    .await;
}

/// One process has seen what was lost: all see another history, and all go on.
#[tokio::test]
async fn data_that_go_back_are_another_history() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let (store, owner) = (elections(&server.url(), "history"), Owner::random());
        let other = elections(&server.url(), "history");
        let history = store.history().await.unwrap();
        assert_eq!(other.history().await.unwrap(), history);
        let saved = server.save().await.unwrap();
        let claim = grant(&store, &owner).await;
        server.put_back(&saved).await.unwrap();
        // It is refused until the new history is known.
        let claims = std::slice::from_ref(&claim);
        assert!(store.renew(&owner, claims).await.is_err(), "{kind}");
        assert!(store.look(&KEY).await.is_err(), "{kind}");
        let new = store.history().await.unwrap();
        assert_ne!(new, history, "{kind}");
        assert_eq!(store.history().await.unwrap(), new, "{kind}");
        // The other process has seen nothing of it by itself.
        assert_eq!(other.history().await.unwrap(), new, "{kind}");
        assert_eq!(store.renew(&owner, claims).await, Ok(vec![false]), "{kind}");
        let (seen, again) = (enter(&store, "a").await, grant(&store, &owner).await);
        assert_eq!((seen.holder, seen.next), (None, Some(id("a"))), "{kind}");
        assert!(again.token != claim.token, "{kind}");
        assert_eq!(
            store.renew(&owner, &[again]).await,
            Ok(vec![true]),
            "{kind}"
        );
    })
    .await;
}

/// A snapshot that is restored makes a new cluster, also for processes that have seen nothing.
#[tokio::test]
async fn a_snapshot_that_is_restored_is_another_history() {
    let server = own(EtcdKind::Etcd34).await;
    let store = elections(&server.url(), "history");
    let history = store.history().await.unwrap();
    let mut operator = client(&server).await;
    let mut snapshot = operator.snapshot().await.unwrap();
    let mut bytes = Vec::new();
    while let Some(part) = snapshot.message().await.unwrap() {
        bytes.extend_from_slice(part.blob());
    }
    let file = server.folder().join("snapshot.db");
    std::fs::write(&file, bytes).unwrap();
    server.restore(&file, "restored").await.unwrap();
    let fresh = elections(&server.url(), "history");
    let new = fresh.history().await.unwrap();
    assert_ne!(new, history);
    assert_eq!(store.history().await.unwrap(), new);
}

/// A candidate whose process is gone makes room, and leaves no key.
#[tokio::test]
async fn a_candidate_that_is_silent_is_removed_and_a_live_one_stays() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let store = elections(&server.url(), &namespace);
        let entry = |name| Entry {
            id: id(name),
            rank: 1,
        };
        for name in ["silent", "live"] {
            store.enter(&KEY, &entry(name), SHORTEST).await.unwrap();
        }
        let removed = async {
            loop {
                let seen = store.enter(&KEY, &entry("live"), SHORTEST).await.unwrap();
                if seen.next == Some(id("live")) {
                    return;
                }
                sleep(SHORTEST / 8).await;
            }
        };
        timeout(SOON, removed).await.unwrap();
        for _ in 0..8 {
            sleep(SHORTEST / 3).await;
            let seen = store.enter(&KEY, &entry("live"), SHORTEST).await.unwrap();
            assert_eq!(seen.next, Some(id("live")), "{kind}");
        }
    })
    .await;
}
