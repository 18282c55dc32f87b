//! The first command, as its first reader would start it; no terminal is there.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn started(arguments: &[&str]) -> Output {
    let started = support::example().args(arguments).output();
    started.expect("it starts")
}

#[test]
fn the_demo_loses_nothing_over_a_kill() {
    let output = started(&["--check", "--load", "3000"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let parts = [
        "kill -9 in the middle",
        "lost            0 of 3,000\n",
        "paid twice      0\n",
        "reordered       0 of 299 users\n",
        "12, of poor, each after 3 attempts; 10 of them redriven",
        "on the disk:    0 orders for the next start, 2 dead letters",
    ];
    for part in parts {
        assert!(said.contains(part), "without {part:?}: {said}");
    }
}

#[test]
fn a_second_run_in_the_same_directory_is_judged_by_its_own_orders() {
    let (_temporary, directory) = support::directory();
    let directory = directory.to_str().expect("a path of text");
    for _ in 0..2 {
        let output = started(&["--check", "--load", "200", "--dir", directory]);
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("lost            0 of 200\n"), "{said}");
    }
}

#[test]
fn a_reader_who_leaves_does_not_stop_it() {
    let mut child = support::example()
        .args(["--check", "--load", "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn help_and_bad_arguments_are_answered() {
    let help = started(&["--help"]);
    assert!(help.status.success());
    let said = String::from_utf8_lossy(&help.stdout);
    for option in ["--serve", "--load", "--check", "--dir", "--port"] {
        assert!(said.contains(option), "without {option}: {said}");
    }
    assert!(!said.contains("--worker"), "{said}");
    for bad in [["--port", "70000"], ["--load", "7"], ["--check", "--serve"]] {
        assert_eq!(started(&bad).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let (temporary, _) = support::directory();
    let file = temporary.path().join("file");
    std::fs::write(&file, "no directory").expect("it is written");
    let file = file.to_str().expect("a path of text");
    for role in ["--serve", "--check"] {
        let output = started(&[role, "--port", "0", "--dir", file]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(file), "{said}");
    }
}

#[test]
fn the_console_stays_up_where_asked() {
    let mut child = support::example()
        .args(["--serve", "--load", "200", "--port", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let output = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let page = lines.find(|line| line.ends_with("the console; Ctrl-C ends it"));
    let address = page
        .as_deref()
        .and_then(|line| line.strip_prefix("http://"));
    let address = address.and_then(|rest| rest.split(' ').next());
    let address = address.expect("an address").parse().expect("an address");
    let answer = testkit_browser::Request::new("GET", "/console").send(address);
    assert_eq!(answer.status, 200);
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.expect("`kill` is there").success());
    let rest: Vec<String> = lines.collect();
    let last = rest.last().expect("a report");
    assert!(last.contains("on the disk:    0 orders"), "{rest:?}");
    assert!(child.wait().expect("it ends").success());
}
