//! The command, as its first reader would start it, with one round of faults; no terminal is there.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use keylane_testkit::scenario::until;
use testkit_processes::programs::{children, example, runs};

fn started(arguments: &[&str]) -> (Output, String) {
    let output = example("watchman").args(arguments).output();
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

/// The number behind this name, in the lines at the end.
fn number(said: &str, name: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("without {name}: {said}"));
    let digits = line
        .trim_start()
        .split(|c: char| !c.is_ascii_digit() && c != ',');
    let digits = digits
        .clone()
        .next()
        .expect("the first part")
        .replace(',', "");
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no number: {line}"))
}

/// In PostgreSQL, which starts faster. `cargo xtask test` starts the example with ZooKeeper.
#[test]
fn every_account_is_billed_once_over_a_kill_a_pause_a_cut_and_a_resignation() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("new/watchman.svg");
    let path = svg.to_str().expect("a path of ASCII");
    let arguments = ["--store", "postgres", "--rounds", "1", "--svg", path];
    let (output, said) = started(&arguments);
    assert!(output.status.success(), "{output:?}\n{said}");
    let parts = [
        "is killed (SIGKILL)",
        "is started again",
        "is paused (SIGSTOP)",
        "is cut off from the store",
        " resigns\n",
        " bills, ",
        "faults          1 killed, 1 paused, 1 cut off, 1 resigned\n",
        "billed twice    0 of ",
        "skipped         0 of ",
        "not due         0 of ",
        "of an old term  0 of ",
        "verdict         every account was billed once for every second\n",
    ];
    for part in parts {
        assert!(said.contains(part), "without {part:?}: {said}");
    }
    // What was on its way when its leader was paused or cut off.
    assert!(number(&said, "late bills") > 0, "{said}");
    assert!(number(&said, "bills ") > 8 * 5, "{said}");
    let svg = std::fs::read_to_string(svg).expect("the picture");
    for part in [
        "role=\"img\"",
        "is killed (SIGKILL)",
        "billed once for every second",
    ] {
        assert!(svg.contains(part), "without {part:?}: {svg}");
    }
}

/// The twin: what a paused leader had begun is billed by its successor, and by itself.
#[test]
fn without_the_fence_accounts_are_billed_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("watchman.svg");
    let path = svg.to_str().expect("a path of ASCII");
    let arguments = [
        "--store",
        "postgres",
        "--rounds",
        "1",
        "--unfenced",
        "--svg",
        path,
    ];
    let (output, said) = started(&arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("NOT BILLED ONCE"), "{said}");
    for found in ["billed twice", "of an old term"] {
        assert!(number(&said, found) > 0, "{said}");
    }
}

#[test]
fn help_and_bad_arguments_are_answered() {
    let (output, said) = started(&["--help"]);
    assert!(output.status.success());
    let options = [
        "--store",
        "--rounds",
        "--seconds",
        "--accounts",
        "--seed",
        "--svg",
        "--unfenced",
    ];
    for option in options {
        assert!(said.contains(option), "without {option}: {said}");
    }
    assert!(
        !said.lines().any(|line| line.trim().starts_with("worker")),
        "{said}"
    );
    let bad = [
        &["--store", "paper"][..],
        &["--rounds", "0"],
        &["--rounds", "1", "--seconds", "5"],
        &["--accounts", "0"],
        &["--svg", "/dev/null/watchman.svg"],
    ];
    for bad in bad {
        let (output, _) = started(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(!output.stderr.is_empty(), "{bad:?}");
    }
}

/// Ctrl-C in the middle ends the processes and the server.
#[tokio::test]
async fn nothing_is_left_after_an_interruption() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = example("watchman")
        .args(["--store", "postgres", "--svg", "watchman.svg"])
        .current_dir(folder.path())
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let output = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("is killed (SIGKILL)")));
    let id = child.id().to_string();
    let workers = children(&id);
    assert!(workers.len() >= 3, "{workers:?}");
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("`kill` is there").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(2));
    // The picture stays.
    let left = || {
        std::fs::read_dir(folder.path())
            .expect("it is there")
            .count()
    };
    until(|| !workers.iter().any(|id| runs(id)) && left() == 1).await;
}
