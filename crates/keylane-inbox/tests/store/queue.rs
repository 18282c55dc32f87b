//! Calls that wait, are dropped, and share a commit.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use keylane_inbox::store::{EmbeddedStore, InboxStore, Settings, Settled};
use keylane_inbox::{Inbox, LetterKind, NewMessage};

async fn open(directory: &tempfile::TempDir, change: impl FnOnce(&mut Settings)) -> EmbeddedStore {
    let mut settings = Settings::default();
    change(&mut settings);
    EmbeddedStore::open(directory.path(), settings)
        .await
        .unwrap()
}

fn message(bytes: usize) -> NewMessage {
    NewMessage::new("key", vec![0; bytes])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_come_together_share_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, |_| {}).await;
    let calls = (0..500).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.accept(vec![message(10)]).await.unwrap() })
    });
    for call in Vec::from_iter(calls) {
        call.await.unwrap();
    }
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.waiting, 500);
    assert!(stats.commits < 100, "{} commits", stats.commits);
}

#[tokio::test]
async fn a_group_has_no_more_than_told() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, |settings| {
        settings.group_messages = 10;
        settings.linger = Duration::from_millis(20);
    })
    .await;
    let calls = (0..100).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.accept(vec![message(10)]).await.unwrap() })
    });
    for call in Vec::from_iter(calls) {
        call.await.unwrap();
    }
    let commits = store.stats().await.unwrap().commits;
    assert!((10..=30).contains(&commits), "{commits} commits");
}

fn letter(sequence: u64) -> Settled {
    Settled::DeadLetter {
        sequence,
        attempts: 1,
        kind: LetterKind::Failed,
        error: "no".into(),
    }
}

/// Calls keep their order within a commit.
#[tokio::test]
async fn calls_of_one_commit_are_done_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, |settings| {
        settings.linger = Duration::from_millis(100);
    })
    .await;
    store.accept(vec![message(10); 4]).await.unwrap();
    store.settle(vec![letter(1)]).await.unwrap();
    let before = store.stats().await.unwrap().commits;
    // It does not wait when it is said to be done, and then it waits again.
    let (done, redriven) =
        tokio::join!(store.settle(vec![Settled::Done(1)]), store.redrive(vec![1]));
    done.unwrap();
    assert_eq!(redriven.unwrap(), [1]);
    let (done, redriven) = tokio::join!(
        store.settle(vec![Settled::Done(2), letter(2), letter(3)]),
        store.redrive(vec![2, 3]),
    );
    done.unwrap();
    assert_eq!(redriven.unwrap(), [3]);
    assert_eq!(store.stats().await.unwrap().commits, before + 2);
    let waiting = store.scan(0, 9, usize::MAX).await.unwrap();
    let waiting: Vec<u64> = waiting.iter().map(|message| message.sequence).collect();
    assert_eq!(waiting, [1, 3, 4]);
    store.settle(vec![Settled::Done(1); 2]).await.unwrap();
    // The lowest is done already, and the others are not passed over for it.
    let done = [4, 3, 1].map(Settled::Done);
    store.settle(done.into()).await.unwrap();
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.waiting, stats.waiting_bytes), (0, 0));
}

/// What is done leaves, and what lies between stays, whether it lies near or far.
#[tokio::test]
async fn what_is_done_leaves_in_passes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, |_| {}).await;
    store.accept(vec![message(10); 1_000]).await.unwrap();
    let is_done = |n: &u64| n.is_multiple_of(3) || (200..400).contains(n) || *n == 999;
    let done = (1..=1_000)
        .rev()
        .filter(|n| is_done(n) && !(500..700).contains(n));
    let done: Vec<u64> = done.collect();
    store
        .settle(done.iter().copied().map(Settled::Done).collect())
        .await
        .unwrap();
    let waiting = store.scan(0, 1_000, usize::MAX).await.unwrap();
    let waiting: Vec<u64> = waiting.iter().map(|message| message.sequence).collect();
    let expected = (1..=1_000).filter(|n| !done.contains(n));
    assert_eq!(waiting, Vec::from_iter(expected));
    let bytes = store.stats().await.unwrap().waiting_bytes;
    store
        .settle(waiting.into_iter().map(Settled::Done).collect())
        .await
        .unwrap();
    assert!(bytes > 0 && store.stats().await.unwrap().waiting_bytes == 0);
}

#[tokio::test]
async fn a_call_larger_than_the_queue_and_the_group_goes_through() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, |settings| {
        settings.queue_bytes = 1;
        settings.group_bytes = 1;
        settings.group_messages = 1;
    })
    .await;
    let accepted = store.accept(vec![message(1 << 20); 3]).await.unwrap();
    assert_eq!(accepted.len(), 3);
    assert_eq!(store.scan(0, 10, usize::MAX).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_call_that_was_never_polled_stores_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, |_| {}).await;
    drop(store.accept(vec![message(1)]));
    store.accept(vec![message(2)]).await.unwrap();
    assert_eq!(store.stats().await.unwrap().waiting, 1);
}

#[tokio::test]
async fn a_call_that_is_dropped_on_its_way_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, |_| {}).await;
    {
        let mut call = pin!(store.accept(vec![message(1)]));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut cx).is_pending());
    }
    store.accept(vec![message(2)]).await.unwrap();
    assert_eq!(store.stats().await.unwrap().waiting, 2);
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_for_room_stores_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, |settings| {
        settings.queue_bytes = 1_024;
        settings.linger = Duration::from_millis(300);
    })
    .await;
    let first = tokio::spawn({
        let store = store.clone();
        async move { store.accept(vec![message(1)]).await.unwrap() }
    });
    tokio::task::yield_now().await;
    let waits = tokio::time::timeout(Duration::from_millis(50), store.accept(vec![message(2)]));
    assert!(waits.await.is_err(), "there is no room");
    first.await.unwrap();
    store.accept(vec![message(3)]).await.unwrap();
    assert_eq!(store.stats().await.unwrap().waiting, 2);
}

#[tokio::test]
async fn a_store_that_is_dropped_closes_itself() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, |_| {}).await;
    store.accept(vec![message(1)]).await.unwrap();
    drop(store);
    let store = loop {
        match EmbeddedStore::open(directory.path(), Settings::default()).await {
            Ok(store) => break store,
            Err(error) => assert!(error.to_string().contains("is already open"), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(store.stats().await.unwrap().waiting, 1);
}

#[tokio::test]
async fn an_inbox_gives_a_message_back() {
    let directory = tempfile::tempdir().unwrap();
    let inbox = Inbox::builder(directory.path())
        .payload_bytes(100)
        .open()
        .await
        .unwrap();
    let error = inbox
        .accept_message(message(101).id("x"))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the payload of message 0 has 101 bytes")
    );
    assert!(error.into_inner() == message(101).id("x"));
    inbox.close().await.unwrap();
    let error = inbox.accept("key", "payload").await.unwrap_err();
    assert_eq!(error.to_string(), "the inbox is closed");
    assert!(error.into_inner() == NewMessage::new("key", "payload"));
}
