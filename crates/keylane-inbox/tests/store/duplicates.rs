//! How long ids are remembered, by a clock that may do anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylane_inbox::NewMessage;
use keylane_inbox::store::{Accepted, EmbeddedStore, InboxStore, Settings};

struct Clocked {
    clock: Arc<AtomicU64>,
    store: EmbeddedStore,
    _directory: tempfile::TempDir,
}

const HOUR: u64 = 3_600;

async fn clocked(change: impl FnOnce(&mut Settings)) -> Clocked {
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    let seconds = Arc::clone(&clock);
    settings.clock = Arc::new(move || -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds.load(Ordering::Relaxed))
    });
    settings.remember_for = Duration::from_secs(HOUR);
    change(&mut settings);
    let store = EmbeddedStore::open(directory.path(), settings)
        .await
        .unwrap();
    Clocked {
        clock,
        store,
        _directory: directory,
    }
}

impl Clocked {
    async fn accept(&self, id: &str) -> Accepted {
        let message = NewMessage::new("key", "payload").id(id);
        self.store.accept(vec![message]).await.unwrap()[0]
    }

    async fn is_known(&self, id: &str) -> bool {
        self.accept(id).await.is_duplicate()
    }

    fn at(&self, seconds: u64) {
        self.clock.store(seconds, Ordering::Relaxed);
    }

    async fn known(&self) -> u64 {
        self.store.stats().await.unwrap().known
    }
}

#[tokio::test]
async fn within_the_window_and_not_after() {
    let it = clocked(|_| {}).await;
    let first = it.accept("a").await;
    it.at(1_000_000 + HOUR);
    assert_eq!(it.accept("a").await, Accepted::Duplicate(first.sequence()));
    it.at(1_000_000 + HOUR + 1);
    assert!(!it.is_known("a").await);
    // From then on it counts anew, and the old row by time does not take it away.
    it.at(1_000_000 + 2 * HOUR);
    it.accept("b").await;
    assert!(it.is_known("a").await);
}

#[tokio::test]
async fn what_is_too_old_is_forgotten_bit_by_bit() {
    let it = clocked(|_| {}).await;
    for n in 0..1_000 {
        it.store
            .accept(vec![NewMessage::new("key", "").id(n.to_string())])
            .await
            .unwrap();
        if n == 20 {
            break;
        }
    }
    let many = (0..1_000).map(|n| NewMessage::new("key", "").id(format!("many-{n}")));
    it.store.accept(many.collect()).await.unwrap();
    assert_eq!(it.known().await, 1_021);
    it.at(1_000_000 + 2 * HOUR);
    let mut left = it.known().await;
    while left > 1 {
        it.accept("new").await;
        // Without a message that is new, nothing is committed.
        it.store
            .accept(vec![NewMessage::new("key", "")])
            .await
            .unwrap();
        let now = it.known().await;
        assert!(now < left && left - now <= 200, "{left} to {now}");
        left = now;
    }
    assert!(it.is_known("new").await);
    let stats = it.store.stats().await.unwrap();
    assert_eq!(stats.live_bytes - stats.waiting_bytes, 2 * 4 + 33);
}

#[tokio::test]
async fn no_more_than_told() {
    let it = clocked(|settings| settings.remember_most = 10).await;
    for n in 0..100 {
        it.accept(&n.to_string()).await;
        assert_eq!(it.known().await, 10.min(n + 1));
    }
    for n in 90..100 {
        assert!(it.is_known(&n.to_string()).await, "{n}");
    }
    assert!(!it.is_known("89").await);
}

#[tokio::test]
async fn a_window_of_nothing() {
    let it = clocked(|settings| settings.remember_most = 0).await;
    it.accept("a").await;
    assert_eq!(it.known().await, 0);
    let it = clocked(|settings| settings.remember_for = Duration::ZERO).await;
    it.accept("a").await;
    it.at(1_000_001);
    assert!(!it.is_known("a").await);
}

#[tokio::test]
async fn a_clock_that_jumps_loses_no_message() {
    let it = clocked(|_| {}).await;
    let mut stored = 0;
    for (step, second) in [0, 1_000_000, u64::from(u32::MAX), 5, 2_000_000, 1]
        .iter()
        .enumerate()
    {
        it.at(*second);
        for n in 0..5 {
            let accepted = it.accept(&format!("{step}-{n}")).await;
            assert!(!accepted.is_duplicate());
            stored += 1;
        }
        // Right after, it is known, whatever the clock says.
        assert!(it.is_known(&format!("{step}-0")).await);
    }
    // Back, it is absorbed for longer: documented.
    it.at(1);
    assert!(it.is_known("2-3").await);
    assert_eq!(it.store.stats().await.unwrap().waiting, stored);
    let all = it.store.scan(0, usize::MAX, usize::MAX).await.unwrap();
    assert!(all.is_sorted_by(|a, b| a.sequence < b.sequence));
}
