//! A real file system that is full, or may not be written: a small one in memory, mounted for one
//! process that sees it alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use keylane_inbox::error::{AcceptError, OpenError, StoreError};
use keylane_inbox::{Inbox, NewMessage};
use keylane_testkit::scenario::until;

use crate::tmpfs::{inside, mount};

/// Takes room, all of it or so many bytes.
fn fill(path: &Path, bytes: usize) {
    let mut file = fs::File::create(path).unwrap();
    let mut left = bytes;
    while left > 0 {
        match std::io::Write::write(&mut file, &[0; 4_096][..left.min(4_096)]) {
            Ok(written) => left -= written,
            Err(_) => break,
        }
    }
}

#[test]
fn it_goes_on_when_there_is_room_again() {
    inside("full::goes_on");
}

#[test]
fn an_inbox_that_had_no_room_is_opened_again() {
    inside("full::opened_again");
}

#[test]
fn no_room_for_an_inbox() {
    inside("full::no_room");
}

#[test]
fn a_file_system_that_may_not_be_written() {
    inside("full::read_only");
}

#[tokio::test]
async fn goes_on() {
    let Some(mount) = mount() else { return };
    let (directory, ballast) = (mount.join("inbox"), mount.join("ballast"));
    fill(&ballast, 1 << 20);
    let inbox = Inbox::open(&directory).await.unwrap();
    let mut confirmed = BTreeSet::new();
    let mut n = 0_u64;
    let mut message = || {
        n += 1;
        NewMessage::new("key", vec![7; 20_000]).id(n.to_string())
    };
    let refused = loop {
        match inbox.accept_message(message()).await {
            Ok(accepted) => confirmed.insert(accepted.sequence()),
            Err(error) => break error,
        };
    };
    assert!(confirmed.len() > 10, "{}", confirmed.len());
    let text = refused.to_string();
    assert!(
        text.contains("messages.redb") && text.contains("No space left"),
        "{text}"
    );
    // As long as there is no room: a typed error, or none.
    for _ in 0..20 {
        match inbox.accept_message(message()).await {
            Ok(accepted) => drop(confirmed.insert(accepted.sequence())),
            Err(AcceptError::Store(error, _)) => assert!(
                matches!(
                    error,
                    StoreError::NotCommitted { no_space: true, .. }
                        | StoreError::Unavailable { .. }
                ),
                "{error:?}"
            ),
            Err(error) => panic!("{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    fs::remove_file(&ballast).unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    let mut message = refused.into_inner();
    loop {
        match inbox.accept_message(message).await {
            Ok(accepted) => {
                confirmed.insert(accepted.sequence());
                break;
            }
            Err(error) => {
                assert!(Instant::now() < until, "{error}");
                message = error.into_inner();
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    inbox.close().await.unwrap();
    let inbox = Inbox::open(&directory).await.unwrap();
    let all = inbox.store().scan(0, usize::MAX, usize::MAX).await.unwrap();
    let all: BTreeSet<u64> = all.iter().map(|message| message.sequence).collect();
    assert!(confirmed.is_subset(&all), "{confirmed:?} of {all:?}");
}

#[tokio::test]
async fn opened_again() {
    let Some(mount) = mount() else { return };
    let (directory, ballast) = (mount.join("inbox"), mount.join("ballast"));
    let inbox = Inbox::open(&directory).await.unwrap();
    let mut confirmed = BTreeSet::new();
    for n in 0..3 {
        let message = NewMessage::new("key", vec![7; 20_000]).id(n.to_string());
        let accepted = inbox.accept_message(message).await.unwrap();
        confirmed.insert(accepted.sequence());
    }
    inbox.close().await.unwrap();
    fill(&ballast, usize::MAX);
    let inbox = Inbox::open(&directory).await;
    if let Ok(inbox) = inbox {
        let message = || NewMessage::new("key", vec![7; 500_000]);
        let refused = inbox.accept_message(message()).await.unwrap_err();
        assert!(
            matches!(
                refused,
                AcceptError::Store(StoreError::NotCommitted { no_space: true, .. }, _)
            ),
            "{refused:?}"
        );
        // Told or not, it closes.
        let _ = inbox.close().await;
    }
    fs::remove_file(&ballast).unwrap();
    let inbox = Inbox::open(&directory).await.unwrap();
    let accepted = inbox.accept("key", vec![7; 500_000]).await.unwrap();
    confirmed.insert(accepted.sequence());
    let all = inbox.store().scan(0, usize::MAX, usize::MAX).await.unwrap();
    let all: BTreeSet<u64> = all.iter().map(|message| message.sequence).collect();
    assert!(confirmed.is_subset(&all), "{confirmed:?} of {all:?}");
}

#[tokio::test]
async fn no_room() {
    let Some(mount) = mount() else { return };
    let ballast = mount.join("ballast");
    fill(&ballast, usize::MAX);
    let error = Inbox::open(mount.join("inbox")).await.unwrap_err();
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error:?}");
    fs::remove_file(&ballast).unwrap();
    // What is left of the attempt is not in the way.
    let inbox = Inbox::open(mount.join("inbox")).await.unwrap();
    inbox.accept("key", "payload").await.unwrap();
    inbox.close().await.unwrap();
    // One that is there may open, or say why not.
    fill(&ballast, usize::MAX);
    match Inbox::open(mount.join("inbox")).await {
        Ok(inbox) => drop(inbox.close().await),
        Err(error) => assert!(matches!(error, OpenError::NoSpace { .. }), "{error:?}"),
    }
    fs::remove_file(&ballast).unwrap();
    let inbox = Inbox::open(mount.join("inbox")).await.unwrap();
    assert_eq!(inbox.stats().await.unwrap().waiting, 1);
}

#[tokio::test]
async fn read_only() {
    let Some(mount) = mount() else { return };
    let inbox = Inbox::open(mount.join("inbox")).await.unwrap();
    inbox.close().await.unwrap();
    // The handle still has the file of starts.
    drop(inbox);
    let remount = || {
        let mut remount = Command::new("mount");
        remount.args(["-o", "remount,ro"]).arg(&mount);
        remount.output().unwrap().status.success()
    };
    // A task of the inbox may end a little later, and its files are closed with it.
    until(remount).await;
    for directory in [mount.join("inbox"), mount.join("new")] {
        let error = Inbox::open(directory).await.unwrap_err();
        assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
        assert!(error.to_string().contains("cannot be written"), "{error}");
    }
}
