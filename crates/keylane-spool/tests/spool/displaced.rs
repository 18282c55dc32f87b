//! Directories that are taken away from a spool that is open, or copied back to an earlier state.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_inbox::Inbox;
use keylane_spool::{
    DiskErrorKind, Displacement, PushError, SinkError, Spool, SpoolReport, Spooled,
};
use keylane_testkit::scenario::until;

/// What a sink has been written, and whether it fails.
#[derive(Clone, Default)]
struct Sink {
    is_down: Arc<Mutex<bool>>,
    written: Arc<Mutex<Vec<String>>>,
}

impl Sink {
    fn down() -> Self {
        let sink = Self::default();
        *sink.is_down.lock().unwrap() = true;
        sink
    }

    fn written(&self) -> Vec<String> {
        self.written.lock().unwrap().clone()
    }

    async fn spool(&self, directory: &Path) -> Spool {
        let sink = self.clone();
        let spool = Spool::builder(move |batch: Vec<Spooled>| {
            let sink = sink.clone();
            async move {
                if *sink.is_down.lock().unwrap() {
                    return Err(SinkError::failed("down"));
                }
                let text = |message: Spooled| String::from_utf8_lossy(&message.payload).into();
                sink.written
                    .lock()
                    .unwrap()
                    .extend(batch.into_iter().map(text));
                Ok(())
            }
        });
        let backoff = Duration::from_millis(5);
        let spool = spool
            .dir(directory)
            .memory(1 << 20)
            .backoff(backoff, backoff);
        spool.open().await.unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::copy(from.join("spool.redb"), to.join("spool.redb")).unwrap();
}

async fn refuses(spool: &Spool, expected: Displacement) {
    match spool.push("key", "refused").await {
        Err(PushError::Disk(message, error)) => {
            assert_eq!(error.kind(), DiskErrorKind::Displaced(expected), "{error}");
            assert!(error.to_string().contains("spool.redb"), "{error}");
            assert_eq!(message.payload, "refused", "it comes back");
        }
        other => panic!("{other:?}"),
    }
}

/// Waits until the spool reports that its directory was taken away, or that nothing is wrong.
#[track_caller]
fn until_displaced(spool: &Spool, is_displaced: bool) -> impl Future<Output = ()> {
    until(
        move || match spool.stats().disk.map(|disk| disk.error.kind()) {
            Some(DiskErrorKind::Displaced(_)) => is_displaced,
            Some(_) => false,
            None => !is_displaced,
        },
    )
}

#[track_caller]
fn says(report: &SpoolReport, expected: Displacement) {
    let error = report.displaced.as_ref().unwrap();
    assert_eq!(error.kind(), DiskErrorKind::Displaced(expected));
    assert!(report.to_string().contains("spool.redb"), "{report}");
}

/// What was accepted is in the report, and not left on a disk where no opening finds it.
#[tokio::test]
async fn removed() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("spool");
    let spool = Sink::down().spool(&directory).await;
    for n in 0..10 {
        spool.push("key", n.to_string()).await.unwrap();
    }
    fs::remove_dir_all(&directory).unwrap();
    refuses(&spool, Displacement::Removed).await;
    let report = spool.close().within(Duration::ZERO).await;
    says(&report, Displacement::Removed);
    let payloads = report
        .returned
        .iter()
        .map(|message| message.payload.clone());
    let expected = (0..10).map(|n| n.to_string());
    assert!(payloads.eq(expected), "{report}");
    assert_eq!((report.left_on_disk, report.left_in_memory), (0, 10));
    assert!(!directory.exists(), "it is not made again");
}

#[tokio::test]
async fn removed_while_it_is_idle_and_before_it_is_closed() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("spool");
    let spool = Sink::default().spool(&directory).await;
    fs::remove_dir_all(&directory).unwrap();
    until_displaced(&spool, true).await;
    says(&spool.close().await, Displacement::Removed);

    let spool = Sink::down().spool(&directory).await;
    spool.push("key", "first").await.unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let report = spool.close().within(Duration::ZERO).await;
    says(&report, Displacement::Removed);
    assert_eq!(report.returned.len(), 1);
}

