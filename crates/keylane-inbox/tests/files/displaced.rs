//! Files that are taken away from an inbox that is open: what it stores then, no later process finds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::error::{AcceptError, Displacement, StoreError};
use keylane_inbox::{Inbox, SyncMode};

struct Files {
    parent: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        Self { parent }
    }

    fn inbox(&self) -> PathBuf {
        self.other("orders")
    }

    fn other(&self, name: &str) -> PathBuf {
        self.parent.path().join(name)
    }
}

/// An inbox with one message.
async fn filled(directory: &Path) -> Inbox {
    let inbox = Inbox::open(directory).await.unwrap();
    inbox.accept("key", "first").await.unwrap();
    inbox
}

/// The files of a directory, as they are.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

async fn payloads(inbox: &Inbox) -> Vec<String> {
    let found = inbox.store().scan(0, usize::MAX, usize::MAX).await.unwrap();
    let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
    found.iter().map(|message| text(&message.payload)).collect()
}

async fn stored(directory: &Path) -> Vec<String> {
    let inbox = Inbox::open(directory).await.unwrap();
    let stored = payloads(&inbox).await;
    inbox.close().await.unwrap();
    stored
}

#[track_caller]
fn is_displaced(error: &StoreError, directory: &Path, expected: Displacement) {
    let StoreError::Displaced { place, how } = error else {
        panic!("{error:?}");
    };
    assert_eq!(*how, expected, "{error}");
    assert!(Path::new(place).starts_with(directory), "{place}");
    assert!(error.may_be_stored());
    let text = error.to_string();
    assert!(
        text.contains(place) && text.contains("this process"),
        "{text}"
    );
}

/// The next call is refused, without a wait for the look that comes once a second.
async fn refuses(inbox: &Inbox, directory: &Path, expected: Displacement) {
    match inbox.accept("key", "refused").await {
        Err(AcceptError::Store(error, message)) => {
            is_displaced(&error, directory, expected);
            assert_eq!(message.payload, "refused", "it comes back");
        }
        other => panic!("{other:?}"),
    }
    let error = inbox.stats().await.unwrap_err();
    is_displaced(&error, directory, expected);
}

