//! One process at a time, once.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use keylane_inbox::Inbox;
use keylane_inbox::error::OpenError;

async fn is_locked(directory: &Path) -> bool {
    match Inbox::open(directory).await {
        Ok(inbox) => {
            inbox.close().await.unwrap();
            false
        }
        Err(OpenError::Locked { directory: named }) => {
            assert_eq!(named, directory);
            true
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_second_time_in_this_process() {
    let directory = tempfile::tempdir().unwrap();
    let inbox = Inbox::open(directory.path()).await.unwrap();
    for _ in 0..3 {
        assert!(is_locked(directory.path()).await);
    }
    inbox.accept("key", "payload").await.unwrap();
    inbox.close().await.unwrap();
    // At once: a task that has closed it may open it.
    assert!(!is_locked(directory.path()).await);
}

#[tokio::test]
async fn many_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let opens = (0..8).map(|_| tokio::spawn(Inbox::open(directory.path().to_owned())));
    let mut opened = Vec::new();
    for open in Vec::from_iter(opens) {
        match open.await.unwrap() {
            Ok(inbox) => opened.push(inbox),
            Err(error) => assert!(matches!(error, OpenError::Locked { .. }), "{error}"),
        }
    }
    assert_eq!(opened.len(), 1);
}

/// A process that replaces another one waits until that one has stopped.
#[tokio::test]
async fn an_inbox_waits_as_long_as_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let old = Inbox::open(directory.path()).await.unwrap();
    let wait = |time| Inbox::builder(directory.path()).wait_for_lock(time).open();
    let new = tokio::spawn(wait(Duration::from_secs(120)));
    // Meanwhile an open that waits for a shorter time is refused.
    for time in [Duration::ZERO, Duration::from_millis(300)] {
        let began = Instant::now();
        let refused = wait(time).await.expect_err("it is open");
        assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
        assert!(began.elapsed() >= time);
    }
    assert!(!new.is_finished());
    old.close().await.unwrap();
    let new = new.await.unwrap().expect("the old one is closed");
    new.close().await.unwrap();
    let refused = wait(Duration::from_secs(3_601)).await;
    let refused = refused.expect_err("it is too long");
    assert!(matches!(refused, OpenError::TooLarge { .. }), "{refused}");
}

/// The lock comes before anything else: while another process makes the inbox, nothing is written.
#[tokio::test]
async fn while_it_is_being_made() {
    let directory = tempfile::tempdir().unwrap();
    let lock = File::create(directory.path().join("lock")).unwrap();
    lock.try_lock().unwrap();
    assert!(is_locked(directory.path()).await);
    let files = std::fs::read_dir(directory.path()).unwrap();
    let names = files.map(|file| file.unwrap().file_name());
    assert_eq!(Vec::from_iter(names), ["lock"]);
    lock.unlock().unwrap();
    assert!(!is_locked(directory.path()).await);
}

/// Not a test of its own: the other process of the test below.
#[tokio::test]
async fn other_process() {
    let Some(directory) = std::env::var_os("KEYLANE_INBOX_OTHER_PROCESS") else {
        return;
    };
    let inbox = Inbox::open(Path::new(&directory)).await.unwrap();
    inbox.accept("key", "from the other process").await.unwrap();
    std::fs::write(Path::new(&directory).with_extension("ready"), "").unwrap();
    // Until it is killed.
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn another_process() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("inbox");
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["locked::other_process", "--exact"])
        .env("KEYLANE_INBOX_OTHER_PROCESS", &directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !directory.with_extension("ready").exists() {
        assert!(Instant::now() < until, "the other process did not come up");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(is_locked(&directory).await);
    // It dies in the middle: the lock goes with it, and what it was told is there.
    other.kill().unwrap();
    other.wait().unwrap();
    let inbox = Inbox::open(&directory).await.unwrap();
    let found = inbox.store().scan(0, 10, usize::MAX).await.unwrap();
    assert_eq!(found[0].payload, "from the other process");
}