/// Also what is on the disk only: the file is still there, for who has it open.
#[tokio::test]
async fn what_was_removed_is_delivered() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("spool");
    let sink = Sink::down();
    let spool = sink.spool(&directory).await;
    let payload = "x".repeat(100_000);
    const MESSAGES: usize = 200;
    for _ in 0..MESSAGES {
        spool.push("key", payload.clone()).await.unwrap();
    }
    assert!(spool.stats().on_disk_only > 0, "{:?}", spool.stats());
    fs::remove_dir_all(&directory).unwrap();
    refuses(&spool, Displacement::Removed).await;
    *sink.is_down.lock().unwrap() = false;
    let report = spool.close().within(Duration::from_secs(120)).await;
    assert_eq!(report.delivered, MESSAGES as u64, "{report}");
    assert_eq!(sink.written().len(), MESSAGES);
}

#[tokio::test]
async fn renamed_and_put_back() {
    let parent = tempfile::tempdir().unwrap();
    let (directory, away) = (parent.path().join("spool"), parent.path().join("away"));
    let sink = Sink::down();
    let spool = sink.spool(&directory).await;
    spool.push("key", "first").await.unwrap();
    fs::rename(&directory, &away).unwrap();
    refuses(&spool, Displacement::Moved).await;
    fs::rename(&away, &directory).unwrap();
    until_displaced(&spool, false).await;
    spool.push("key", "second").await.unwrap();
    let report = spool.close().within(Duration::ZERO).await;
    assert_eq!((report.displaced, report.left_on_disk), (None, 2));
    *sink.is_down.lock().unwrap() = false;
    let report = sink.spool(&directory).await.close().await;
    assert_eq!(report.delivered, 2, "{report}");
    assert_eq!(sink.written(), ["first", "second"]);
}

#[tokio::test]
async fn a_copy_is_put_in_its_place() {
    let parent = tempfile::tempdir().unwrap();
    let (directory, other) = (parent.path().join("spool"), parent.path().join("other"));
    let spool = Sink::down().spool(&directory).await;
    spool.push("key", "first").await.unwrap();
    copy(&directory, &other);
    fs::remove_dir_all(&directory).unwrap();
    fs::rename(&other, &directory).unwrap();
    refuses(&spool, Displacement::Replaced).await;
    says(
        &spool.close().within(Duration::ZERO).await,
        Displacement::Replaced,
    );
    let sink = Sink::default();
    sink.spool(&directory).await.close().await;
    assert_eq!(sink.written(), ["first"]);
}

/// What was restored is not written over.
#[tokio::test]
async fn a_backup_is_copied_over_it() {
    let parent = tempfile::tempdir().unwrap();
    let (directory, backup) = (parent.path().join("spool"), parent.path().join("backup"));
    let spool = Sink::down().spool(&directory).await;
    spool.push("key", "first").await.unwrap();
    spool.close().within(Duration::ZERO).await;
    copy(&directory, &backup);
    for is_idle in [false, true] {
        let spool = Sink::down().spool(&directory).await;
        for _ in 0..50 {
            spool.push("key", "x".repeat(5_000)).await.unwrap();
        }
        copy(&backup, &directory);
        match is_idle {
            true => until_displaced(&spool, true).await,
            false => refuses(&spool, Displacement::Overwritten).await,
        }
        let report = spool.close().within(Duration::ZERO).await;
        says(&report, Displacement::Overwritten);
        let read = |directory: &Path| fs::read(directory.join("spool.redb")).unwrap();
        assert!(read(&directory) == read(&backup));
    }
}

/// A backup goes on from the sequences that it had. The inbox absorbs what it knows by its id, and
/// must not take another message for it.
#[tokio::test]
async fn a_restored_directory_gives_no_id_again() {
    let parent = tempfile::tempdir().unwrap();
    let (directory, backup) = (parent.path().join("spool"), parent.path().join("backup"));
    let inbox = Inbox::open(parent.path().join("inbox")).await.unwrap();
    let deliver = async |payload: &'static str| {
        let spool = Spool::builder(inbox.clone()).dir(&directory);
        let spool = spool.open().await.unwrap();
        for n in 0..5 {
            spool.push("key", format!("{payload} {n}")).await.unwrap();
        }
        assert_eq!(spool.close().await.delivered, 5);
    };
    deliver("before").await;
    copy(&directory, &backup);
    deliver("after").await;
    fs::remove_dir_all(&directory).unwrap();
    copy(&backup, &directory);
    deliver("restored").await;
    let found = inbox.store().scan(0, 100, usize::MAX).await.unwrap();
    let payloads = found
        .iter()
        .map(|message| String::from_utf8_lossy(&message.payload));
    let expected = ["before", "after", "restored"]
        .map(|payload| (0..5).map(move |n| format!("{payload} {n}")));
    assert_eq!(
        Vec::from_iter(payloads),
        Vec::from_iter(expected.into_iter().flatten())
    );
}