/// Without a call that writes, it is noticed as well.
async fn notices(inbox: &Inbox, directory: &Path, expected: Displacement) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match inbox.stats().await {
            Ok(_) => assert!(Instant::now() < until, "it was not noticed"),
            Err(error) => return is_displaced(&error, directory, expected),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The same files are back: it goes on by itself.
async fn goes_on(inbox: &Inbox) {
    let until = Instant::now() + Duration::from_secs(120);
    while let Err(error) = inbox.stats().await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn removed() {
    let files = Files::new();
    let inbox = filled(&files.inbox()).await;
    fs::remove_dir_all(files.inbox()).unwrap();
    refuses(&inbox, &files.inbox(), Displacement::Removed).await;
    let error = inbox.close().await.unwrap_err();
    is_displaced(&error, &files.inbox(), Displacement::Removed);
    assert!(!files.inbox().exists(), "it is not made again");
}

#[tokio::test]
async fn removed_while_it_is_idle() {
    let files = Files::new();
    let inbox = filled(&files.inbox()).await;
    fs::remove_dir_all(files.inbox()).unwrap();
    notices(&inbox, &files.inbox(), Displacement::Removed).await;
}

/// With weak answers as well, and each of the files counts.
#[tokio::test]
async fn one_file_of_it_is_removed() {
    for name in ["lock", "messages.redb", "starts"] {
        let files = Files::new();
        let builder = Inbox::builder(files.inbox());
        let builder = builder.sync(SyncMode::LosesUpTo(Duration::from_millis(5)));
        let inbox = builder.open().await.unwrap();
        inbox.accept("key", "first").await.unwrap();
        let path = files.inbox().join(name);
        fs::remove_file(&path).unwrap();
        refuses(&inbox, &path, Displacement::Removed).await;
    }
}

/// The look before the close, however soon that comes.
#[tokio::test]
async fn removed_before_it_is_closed() {
    let files = Files::new();
    let inbox = filled(&files.inbox()).await;
    fs::remove_dir_all(files.inbox()).unwrap();
    let error = inbox.close().await.unwrap_err();
    is_displaced(&error, &files.inbox(), Displacement::Removed);
}

#[tokio::test]
async fn renamed_and_put_back() {
    let files = Files::new();
    for sync in [
        SyncMode::LosesNothing,
        SyncMode::LosesUpTo(Duration::from_secs(60)),
    ] {
        let builder = Inbox::builder(files.inbox()).sync(sync);
        let inbox = builder.open().await.unwrap();
        inbox.accept("key", "first").await.unwrap();
        fs::rename(files.inbox(), files.other("away")).unwrap();
        refuses(&inbox, &files.inbox(), Displacement::Moved).await;
        assert!(!files.inbox().exists());
        fs::rename(files.other("away"), files.inbox()).unwrap();
        goes_on(&inbox).await;
        inbox.accept("key", "second").await.unwrap();
        let found = payloads(&inbox).await;
        // What was refused may be there, as its error has said.
        let sure = found.iter().filter(|payload| *payload != "refused");
        assert_eq!(Vec::from_iter(sure), ["first", "second"]);
        inbox.close().await.unwrap();
        assert_eq!(stored(&files.inbox()).await, found);
        fs::remove_dir_all(files.inbox()).unwrap();
    }
}

/// A copy has the same content; and a process that opens it has it for itself.
#[tokio::test]
async fn a_copy_is_put_in_its_place() {
    let files = Files::new();
    let inbox = filled(&files.inbox()).await;
    copy(&files.inbox(), &files.other("copy"));
    fs::rename(files.inbox(), files.other("away")).unwrap();
    fs::rename(files.other("copy"), files.inbox()).unwrap();
    refuses(&inbox, &files.inbox(), Displacement::Replaced).await;
    let second = Inbox::open(files.inbox()).await.unwrap();
    second.accept("key", "of the copy").await.unwrap();
    refuses(&inbox, &files.inbox(), Displacement::Replaced).await;
    let error = inbox.close().await.unwrap_err();
    is_displaced(&error, &files.inbox(), Displacement::Replaced);
    second.close().await.unwrap();
    assert_eq!(stored(&files.inbox()).await, ["first", "of the copy"]);
}

#[tokio::test]
async fn removed_and_made_again() {
    let files = Files::new();
    let inbox = filled(&files.inbox()).await;
    fs::remove_dir_all(files.inbox()).unwrap();
    let second = filled(&files.inbox()).await;
    notices(&inbox, &files.inbox(), Displacement::Replaced).await;
    second.accept("key", "second").await.unwrap();
    second.close().await.unwrap();
    drop(inbox);
    assert_eq!(stored(&files.inbox()).await, ["first", "second"]);
}

/// `cp backup/* orders/` keeps the names and the inodes. What was restored is not written over.
#[tokio::test]
async fn a_backup_is_copied_over_it() {
    for is_idle in [false, true] {
        let files = Files::new();
        filled(&files.inbox()).await.close().await.unwrap();
        copy(&files.inbox(), &files.other("backup"));
        let inbox = Inbox::open(files.inbox()).await.unwrap();
        for _ in 0..100 {
            inbox.accept("key", vec![7; 5_000]).await.unwrap();
        }
        copy(&files.other("backup"), &files.inbox());
        match is_idle {
            false => refuses(&inbox, &files.inbox(), Displacement::Overwritten).await,
            true => notices(&inbox, &files.inbox(), Displacement::Overwritten).await,
        }
        let error = inbox.close().await.unwrap_err();
        is_displaced(&error, &files.inbox(), Displacement::Overwritten);
        let read = |directory: PathBuf| fs::read(directory.join("messages.redb")).unwrap();
        assert!(read(files.inbox()) == read(files.other("backup")));
        assert_eq!(stored(&files.inbox()).await, ["first"]);
    }
}

/// Before it is closed as well: closing writes.
#[tokio::test]
async fn a_backup_is_copied_over_it_before_it_is_closed() {
    let files = Files::new();
    filled(&files.inbox()).await.close().await.unwrap();
    copy(&files.inbox(), &files.other("backup"));
    let inbox = Inbox::open(files.inbox()).await.unwrap();
    inbox.accept("key", "second").await.unwrap();
    copy(&files.other("backup"), &files.inbox());
    let error = inbox.close().await.unwrap_err();
    is_displaced(&error, &files.inbox(), Displacement::Overwritten);
    assert_eq!(stored(&files.inbox()).await, ["first"]);
}

/// The dispatcher hears of it from its source, and goes on when the files are back, in order.
#[tokio::test]
async fn renamed_while_it_is_consumed() {
    const MESSAGES: usize = 60;
    let files = Files::new();
    let inbox = Inbox::open(files.inbox()).await.unwrap();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&handled);
    let orders = Dispatcher::builder(|order: &RawMessage| order.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(move |order: RawMessage| {
            let log = Arc::clone(&log);
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                log.lock().unwrap().push(order.payload[0]);
                Ok::<_, std::io::Error>(())
            }
        })
        .unwrap();
    let intake = orders.consume(inbox.source()).unwrap();
    for n in 0..MESSAGES {
        inbox.accept("key", vec![n as u8]).await.unwrap();
    }
    fs::rename(files.inbox(), files.other("away")).unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let error = intake.stats().last_error.map(|error| error.to_string());
        if error.is_some_and(|error| error.contains("moved away")) {
            break;
        }
        assert!(Instant::now() < until, "{:?}", intake.stats());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fs::rename(files.other("away"), files.inbox()).unwrap();
    goes_on(&inbox).await;
    while inbox.stats().await.unwrap().waiting > 0 {
        assert!(Instant::now() < until, "{:?}", intake.stats());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    intake.stop().await;
    inbox.close().await.unwrap();
    // What was done and could not be confirmed may come again; nothing is skipped.
    let mut first_times = handled.lock().unwrap().clone();
    let mut seen = std::collections::HashSet::new();
    first_times.retain(|n| seen.insert(*n));
    assert_eq!(first_times, Vec::from_iter(0..MESSAGES as u8));
}
