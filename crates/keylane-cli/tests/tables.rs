//! The commands `keylane inbox` on an inbox in tables.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::process::Command;

use keylane_inbox::store::Settled;
use keylane_inbox::{InboxStore, LetterKind, NewMessage};
use keylane_sql::{Database, Settings, SqlInbox, Tables};
use testkit_servers::{MariaDb, Postgres};

/// Runs the program. Answers with its exit code, and what it printed.
fn run(url: &str, args: &[&str]) -> (i32, String, String) {
    let program = Command::new(env!("CARGO_BIN_EXE_keylane"))
        .arg("inbox")
        .env("KEYLANE_INBOX_URL", url)
        .args(args)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = program.status.code().unwrap();
    (code, text(program.stdout), text(program.stderr))
}

fn ok(url: &str, args: &[&str]) -> String {
    let (code, out, err) = run(url, args);
    assert_eq!((code, &err[..]), (0, ""), "{args:?}: {out}");
    out
}

/// Letters 1 to 3; 4 and 5 wait.
async fn fill(url: &str) {
    let database = Database::connect(url).await.unwrap();
    let tables = Tables::new();
    database.migrate(&tables).await.unwrap();
    let inbox = SqlInbox::open(&database, &tables, Settings::new());
    let inbox = inbox.await.unwrap();
    let messages = ["user-7", "user-8", "user-7", "user-8", "user-7"];
    let messages = messages.map(|key| NewMessage::new(key, "payload"));
    inbox.inbox().accept_many(messages).await.unwrap();
    let dead = (1..=3).map(|sequence| Settled::DeadLetter {
        sequence,
        attempts: 5,
        kind: LetterKind::TimedOut,
        error: format!("\x1b[2Jno answer to {sequence}"),
    });
    inbox.settle(dead.collect()).await.unwrap();
}

fn commands_work(url: &str) {
    let list = ok(url, &["list"]);
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(list.contains("\\x1b[2Jno answer to 1"), "{list}");
    assert_eq!(ok(url, &["list", "--waiting"]).lines().count(), 2);
    assert_eq!(ok(url, &["list", "--key", "user-8"]).lines().count(), 1);
    let of_key = ok(url, &["list", "--waiting", "--key", "user-8"]);
    assert!(
        of_key.lines().count() == 1 && of_key.contains(" 4 "),
        "{of_key}"
    );
    assert_eq!(ok(url, &["list", "--limit", "2"]).lines().count(), 2);
    let (code, _, error) = run(url, &["redrive", "--key", "user-9"]);
    assert_eq!(code, 1);
    assert!(error.contains("no dead letters with this key"), "{error}");
    // What is said in the command line goes before what is in the environment.
    let (code, _, error) = run(url, &["--dir", "/nowhere", "list"]);
    assert_eq!(code, 1);
    assert!(error.contains("/nowhere"), "{error}");
    assert!(ok(url, &["show", "2"]).contains("user-8"));
    let shown = ok(url, &["show", "5", "--json"]);
    assert!(shown.contains("\"sequence\":5"), "{shown}");
    let redriven = ok(url, &["redrive", "--key", "user-7"]);
    assert_eq!(redriven, "2 of 2 redriven\n");
    assert_eq!(ok(url, &["purge", "2"]), "1 of 1 purged\n");
    let (code, _, error) = run(url, &["purge", "2"]);
    assert_eq!(code, 1);
    assert!(error.contains("2 is not a dead letter"), "{error}");
    let stats = ok(url, &["stats"]);
    assert!(stats.starts_with("waiting            4\n"), "{stats}");
    let checked = ok(url, &["check"]);
    assert_eq!(checked, "4 messages and 0 letters read: no damage found\n");
    let (code, _, error) = run(url, &["compact"]);
    assert_eq!(code, 1);
    assert!(error.contains("VACUUM"), "{error}");
    // Its tables have other names.
    let (code, _, error) = run(url, &["list", "--prefix", "other_"]);
    assert_eq!(code, 1);
    assert!(error.contains("migrate"), "{error}");
    for _ in 0..2 {
        let migrated = ok(url, &["migrate", "--prefix", "other_"]);
        assert_eq!(migrated, "the tables are up to date\n");
    }
    assert_eq!(ok(url, &["list", "--prefix", "other_"]), "");
    let (code, _, error) = run(url, &["list", "--prefix", "no\"name"]);
    assert_eq!(code, 1);
    assert!(error.contains("not a valid name"), "{error}");
}

#[tokio::test]
async fn in_postgres() {
    let server = Postgres::start().await.unwrap();
    let url = server.create_database().await.unwrap();
    fill(&url).await;
    commands_work(&url);
    // A password is not shown, wherever it comes from.
    let wrong = url.replacen(Postgres::PASSWORD, "canary-4711", 1);
    let (code, out, error) = run(&wrong, &["list"]);
    assert_eq!(code, 1);
    assert!(!(out + &error).contains("canary-4711"));
    let (_, help, _) = run(&wrong, &["--help"]);
    assert!(!help.contains("canary-4711"), "{help}");
}

#[tokio::test]
async fn in_mariadb() {
    let server = MariaDb::start().await.unwrap();
    let url = server.create_database().await.unwrap();
    fill(&url).await;
    commands_work(&url);
}
