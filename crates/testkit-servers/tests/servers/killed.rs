//! A test that starts a server and is killed, as by a runner that loses patience.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::processes::{await_end, is_dead, refuses, tree};

/// Tells the child what its server does when the child is killed.
const STATE: &str = "KEYLANE_SERVER_STATE";

/// In front of what the child reports.
const REPORT: &str = "server: ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Paused,
}

/// In the child: what to do with the server. `None` if this test is no child.
pub(crate) fn state() -> Option<State> {
    let state = std::env::var(STATE).ok()?;
    Some(if state == "paused" {
        State::Paused
    } else {
        State::Running
    })
}

/// In the child: tells the parent which server to look for.
pub(crate) fn report(pid: u32, port: u16, folder: &str) {
    println!("\n{REPORT}{pid} {port} {folder}");
}

/// Runs the test `child` of this binary and kills it when it has a server. The server dies too, and
/// its folder is removed.
pub(crate) fn outlived_by_nothing(child: &str, state: State) {
    // The name of the binary, which the test runner leaves out.
    let (_, child) = child.split_once("::").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture"])
        .env(
            STATE,
            match state {
                State::Running => "running",
                State::Paused => "paused",
            },
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let report = lines
        .map(|line| line.unwrap())
        .find_map(|line| line.strip_prefix(REPORT).map(str::to_owned))
        .expect("the child starts a server");
    let [pid, port, folder] = *report.split(' ').collect::<Vec<_>>() else {
        panic!("`{report}` is no report");
    };
    let port = port.parse().unwrap();
    let pids = tree(pid.parse().unwrap());
    assert!(!refuses(port) && !is_dead(pids[0]));

    child.kill().unwrap();
    child.wait().unwrap();
    await_end(&pids, port, Path::new(folder));
}
