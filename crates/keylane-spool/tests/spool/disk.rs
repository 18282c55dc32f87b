//! What can be wrong with the directory.

use std::fs;
use std::path::Path;
use std::time::Duration;

use keylane_spool::{AtLimit, DiskError, DiskErrorKind, OpenError, Persist, PushError, Spool};
use proptest::prelude::*;

use crate::support::{Act, Scripted, check_sums, eventually};

const FILE: &str = "spool.redb";

async fn open(dir: &Path) -> Result<Spool, OpenError> {
    Spool::builder(Scripted::down()).dir(dir).open().await
}

async fn error_of(dir: &Path) -> DiskError {
    match open(dir).await {
        Err(OpenError::Disk(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// A directory with this many messages in it.
async fn filled(messages: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path()).await.unwrap();
    let accepted: Vec<_> = (0..messages)
        .map(|n| {
            spool
                .try_push(format!("key-{}", n % 7), n.to_string())
                .unwrap()
        })
        .collect();
    for accepted in accepted {
        accepted.stored().await.unwrap();
    }
    let report = spool.close().within(Duration::ZERO).await;
    assert_eq!(report.left_on_disk as usize, messages);
    dir
}

#[tokio::test]
async fn a_second_spool_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path()).await.unwrap();
    let error = error_of(dir.path()).await;
    assert_eq!(error.kind(), DiskErrorKind::Locked);
    assert_eq!(error.path(), dir.path().join(FILE));
    assert!(error.is_retryable());
    assert!(
        error
            .to_string()
            .contains("is open in another spool or process"),
        "{error}"
    );
    spool.close().await;
    open(dir.path()).await.unwrap();
}

#[tokio::test]
async fn a_file_instead_of_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "text").unwrap();
    let error = error_of(&path).await;
    assert_eq!(error.kind(), DiskErrorKind::NotADirectory);
    let error = error_of(&path.join("below")).await;
    assert_eq!(error.kind(), DiskErrorKind::NotADirectory);
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

#[tokio::test]
async fn a_foreign_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    for content in ["text".to_owned(), "text".repeat(100_000)] {
        fs::write(&path, &content).unwrap();
        let error = error_of(dir.path()).await;
        assert_eq!(error.kind(), DiskErrorKind::Foreign, "{error}");
        assert!(!error.is_retryable());
        assert!(
            error
                .to_string()
                .contains("spool.redb is not the file of a spool"),
            "{error}"
        );
        assert_eq!(
            fs::read(&path).unwrap(),
            content.as_bytes(),
            "it is left as it was"
        );
    }
    fs::remove_file(&path).unwrap();
    let other = redb::Database::create(&path).unwrap();
    let transaction = other.begin_write().unwrap();
    let table = redb::TableDefinition::<u64, u64>::new("other");
    transaction.open_table(table).unwrap().insert(1, 1).unwrap();
    transaction.commit().unwrap();
    drop(other);
    assert_eq!(error_of(dir.path()).await.kind(), DiskErrorKind::Foreign);
}

