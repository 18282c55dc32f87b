//! What a candidate that waits costs the server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane_leader::store::{CandidateId, Election, Entry, Recorded, Stage, TermRecord};
use keylane_zookeeper::{ElectionStore, ZooKeeperLeases};
use tokio::time::timeout;

use crate::support::{LONG, PATIENCE, Process, TIMEOUT, new_root, own, store};

static KEY: Bytes = Bytes::from_static(b"billing");

/// How often the second candidate is entered again.
const ROUNDS: u32 = 100;

fn id(name: &str) -> CandidateId {
    CandidateId::new(name).unwrap()
}

async fn enter(store: &ZooKeeperLeases, name: &str) -> Election {
    let entry = Entry {
        id: id(name),
        rank: 1,
    };
    let long = Duration::from_secs(600);
    store.enter(&KEY, &entry, long).await.unwrap()
}

/// Whether the second candidate is woken within this time.
async fn is_woken(store: &ZooKeeperLeases, seen: &Election, time: Duration) -> bool {
    let id = id("b");
    let waits = store.changed(&KEY, Some(&id), seen);
    timeout(time, waits).await.map(Result::unwrap).is_ok()
}

/// How many packets a server has received.
async fn received(server: &testkit_servers::ZooKeeper) -> u32 {
    let answer = server.word(0, "mntr").await.unwrap();
    let mut lines = answer.lines();
    let line = lines.find_map(|line| line.strip_prefix("zk_packets_received"));
    line.unwrap().trim().parse().unwrap()
}

/// A candidate stops its wait to be entered again. Its watches stay: to read the election takes four
/// packets, and to set watches as many again.
#[tokio::test]
async fn a_candidate_at_rest_only_reads() {
    let server = own().await;
    let store = store(&server.hosts(), &new_root(), LONG);
    enter(&store, "a").await;
    let mut seen = enter(&store, "b").await;
    // Long enough for the watches to be set.
    assert!(!is_woken(&store, &seen, TIMEOUT / 4).await);
    let before = received(&server).await;
    for _ in 0..ROUNDS {
        seen = enter(&store, "b").await;
        assert!(!is_woken(&store, &seen, Duration::ZERO).await);
    }
    let packets = received(&server).await - before;
    assert!(
        packets < 6 * ROUNDS,
        "{packets} packets for {ROUNDS} rounds"
    );

    // The watches of the first wait.
    let waits = tokio::spawn({
        let (store, seen) = (Arc::clone(&store), seen.clone());
        async move { store.changed(&KEY, Some(&id("b")), &seen).await }
    });
    store.withdraw(&KEY, &id("a")).await.unwrap();
    timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    assert_eq!(enter(&store, "b").await.next, Some(id("b")));
    // What happens while nothing waits is not missed.
    let seen = enter(&store, "b").await;
    assert!(!is_woken(&store, &seen, TIMEOUT / 4).await);
    store.withdraw(&KEY, &id("b")).await.unwrap();
    assert!(is_woken(&store, &seen, PATIENCE).await);
}

/// To enter takes nine packets, and the grant two. The rest is one for the beginning of the term,
/// and one for its end, which releases the lease too: what this session knows is not read again.
#[tokio::test]
async fn a_term_is_recorded_and_released_without_a_read() {
    let server = own().await;
    let process = Process::new(&server.hosts(), &new_root());
    let store = &process.store;
    let before = received(&server).await;
    for _ in 0..ROUNDS {
        enter(store, "a").await;
        let token = process.granted("billing").await;
        for stage in [Stage::Began, Stage::Ended] {
            let term = TermRecord {
                token,
                leader: id("a"),
                stage,
                chosen: None,
            };
            let recorded = store.record(&KEY, &term).await.unwrap();
            assert!(matches!(recorded, Recorded::Written(_)));
        }
        process.release("billing", token).await;
        assert_eq!(store.look(&KEY).await.unwrap().holder, None);
    }
    let packets = received(&server).await - before;
    // With the last look four more, and now and then one of the session.
    let most = (9 + 2 + 1 + 1 + 4) * ROUNDS + ROUNDS / 2;
    assert!(packets < most, "{packets} packets for {ROUNDS} terms");
}
