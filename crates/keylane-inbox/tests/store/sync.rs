//! Answers that come before the disk has confirmed.

use std::time::{Duration, Instant};

use keylane_inbox::store::{EmbeddedStore, InboxStore, Settings};
use keylane_inbox::{NewMessage, SyncMode};

async fn open(directory: &tempfile::TempDir, time: Duration) -> EmbeddedStore {
    let mut settings = Settings::default();
    settings.sync = SyncMode::LosesUpTo(time);
    EmbeddedStore::open(directory.path(), settings)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_close_makes_everything_durable() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Duration::from_secs(3_600)).await;
    for _ in 0..10 {
        store
            .accept(vec![NewMessage::new("key", "payload")])
            .await
            .unwrap();
    }
    // It is read before it is durable.
    assert_eq!(store.scan(0, 100, usize::MAX).await.unwrap().len(), 10);
    store.close().await.unwrap();
    let store = open(&directory, Duration::from_secs(3_600)).await;
    assert_eq!(store.scan(0, 100, usize::MAX).await.unwrap().len(), 10);
}

#[tokio::test]
async fn the_file_has_it_after_the_time() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Duration::from_millis(30)).await;
    store
        .accept(vec![NewMessage::new("key", "payload")])
        .await
        .unwrap();
    // A copy of the file is what a process that is killed leaves behind.
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let copy = tempfile::tempdir().unwrap();
        for name in ["keylane-inbox", "messages.redb"] {
            std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
        }
        // One that is copied in the middle of a write need not open.
        let Ok(copied) = EmbeddedStore::open(copy.path(), Settings::default()).await else {
            continue;
        };
        let found = copied.stats().await.unwrap().waiting;
        copied.close().await.unwrap();
        if found == 1 {
            break;
        }
    }
    store.close().await.unwrap();
}
