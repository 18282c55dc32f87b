//! Directories that are not what they should be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use keylane_inbox::Inbox;
use keylane_inbox::error::OpenError;

async fn refused(directory: &Path) -> OpenError {
    Inbox::open(directory).await.unwrap_err()
}

async fn filled(directory: &Path) {
    let inbox = Inbox::open(directory).await.unwrap();
    inbox.accept("key", "payload").await.unwrap();
    inbox.close().await.unwrap();
}

async fn waiting(directory: &Path) -> u64 {
    let inbox = Inbox::open(directory).await.unwrap();
    let waiting = inbox.stats().await.unwrap().waiting;
    inbox.close().await.unwrap();
    waiting
}

#[tokio::test]
async fn one_that_is_not_there_is_made() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a/b/c");
    filled(&directory).await;
    assert_eq!(waiting(&directory).await, 1);
    let mut names = Vec::from_iter(
        fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name()),
    );
    names.sort();
    assert_eq!(names, ["keylane-inbox", "lock", "messages.redb", "starts"]);
}

#[tokio::test]
async fn a_file() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "text").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = refused(&path).await;
        assert!(
            matches!(error, OpenError::NotADirectory { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("file"), "{error}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"text");
}

#[tokio::test]
async fn one_without_a_name() {
    let error = refused(Path::new("")).await;
    assert!(matches!(error, OpenError::Unnamed), "{error:?}");
}

#[tokio::test]
async fn one_with_other_files() {
    let parent = tempfile::tempdir().unwrap();
    fs::write(parent.path().join("thesis.txt"), "text").unwrap();
    let error = refused(parent.path()).await;
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    assert!(error.to_string().contains("thesis.txt"), "{error}");
    assert_eq!(
        fs::read_dir(parent.path()).unwrap().count(),
        1,
        "nothing was left there"
    );
}

#[tokio::test]
async fn the_root_of_a_file_system() {
    let parent = tempfile::tempdir().unwrap();
    fs::create_dir(parent.path().join("lost+found")).unwrap();
    filled(parent.path()).await;
    assert_eq!(waiting(parent.path()).await, 1);
}

#[tokio::test]
async fn one_whose_making_was_cut_off() {
    // After the lock; in the middle of the database; before the marker; in the middle of it.
    for leftovers in [
        &["lock"][..],
        &["lock", "messages.redb.new"],
        &["lock", "messages.redb.new", "keylane-inbox.new"],
    ] {
        let parent = tempfile::tempdir().unwrap();
        for name in leftovers {
            fs::write(parent.path().join(name), "half of it").unwrap();
        }
        filled(parent.path()).await;
        assert_eq!(waiting(parent.path()).await, 1, "{leftovers:?}");
    }
    let parent = tempfile::tempdir().unwrap();
    filled(parent.path()).await;
    fs::remove_file(parent.path().join("keylane-inbox")).unwrap();
    assert_eq!(waiting(parent.path()).await, 1, "the database was whole");
    assert!(parent.path().join("keylane-inbox").exists());
}

#[tokio::test]
async fn one_whose_database_is_gone() {
    let parent = tempfile::tempdir().unwrap();
    filled(parent.path()).await;
    fs::remove_file(parent.path().join("messages.redb")).unwrap();
    let error = refused(parent.path()).await;
    assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    assert!(error.to_string().contains("messages.redb"), "{error}");
    assert!(!parent.path().join("messages.redb").exists());
}

#[tokio::test]
async fn one_whose_database_is_an_older_copy() {
    // One commit is enough.
    for newer in [1, 2] {
        let parent = tempfile::tempdir().unwrap();
        let (database, copy) = (
            parent.path().join("messages.redb"),
            parent.path().join("copy"),
        );
        filled(parent.path()).await;
        fs::copy(&database, &copy).unwrap();
        for _ in 0..newer {
            filled(parent.path()).await;
        }
        fs::copy(&copy, &database).unwrap();
        let error = refused(parent.path()).await;
        assert!(
            matches!(error, OpenError::Behind { missing, .. } if missing == newer),
            "{error:?}"
        );
        // As it says: without the witness it goes on.
        fs::remove_file(parent.path().join("starts")).unwrap();
        assert_eq!(waiting(parent.path()).await, 1);
    }
}

#[tokio::test]
async fn one_without_its_starts_and_lock() {
    let parent = tempfile::tempdir().unwrap();
    filled(parent.path()).await;
    fs::remove_file(parent.path().join("starts")).unwrap();
    fs::remove_file(parent.path().join("lock")).unwrap();
    assert_eq!(waiting(parent.path()).await, 1);
}

/// Root may write everywhere: a directory that root cannot write to needs another kind of disk.
fn is_root(probe: &Path) -> bool {
    fs::write(probe, "").is_ok()
}

#[tokio::test]
async fn one_that_may_not_be_written() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("inbox");
    filled(&directory).await;
    let read_only = fs::Permissions::from_mode(0o500);
    fs::set_permissions(parent.path(), read_only.clone()).unwrap();
    if !is_root(&parent.path().join("probe")) {
        let error = refused(&parent.path().join("new")).await;
        assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
        fs::set_permissions(&directory, read_only).unwrap();
        for name in ["lock", "messages.redb", "starts"] {
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o400)).unwrap();
        }
        let error = refused(&directory).await;
        assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn one_that_no_user_may_write() {
    // Not even root makes a directory in the tree of processes.
    let error = refused(Path::new("/proc/keylane-inbox")).await;
    assert!(
        matches!(error, OpenError::Io { .. } | OpenError::ReadOnly { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("/proc/keylane-inbox"), "{error}");
}

#[tokio::test]
async fn settings_that_do_not_fit() {
    let parent = tempfile::tempdir().unwrap();
    let builder = || Inbox::builder(parent.path());
    for (setting, builder) in [
        ("key_bytes", builder().key_bytes(0)),
        ("payload_bytes", builder().payload_bytes(0)),
        ("cache_bytes", builder().cache_bytes(0)),
        ("queue_bytes", builder().queue_bytes(0)),
        ("group_messages", builder().group_messages(0)),
        ("group_bytes", builder().group_bytes(0)),
        (
            "sync",
            builder().sync(keylane_inbox::SyncMode::LosesUpTo(
                std::time::Duration::ZERO,
            )),
        ),
    ] {
        let error = builder.open().await.unwrap_err();
        assert_eq!(error.to_string(), format!("`{setting}` must not be zero"));
    }
    for (setting, builder) in [
        ("key_bytes", builder().key_bytes((64 << 10) + 1)),
        ("payload_bytes", builder().payload_bytes((1 << 30) + 1)),
        ("headers_bytes", builder().headers_bytes((1 << 20) + 1)),
        ("queue_bytes", builder().queue_bytes(usize::MAX)),
        ("linger", builder().linger(std::time::Duration::MAX)),
    ] {
        let error = builder.open().await.unwrap_err();
        assert!(matches!(error, OpenError::TooLarge { .. }), "{error:?}");
        assert!(error.to_string().contains(setting), "{error}");
    }
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_largest_settings_fit() {
    let parent = tempfile::tempdir().unwrap();
    let inbox = Inbox::builder(parent.path())
        .key_bytes(64 << 10)
        .payload_bytes(1 << 30)
        .headers_bytes(1 << 20)
        .open()
        .await
        .unwrap();
    let key = vec![7; 64 << 10];
    inbox.accept(key.clone(), vec![0; 20 << 20]).await.unwrap();
    let found = inbox.store().scan(0, 1, 1).await.unwrap().remove(0);
    assert!(found.key == key && found.payload.len() == 20 << 20);
}
