//! The command, as its first reader would start it, with fewer transfers; no terminal is there.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use testkit_processes::programs::{children, example, runs};
use testkit_servers::Postgres;

fn started(arguments: &[&str]) -> (Output, String) {
    let output = example("ledger")
        .args(arguments)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

#[test]
fn the_books_balance_over_a_kill_and_a_pause() {
    let (output, said) = started(&["--transfers", "1000", "--accounts", "12"]);
    assert!(output.status.success(), "{output:?}");
    let parts = [
        "is killed (SIGKILL)",
        "is paused (SIGSTOP)",
        " accounts with messages, after ",
        "goes on, in the middle",
        "lost            0 of 1,000\n",
        "booked twice    0 of 1,000\n",
        "refused         0 wrongly; ",
        "reordered       0 of 1,000\n",
        "balances        12 of 12 as if booked one by one",
        ", to the cent\n",
        "verdict         the books balance\n",
    ];
    for part in parts {
        assert!(said.contains(part), "without {part:?}: {said}");
    }
    assert!(!said.contains("done before     0:"), "{said}");
}

/// Your own server: what is made there is removed, unless it is to be kept.
#[tokio::test]
async fn a_database_of_yours_is_left_as_it_was() {
    let server = Postgres::start().await.expect("PostgreSQL is installed");
    let url = server.create_database().await.expect("it is created");
    let database = url.rsplit('/').next().expect("a name");
    for (keep, left) in [(&["--keep"][..], "1\n"), (&[], "1\n")] {
        let arguments = [&["--url", &url, "--transfers", "300"], keep].concat();
        let (output, said) = started(&arguments);
        assert!(output.status.success(), "{output:?}");
        assert!(
            said.contains("verdict         the books balance\n"),
            "{said}"
        );
        assert!(!said.contains(Postgres::PASSWORD), "{said}");
        let schemas = "select count(*) from pg_namespace where nspname like 'ledger%'";
        let schemas = server.execute(database, schemas).await;
        assert_eq!(schemas.expect("it answers"), left, "{keep:?}");
    }
}

/// The twin: what is booked without the done-mark is booked twice, and the verdict is the exit status.
#[test]
fn without_the_transaction_the_books_do_not_balance() {
    let arguments = ["--transfers", "1000", "--accounts", "12", "--apart"];
    let (output, said) = started(&arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("BOOKS DO NOT BALANCE"), "{said}");
    assert!(!said.contains("booked twice    0 "), "{said}");
}

#[test]
fn help_and_bad_arguments_are_answered() {
    let (output, said) = started(&["--help"]);
    assert!(output.status.success());
    for option in ["--url", "--transfers", "--accounts", "--seed", "--apart"] {
        assert!(said.contains(option), "without {option}: {said}");
    }
    let mut lines = said.lines();
    assert!(
        lines.all(|line| !line.trim().starts_with("worker")),
        "{said}"
    );
    for bad in [["--transfers", "7"], ["--accounts", "1"], ["--seed", "x"]] {
        assert_eq!(started(&bad).0.status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn a_database_that_cannot_be_used_is_told() {
    for (url, why) in [
        (
            "mysql://me:secret@localhost/bank",
            "--url is not of the form",
        ),
        ("postgres://me:secret@127.0.0.1:1/bank", "cannot be reached"),
    ] {
        let (output, _) = started(&["--url", url]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && !said.contains("secret"), "{said}");
    }
}

/// Ctrl-C in the middle ends the workers and the server.
#[test]
fn nothing_is_left_after_an_interruption() {
    let folder = temporary();
    let mut child = example("ledger")
        .env("TMPDIR", &folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let output = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("workers begin")));
    let id = child.id().to_string();
    let workers = children(&id);
    assert!(workers.len() >= 3, "{workers:?}");
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("`kill` is there").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(2));
    let since = Instant::now();
    let is_left = || {
        let mut left = std::fs::read_dir(&folder).expect("it is there");
        workers.iter().any(|id| runs(id)) || left.next().is_some()
    };
    while is_left() {
        assert!(since.elapsed() < Duration::from_secs(20), "{workers:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::remove_dir(&folder).expect("it is ours");
}

fn temporary() -> PathBuf {
    let name = format!("ledger-test-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).expect("it is new");
    folder
}
