//! What version 1 wrote is read; what a newer version wrote is refused.
//!
//! `version-1/` was written by `write_the_fixture`, once, and is never written again: a change of
//! the format gets a directory of its own.

use std::fs;
use std::path::{Path, PathBuf};

use keylane_inbox::error::OpenError;
use keylane_inbox::store::Settled;
use keylane_inbox::{Inbox, LetterKind, NewMessage};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/version-1")
}

fn messages() -> Vec<NewMessage> {
    vec![
        NewMessage::new("user-7", "the first order"),
        NewMessage::new("", ""),
        NewMessage::new(vec![0, 0xff], vec![0; 3_000])
            .id("order-1")
            .version(3),
        NewMessage::new("user-7", "done")
            .header("type", "json")
            .header("trace", vec![1]),
        NewMessage::new("user-8", "a dead letter").version(1),
    ]
}

async fn write(directory: &Path) {
    let inbox = Inbox::open(directory).await.unwrap();
    inbox.accept_many(messages()).await.unwrap();
    let dead = Settled::DeadLetter {
        sequence: 5,
        attempts: 4,
        kind: LetterKind::Crashed,
        error: "the process died".into(),
    };
    inbox
        .store()
        .settle(vec![Settled::Done(4), dead])
        .await
        .unwrap();
    inbox.store().record_version(b"user-8", 1).await.unwrap();
    inbox.close().await.unwrap();
    let marks = keylane_inbox::attempts::Marks::open(&directory.join("starts"), 0).unwrap();
    marks.start(0, 1, 2).unwrap();
}

/// Run once for each format:
/// `KEYLANE_INBOX_WRITE_FIXTURE=1 cargo test -p keylane-inbox --test files`.
#[tokio::test]
async fn write_the_fixture() {
    if std::env::var_os("KEYLANE_INBOX_WRITE_FIXTURE").is_some() {
        let directory = fixture();
        assert!(!directory.exists(), "it is never written again");
        write(&directory).await;
        // Sparse, and all of it but the first mark empty.
        let starts = fs::OpenOptions::new()
            .write(true)
            .open(directory.join("starts"));
        starts.unwrap().set_len(4_096 + 64).unwrap();
        fs::remove_file(directory.join("lock")).unwrap();
    }
}

fn copy(directory: &Path) {
    for name in ["keylane-inbox", "messages.redb", "starts"] {
        fs::copy(fixture().join(name), directory.join(name)).unwrap();
    }
}

async fn check(directory: &Path) {
    let inbox = Inbox::open(directory).await.unwrap();
    let store = inbox.store();
    let found = store.scan(0, usize::MAX, usize::MAX).await.unwrap();
    let sequences = found.iter().map(|message| message.sequence);
    assert_eq!(Vec::from_iter(sequences), [1, 2, 3]);
    let found = found.into_iter().map(|message| message.into_new());
    assert!(found.eq(messages().into_iter().take(3)));
    let letter = store.letter(5).await.unwrap().unwrap();
    assert_eq!((letter.attempts, letter.kind), (4, LetterKind::Crashed));
    assert_eq!(letter.error, "the process died");
    assert!(letter.message.into_new() == messages()[4]);
    assert_eq!(store.version(b"user-8").await.unwrap(), Some(1));
    assert_eq!(store.tail().borrow().sequence, 5);
    assert_eq!(
        store.accept(vec![NewMessage::new("a", "")]).await.unwrap()[0].sequence(),
        6
    );
    inbox.close().await.unwrap();
    let marks = keylane_inbox::attempts::Marks::open(&directory.join("starts"), 0).unwrap();
    assert_eq!(marks.recover(), [(1, 2)].into());
}

#[tokio::test]
async fn what_version_1_wrote_is_read() {
    let directory = tempfile::tempdir().unwrap();
    copy(directory.path());
    check(directory.path()).await;
}

#[tokio::test]
async fn what_is_written_now_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path()).await;
    check(directory.path()).await;
}

#[tokio::test]
async fn a_newer_marker_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    copy(directory.path());
    fs::write(directory.path().join("keylane-inbox"), "keylane-inbox 2\n").unwrap();
    let error = Inbox::open(directory.path()).await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("use a newer version of it"),
        "{error}"
    );
}

#[tokio::test]
async fn a_newer_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    copy(directory.path());
    let path = directory.path().join("messages.redb");
    let database = redb::Database::open(&path).unwrap();
    let write = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    write.open_table(meta).unwrap().insert("format", 2).unwrap();
    write.commit().unwrap();
    drop(database);
    let error = Inbox::open(directory.path()).await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("messages.redb"), "{error}");
}
