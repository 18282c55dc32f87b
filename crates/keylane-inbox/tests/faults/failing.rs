//! Writes and syncs that fail: a typed error, nothing confirmed that is not there, and the store
//! goes on when the disk does.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use keylane_inbox::NewMessage;
use keylane_inbox::error::{AcceptError, StoreError};
use keylane_inbox::store::{Accepted, EmbeddedStore, InboxStore, Settings, Settled};

use crate::disk::{Disk, Event, Fate, Platter};

pub(crate) fn open(disk: &Disk) -> EmbeddedStore {
    let disk = disk.clone();
    EmbeddedStore::open_with_backend(move || Ok(disk.clone()), Settings::default()).unwrap()
}

fn message(n: u64) -> NewMessage {
    NewMessage::new("key", vec![7; 3_000]).id(n.to_string())
}

type Answer = Result<Vec<Accepted>, AcceptError<Vec<NewMessage>>>;

fn error(answer: Answer, n: u64) -> StoreError {
    match answer {
        Err(AcceptError::Store(error, back)) => {
            assert!(back == [message(n)], "it is given back");
            error
        }
        other => panic!("{other:?}"),
    }
}

/// Sends a message until it is confirmed.
async fn insist(store: &EmbeddedStore, n: u64) -> u64 {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match store.accept(vec![message(n)]).await {
            Ok(accepted) => return accepted[0].sequence(),
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a power failure right now would leave, if everything that was not synced is lost.
pub(crate) fn after_power_failure(disk: &Disk) -> Disk {
    let events = disk.events();
    let synced = events
        .iter()
        .rposition(|event| matches!(event, Event::Sync));
    let mut platter = Platter::default();
    let synced = &events[..synced.unwrap_or(0)];
    synced
        .iter()
        .for_each(|event| platter.apply(event, Fate::Whole));
    platter.into_disk()
}

pub(crate) async fn waiting(store: &EmbeddedStore) -> Vec<u64> {
    let all = store.scan(0, usize::MAX, usize::MAX).await.unwrap();
    all.into_iter().map(|message| message.sequence).collect()
}

/// Waits until the store is open again, and returns what waits in it.
async fn open_again(store: &EmbeddedStore) -> Vec<u64> {
    let until = Instant::now() + Duration::from_secs(120);
    while let Err(error) = store.scan(0, 1, 1).await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    waiting(store).await
}

#[tokio::test]
async fn a_full_disk_is_said_and_overcome() {
    let disk = Disk::default();
    let store = open(&disk);
    let first = insist(&store, 0).await;
    disk.fails().full.store(1, Ordering::Relaxed);
    let full = error(store.accept(vec![message(1)]).await, 1);
    assert!(
        matches!(full, StoreError::NotCommitted { no_space: true, .. }),
        "{full:?}"
    );
    assert!(full.may_be_stored());
    // It could not be opened again: that is said as well, and nothing is stored.
    let still = error(store.accept(vec![message(2)]).await, 2);
    assert!(matches!(still, StoreError::Unavailable { .. }), "{still:?}");
    assert!(!still.may_be_stored());
    assert!(
        store.scan(0, 10, 10).await.is_err(),
        "never empty, never old"
    );
    assert!(store.settle(vec![Settled::Done(first)]).await.is_err());
    disk.fails().mend();
    let second = insist(&store, 1).await;
    assert_eq!(waiting(&store).await, [first, second]);
    assert!(store.stats().await.unwrap().failed_commits > 0);
    store.close().await.unwrap();
    assert_eq!(waiting(&open(&disk)).await, [first, second]);
}

#[tokio::test]
async fn it_goes_on_without_a_call() {
    let disk = Disk::default();
    let store = open(&disk);
    insist(&store, 0).await;
    disk.fails().full.store(1, Ordering::Relaxed);
    assert!(store.accept(vec![message(1)]).await.is_err());
    disk.fails().mend();
    let until = Instant::now() + Duration::from_secs(120);
    // A read alone does not open it: the writer does, by itself.
    while store.scan(0, 10, 10).await.is_err() {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A consumer only reads: no write would find out that the database must be opened again.
#[tokio::test]
async fn a_read_that_fails_is_said_and_the_next_ones_go_well() {
    let disk = Disk::default();
    let store = open(&disk);
    let sequence = insist(&store, 0).await;
    store.close().await.unwrap();
    let store = open(&disk);
    disk.fails().reads.store(1, Ordering::Relaxed);
    let failed = store.scan(0, 10, 10).await;
    assert!(
        matches!(failed, Err(StoreError::Unavailable { .. })),
        "{failed:?}"
    );
    disk.fails().mend();
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match store.scan(0, 10, 10).await {
            Ok(found) => break assert_eq!(found[0].sequence, sequence),
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.close().await.unwrap();
}

/// After a sync that has failed, the system may say that all is well the next time, and the bytes
/// have never reached the disk. Here: all that was written before is lost, unless it was written
/// again and synced.
#[tokio::test]
async fn after_a_failed_sync_everything_is_written_again() {
    for failing in 1..6 {
        let disk = Disk::default();
        let store = open(&disk);
        let mut confirmed = HashSet::new();
        for n in 0..5 {
            confirmed.insert(insist(&store, n).await);
        }
        disk.fails().syncs.store(failing, Ordering::Relaxed);
        let mut n = 5;
        let failed = loop {
            match store.accept(vec![message(n)]).await {
                Ok(accepted) => confirmed.insert(accepted[0].sequence()),
                Err(error) => break error,
            };
            n += 1;
        };
        assert!(matches!(
            failed,
            AcceptError::Store(StoreError::NotCommitted { .. }, _)
        ));
        // What was written since the last sync that was good is in memory, and nowhere else.
        forget_unsynced(&disk);
        disk.fails().mend();
        confirmed.insert(insist(&store, n).await);
        for n in 100..105 {
            confirmed.insert(insist(&store, n).await);
        }
        let left = open(&after_power_failure(&disk));
        let left = HashSet::from_iter(waiting(&left).await);
        assert!(confirmed.is_subset(&left), "{confirmed:?} of {left:?}");
    }
}

/// The system believes that what was written since the last sync is on the disk. It is not, so it
/// is taken out of what a later sync would cover.
fn forget_unsynced(disk: &Disk) {
    let mut events = disk.events();
    let synced = events
        .iter()
        .rposition(|event| matches!(event, Event::Sync));
    let from = synced.map_or(0, |at| at + 1);
    events.truncate(from);
}

/// The n-th write and the n-th sync fails, once and from then on, for many n.
#[tokio::test]
async fn whatever_fails_nothing_confirmed_is_lost() {
    // At the same time: each of them waits for its store to be opened again.
    let cases = (1..60).flat_map(|n| (0..3).map(move |kind| (n, kind)));
    let cases = cases.map(|(n, kind)| tokio::spawn(nothing_is_lost(n, kind)));
    for case in Vec::from_iter(cases) {
        case.await.unwrap();
    }
}

async fn nothing_is_lost(n: u64, kind: usize) {
    let disk = Disk::default();
    let store = open(&disk);
    let fails = disk.fails();
    let counter = [&fails.writes, &fails.syncs, &fails.full][kind];
    counter.store(n, Ordering::Relaxed);
    let mut waits = HashSet::new();
    let mut done = HashSet::new();
    for m in 0..40 {
        let Ok(accepted) = store.accept(vec![message(m)]).await else {
            break;
        };
        let sequence = accepted[0].sequence();
        waits.insert(sequence);
        if m % 3 == 0 {
            // If it fails, it may be done, or wait.
            waits.remove(&sequence);
            if store.settle(vec![Settled::Done(sequence)]).await.is_ok() {
                done.insert(sequence);
            }
        }
    }
    // The process dies: no close, nothing unsynced.
    let left = open(&after_power_failure(&disk));
    let left = HashSet::from_iter(waiting(&left).await);
    assert!(waits.is_subset(&left), "failure {n} of kind {kind}");
    assert!(left.is_disjoint(&done), "failure {n} of kind {kind}");
    // And the one that lives goes on.
    disk.fails().mend();
    let before = open_again(&store).await;
    let sequence = insist(&store, 1_000).await;
    assert!(
        before.iter().all(|earlier| *earlier < sequence),
        "failure {n} of kind {kind}: what was not confirmed may be stored, and keeps its sequence"
    );
    let all = HashSet::from_iter(waiting(&store).await);
    assert!(all.contains(&sequence) && waits.is_subset(&all));
    assert!(before.iter().all(|earlier| all.contains(earlier)));
    assert!(all.is_disjoint(&done));
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_close_says_that_the_last_writes_failed() {
    let disk = Disk::default();
    let store = open(&disk);
    insist(&store, 0).await;
    disk.fails().writes.store(1, Ordering::Relaxed);
    assert!(store.accept(vec![message(1)]).await.is_err());
    assert!(store.close().await.is_err());
    assert_eq!(store.scan(0, 10, 10).await, Err(StoreError::Closed));
}
