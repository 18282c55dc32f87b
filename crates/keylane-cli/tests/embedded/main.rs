//! The commands `keylane inbox`, as they are called from a shell.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use keylane_inbox::store::Settled;
use keylane_inbox::{Inbox, LetterKind, NewMessage};

/// Runs the program. Answers with its exit code, and what it printed.
fn run(directory: &Path, args: &[&str]) -> (i32, String, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_keylane"));
    program.arg("inbox");
    answer(program, directory, args)
}

/// Runs it by its old name.
fn run_old(directory: &Path, args: &[&str]) -> (i32, String, String) {
    let program = Command::new(env!("CARGO_BIN_EXE_keylane-inbox"));
    answer(program, directory, args)
}

fn answer(mut program: Command, directory: &Path, args: &[&str]) -> (i32, String, String) {
    let program = program
        .args(["--dir", directory.to_str().unwrap()])
        .args(args)
        .output();
    let Output {
        status,
        stdout,
        stderr,
    } = program.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn ok(directory: &Path, args: &[&str]) -> String {
    let (code, out, err) = run(directory, args);
    assert_eq!((code, &err[..]), (0, ""), "{args:?}: {out}");
    out
}

/// Letters 1 to 3, the second with a key and an error that would do harm on a terminal; 4 and 5
/// wait.
async fn inbox() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let inbox = Inbox::open(directory.path()).await.unwrap();
    let messages = [
        NewMessage::new("user-7", "first")
            .id("order-1")
            .header("type", "json"),
        NewMessage::new(vec![0x1b, b'[', 0xff], vec![0; 1_000]),
        NewMessage::new("user-7", "third").version(3),
        NewMessage::new("user-8", "fourth"),
        NewMessage::new("user-7", "fifth"),
    ];
    inbox.accept_many(messages).await.unwrap();
    let dead = (1..=3).map(|sequence| Settled::DeadLetter {
        sequence,
        attempts: 5,
        kind: LetterKind::TimedOut,
        error: format!("\x1b[2Jno answer to {sequence} {}", "a".repeat(100)),
    });
    inbox.store().settle(dead.collect()).await.unwrap();
    inbox.close().await.unwrap();
    directory
}