#[tokio::test]
async fn another_version() {
    let dir = filled(1).await;
    let path = dir.path().join(FILE);
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction
        .open_table(meta)
        .unwrap()
        .insert("format", 2)
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = error_of(dir.path()).await;
    assert_eq!(error.kind(), DiskErrorKind::OtherVersion);
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[tokio::test]
async fn an_empty_file_is_not_an_empty_spool() {
    let dir = filled(10).await;
    fs::write(dir.path().join(FILE), "").unwrap();
    let error = error_of(dir.path()).await;
    assert_eq!(error.kind(), DiskErrorKind::Damaged);
    assert!(error.to_string().contains("restore a copy"), "{error}");
}

/// A new directory whose making was interrupted.
#[tokio::test]
async fn an_unfinished_file_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("spool.redb.new"), "half").unwrap();
    let spool = open(dir.path()).await.unwrap();
    spool.push("a", "0").await.unwrap();
    assert!(!dir.path().join("spool.redb.new").exists());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: keylane_testkit::scenario::cases(60), ..ProptestConfig::default() })]

    /// A typed error, or everything is there.
    #[test]
    fn a_file_that_is_cut_or_changed(
        at in 0.0..1.0_f64,
        flip in prop::option::of(1_u8..=255),
        len in 1_usize..64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = filled(300).await;
            let path = dir.path().join(FILE);
            let mut bytes = fs::read(&path).unwrap();
            let at = (bytes.len() as f64 * at) as usize;
            match flip {
                None => bytes.truncate(at),
                Some(flip) => bytes.iter_mut().skip(at).take(len).for_each(|byte| *byte ^= flip),
            }
            fs::write(&path, &bytes).unwrap();
            let sink = Scripted::new([]);
            match Spool::builder(sink.clone()).dir(dir.path()).open().await {
                Ok(spool) => {
                    let report = spool.close().within(Duration::from_secs(5)).await;
                    assert_eq!(report.delivered, 300);
                }
                Err(OpenError::Disk(error)) => {
                    use DiskErrorKind::{Damaged, Foreign, OtherVersion};
                    let expected = [Damaged, Foreign, OtherVersion];
                    assert!(expected.contains(&error.kind()), "{error}");
                    assert_eq!(error.path(), path);
                }
                Err(other) => panic!("{other:?}"),
            }
        });
    }
}

/// At constant depth, and after the disk was full of messages of all sizes.
#[tokio::test]
async fn the_file_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let disk = 4 << 20;
    let sink = Scripted::down();
    let spool = Spool::builder(sink.clone())
        .dir(dir.path())
        .persist(Persist::EveryMessages(1_000))
        .disk(disk)
        .memory(1 << 20)
        .at_limit(AtLimit::DropOldest)
        .open()
        .await
        .unwrap();
    let file = dir.path().join(FILE);
    let mut largest = 0;
    for n in 0..30_000_usize {
        let len = [10, 100, 1_000, 5_000][n % 4];
        spool
            .push(format!("key-{}", n % 50), vec![0; len])
            .await
            .unwrap();
        if n % 100 == 0 {
            largest = largest.max(fs::metadata(&file).unwrap().len());
        }
    }
    assert!(spool.stats().dropped > 10_000);
    println!("at most {largest} bytes for {disk}");
    assert!(
        largest <= 3 * disk + (4 << 20),
        "{largest} bytes for {disk}"
    );
    sink.then(Act::Write);
    check_sums(&spool.close().await);
}

/// A disk that is full is a typed error with the message; later everything goes on. On a real file
/// system, of a few mebibytes.
#[test]
fn a_full_disk() {
    crate::tmpfs::inside("disk::without_room");
}

#[tokio::test]
async fn without_room() {
    let Some(mount) = crate::tmpfs::mount() else {
        return;
    };
    let sink = Scripted::down();
    let spool = Spool::builder(sink.clone())
        .dir(mount.join("spool"))
        .open()
        .await
        .unwrap();
    let mut accepted = 0;
    let refused = loop {
        match spool
            .push("a", accepted.to_string() + &" ".repeat(20_000))
            .await
        {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 1_000);
    };
    let PushError::Disk(message, error) = refused else {
        panic!("{refused:?}")
    };
    assert!(message.payload.starts_with(accepted.to_string().as_bytes()));
    assert_eq!(error.kind(), DiskErrorKind::Full, "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert_eq!(
        spool.stats().disk.unwrap().error.kind(),
        DiskErrorKind::Full
    );
    assert!(accepted > 10);

    // The sink works again, what is delivered makes room, and what was accepted was not lost.
    sink.then(Act::Write);
    eventually(|| spool.stats().delivered == accepted).await;
    let grow = std::process::Command::new("mount")
        .args(["-o", "remount,size=30m"])
        .arg(&mount)
        .status();
    assert!(grow.unwrap().success());
    let mut tries = 0;
    while spool.push("a", "more").await.is_err() {
        tries += 1;
        assert!(tries < 20);
    }
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!(report.delivered, accepted + 1);
    assert!(sink.written().last().unwrap() == "a=more");
    let again = Spool::builder(sink.clone())
        .dir(mount.join("spool"))
        .open()
        .await
        .unwrap();
    assert_eq!(again.stats().recovered, 0);
    again.close().await;
}
