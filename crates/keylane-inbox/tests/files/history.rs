//! Directories that were copied back: the same sequences, and other messages under them.

use std::fs;
use std::path::Path;

use keylane_inbox::attempts::Marks;
use keylane_inbox::error::OpenError;
use keylane_inbox::store::{EmbeddedStore, InboxStore, Settings};
use keylane_inbox::{Inbox, NewMessage};

use crate::displaced::copy;

/// Opens, accepts so many messages one by one, and closes.
async fn live(directory: &Path, payload: &str, messages: usize) {
    let inbox = Inbox::open(directory).await.unwrap();
    for _ in 0..messages {
        inbox.accept("key", payload.to_owned()).await.unwrap();
    }
    inbox.close().await.unwrap();
}

/// One directory and a copy of it, which both went on.
async fn two_branches(parent: &Path) {
    live(&parent.join("one"), "before", 1).await;
    copy(&parent.join("one"), &parent.join("two"));
    live(&parent.join("one"), "of one", 1).await;
    live(&parent.join("two"), "of two", 3).await;
    // The process that had the one has died four times of its second message.
    let marks = Marks::open(&parent.join("one/starts"), 0).unwrap();
    marks.start(0, 2, 4).unwrap();
}

async fn attempts_at_the_second(directory: &Path) -> Option<u32> {
    let inbox = Inbox::open(directory).await.unwrap();
    inbox.close().await.unwrap();
    let marks = Marks::open(&directory.join("starts"), 0).unwrap();
    marks.recover().get(&2).copied()
}

/// A newer database than the file of starts knows is not behind, and yet not the one that it knows.
#[tokio::test]
async fn a_database_of_another_branch() {
    let parent = tempfile::tempdir().unwrap();
    let parent = parent.path();
    two_branches(parent).await;
    fs::copy(
        parent.join("two/messages.redb"),
        parent.join("one/messages.redb"),
    )
    .unwrap();
    let error = Inbox::open(parent.join("one")).await.unwrap_err();
    assert!(matches!(error, OpenError::OtherHistory { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("messages.redb") && text.contains("starts"),
        "{text}"
    );
    // As it says: without the witness it goes on.
    fs::remove_file(parent.join("one/starts")).unwrap();
    assert_eq!(attempts_at_the_second(&parent.join("one")).await, None);
}

#[tokio::test]
async fn starts_of_another_branch() {
    let parent = tempfile::tempdir().unwrap();
    let parent = parent.path();
    two_branches(parent).await;
    fs::copy(parent.join("one/starts"), parent.join("two/starts")).unwrap();
    let error = Inbox::open(parent.join("two")).await.unwrap_err();
    assert!(matches!(error, OpenError::OtherHistory { .. }), "{error:?}");
}

/// A whole directory is opened as it was, and what it knows of attempts is about its own messages.
#[tokio::test]
async fn a_whole_directory() {
    let parent = tempfile::tempdir().unwrap();
    let parent = parent.path();
    two_branches(parent).await;
    assert_eq!(attempts_at_the_second(&parent.join("one")).await, Some(4));
    assert_eq!(attempts_at_the_second(&parent.join("two")).await, None);
    // Again and again, also with a stamp that was not written meanwhile.
    let old = fs::read(parent.join("one/starts")).unwrap();
    live(&parent.join("one"), "later", 1).await;
    fs::write(parent.join("one/starts"), old).unwrap();
    for _ in 0..3 {
        live(&parent.join("one"), "later", 1).await;
    }
}

/// A process that dies after a commit has not stamped it. That may happen twice in a row.
#[tokio::test]
async fn a_stamp_that_two_processes_have_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let (directory, starts) = (directory.path(), directory.path().join("starts"));
    live(directory, "the first", 1).await;
    let stamped = fs::read(&starts).unwrap();
    live(directory, "the second", 1).await;
    fs::write(&starts, stamped).unwrap();
    let store = EmbeddedStore::open(directory, Settings::default());
    let store = store.await.unwrap();
    // The second answer comes after all that follows the first one.
    for _ in 0..2 {
        store.compact().await.unwrap();
    }
    let stamped = fs::read(&starts).unwrap();
    let message = NewMessage::new("key", "the third");
    store.accept(vec![message]).await.unwrap();
    store.close().await.unwrap();
    fs::write(&starts, stamped).unwrap();
    live(directory, "the fourth", 1).await;
}
