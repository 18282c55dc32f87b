//! The one command of the example, as its first reader would start it.

use std::process::{Command, Output};

fn started(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_http_orders"))
        .args(arguments)
        .output()
        .expect("it has been built")
}

#[test]
fn the_demo_shows_order_beside_a_slow_user_and_an_honest_end() {
    let output = started(&["--demo"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let in_order = "GET /orders/ann: tea 1, tea 2, tea 3, tea 4, tea 5, tea 6, tea 7, tea 8";
    for part in [in_order, "0 lanes are left", "keylane_accepted_total{"] {
        assert!(said.contains(part), "without {part:?}: {said}");
    }
    let end = "mails: 8 accepted = 8 done + 0 dead-lettered + 0 discarded + 0 handed back";
    assert!(said.ends_with(&format!("{end}\n")), "{said}");
}

#[test]
fn help_and_bad_arguments_are_answered() {
    let help = started(&["--help"]);
    assert!(help.status.success());
    let said = String::from_utf8_lossy(&help.stdout);
    assert!(said.contains("--demo") && said.contains("--port"), "{said}");
    assert_eq!(started(&["--port", "70000"]).status.code(), Some(2));
}
