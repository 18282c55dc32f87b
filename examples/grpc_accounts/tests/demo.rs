//! The one command of the example, as its first reader would start it.

use std::process::{Command, Output};

fn started(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_grpc_accounts"))
        .args(arguments)
        .output()
        .expect("it has been built")
}

#[test]
fn the_demo_loses_nothing_with_lanes() {
    let output = started(&["--demo"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let with_lanes = said.split("with lanes ").nth(1).expect("a second table");
    for account in ["alice", "bob", "carol", "dave"] {
        let row = with_lanes.lines().find(|line| line.contains(account));
        let columns: Vec<_> = row.expect("a row").split_whitespace().collect();
        assert_eq!(columns, [account, "11120", "11120", "1"], "{said}");
    }
}

#[test]
fn help_and_bad_arguments_are_answered() {
    let help = started(&["--help"]);
    assert!(help.status.success());
    let said = String::from_utf8_lossy(&help.stdout);
    for part in ["--demo", "--port", "deposit", "withdraw", "balance"] {
        assert!(said.contains(part), "without {part:?}: {said}");
    }
    assert_eq!(
        started(&["deposit", "alice", "much"]).status.code(),
        Some(2)
    );
}