#[tokio::test]
async fn lists() {
    let directory = inbox().await;
    let letters = ok(directory.path(), &["list"]);
    assert_eq!(letters.lines().count(), 3);
    assert!(letters.contains(r#"key "\x1b[\xff""#), "{letters}");
    assert!(letters.contains("timed out"), "{letters}");
    assert!(letters.contains('…') && !letters.contains(&"a".repeat(100)));
    assert!(letters.chars().all(|c| c == '\n' || !c.is_control()));
    assert_eq!(
        ok(directory.path(), &["list", "--after", "1", "--limit", "1"])
            .lines()
            .count(),
        1
    );
    assert_eq!(ok(directory.path(), &["list", "--limit", "0"]), "");
    let full = ok(directory.path(), &["list", "--full"]);
    assert!(full.contains(&"a".repeat(100)));
    let waiting = ok(directory.path(), &["list", "--waiting"]);
    assert_eq!(waiting.lines().count(), 2);
    assert!(waiting.contains("\"fourth\""), "{waiting}");
}

#[tokio::test]
async fn the_old_name_does_the_same_and_says_the_new_one() {
    let directory = inbox().await;
    let (code, out, err) = run_old(directory.path(), &["list"]);
    assert_eq!((code, &out), (0, &ok(directory.path(), &["list"])));
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains("`keylane inbox`"), "{err}");
    let (code, out, err) = run_old(directory.path(), &["nothing"]);
    assert_eq!((code, &*out), (64, ""));
    assert!(err.contains("Usage: keylane inbox"), "{err}");
}

#[tokio::test]
async fn shows() {
    let directory = inbox().await;
    let letter = ok(directory.path(), &["show", "1"]);
    for part in ["user-7", "order-1", "first", "attempts", "timed out"] {
        assert!(letter.contains(part), "{letter}");
    }
    assert!(ok(directory.path(), &["show", "4"]).contains("fourth"));
    let json = ok(directory.path(), &["show", "2", "--json", "--full"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["key"], r"\x1b[\xff");
    assert_eq!(json["payload_bytes"], 1_000);
    assert_eq!(json["payload"], "\\x00".repeat(1_000));
    assert_eq!(
        (&json["attempts"], &json["kind"]),
        (&5.into(), &"timed out".into())
    );
    let (code, _, err) = run(directory.path(), &["show", "99"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("99 is neither a dead letter nor a waiting message"),
        "{err}"
    );
}

#[tokio::test]
async fn redrives() {
    let directory = inbox().await;
    assert_eq!(
        ok(directory.path(), &["redrive", "--key", "user-7"]),
        "2 of 2 redriven\n"
    );
    // Ahead of what waits.
    let waiting = ok(directory.path(), &["list", "--waiting", "--json"]);
    let sequence =
        |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["sequence"].clone();
    assert_eq!(Vec::from_iter(waiting.lines().map(sequence)), [1, 3, 4, 5]);
    assert_eq!(
        ok(directory.path(), &["redrive", "--key", r"\x1b[\xff"]),
        "1 of 1 redriven\n"
    );
    assert_eq!(
        ok(directory.path(), &["redrive", "--all"]),
        "0 of 0 redriven\n"
    );
    let (code, out, err) = run(directory.path(), &["redrive", "1"]);
    assert_eq!((code, &out[..]), (1, "0 of 1 redriven\n"));
    assert!(err.contains("1 is not a dead letter"));
}

#[tokio::test]
async fn purges() {
    let directory = inbox().await;
    assert_eq!(
        ok(directory.path(), &["purge", "--older-than", "1d"]),
        "0 of 0 purged\n"
    );
    let json = ok(directory.path(), &["purge", "2", "3", "--json"]);
    assert_eq!(json, "{\"purged\":[2,3],\"wanted\":2}\n");
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(
        ok(directory.path(), &["purge", "--older-than", "0s"]),
        "1 of 1 purged\n"
    );
    assert_eq!(ok(directory.path(), &["list"]), "");
}

#[tokio::test]
async fn counts_checks_and_compacts() {
    let directory = inbox().await;
    let stats = ok(directory.path(), &["stats", "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(
        (&stats["waiting"], &stats["letters"]),
        (&2.into(), &3.into())
    );
    assert_eq!(stats["last_sequence"], 5);
    assert!(ok(directory.path(), &["stats"]).contains("waiting            2\n"));
    let checked = ok(directory.path(), &["check"]);
    assert_eq!(checked, "2 messages and 3 letters read: no damage found\n");
    assert!(ok(directory.path(), &["compact"]).contains(" after\n"));
    assert_eq!(ok(directory.path(), &["check"]), checked);
}

#[tokio::test]
async fn says_that_an_inbox_is_running() {
    let directory = inbox().await;
    let inbox = Inbox::open(directory.path()).await.unwrap();
    for args in [
        &["list"][..],
        &["redrive", "--all"],
        &["check"],
        &["compact"],
    ] {
        let (code, out, err) = run(directory.path(), args);
        assert_eq!((code, &out[..]), (2, ""), "{err}");
        assert!(err.contains("the inbox is in use"), "{err}");
        assert!(err.contains(directory.path().to_str().unwrap()), "{err}");
    }
    inbox.close().await.unwrap();
    assert_eq!(ok(directory.path(), &["list"]).lines().count(), 3);
}

#[test]
fn makes_no_inbox() {
    let directory = tempfile::tempdir().unwrap();
    for missing in [directory.path().to_owned(), directory.path().join("typo")] {
        let (code, _, err) = run(&missing, &["stats"]);
        assert_eq!(code, 1);
        assert!(err.contains("missing"), "{err}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn helps() {
    let directory = tempfile::tempdir().unwrap();
    let help = ok(directory.path(), &["--help"]);
    for part in [
        "list",
        "show",
        "redrive",
        "purge",
        "stats",
        "check",
        "compact",
        "Exit codes",
    ] {
        assert!(help.contains(part), "{help}");
    }
    assert!(ok(directory.path(), &["purge", "--help"]).contains("--older-than"));
    for wrong in [
        &["redrive"][..],
        &["purge", "1", "--all"],
        &["purge", "--older-than", "soon"],
        &["redrive", "--key", r"\q"],
        &["nothing"],
    ] {
        assert_eq!(run(directory.path(), wrong).0, 64, "{wrong:?}");
    }
}
