//! The command, as its first reader would start it, with fewer orders; no terminal is there.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use testkit_browser::Request;

fn started(arguments: &[&str]) -> (Output, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redis_workers"));
    let output = command.args(arguments).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    (output, said, errors)
}

#[test]
fn the_order_is_proved_over_a_kill_and_a_pause() {
    let (output, said, errors) = started(&["--demo", "--orders", "6000"]);
    assert!(output.status.success(), "{said}{errors}");
    let parts = [
        "4 workers begin",
        "is killed (SIGKILL)",
        "worker 5 joins",
        "is stopped (SIGSTOP)",
        "goes on",
        "keys of the list are held",
        "lost            0 of 6,000\n",
        "reordered       0, by the first handling, for 200 customers\n",
        "at once         0 of a customer, over all processes\n",
        "without reason  0\n",
        "verdict         the order is proved\n",
    ];
    for part in parts {
        assert!(said.contains(part), "without {part:?}: {said}");
    }
}

/// Each worker has one, while it runs.
#[test]
fn a_worker_has_a_console() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_redis_workers"))
        .args(["--demo", "--orders", "6000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let output = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let console = lines.find_map(|line| {
        let (_, rest) = line.split_once("worker 1: http://")?;
        rest.split(' ').next().map(str::to_owned)
    });
    let address = console.expect("an address").parse().expect("an address");
    let about = Request::new("GET", "/about").send(address).json();
    let names = serde_json::json!(["orders-by-list", "orders-by-stream"]);
    assert_eq!((&about["dispatchers"], &about["intakes"]), (&names, &names));
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("`kill` is there").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(2));
}

#[test]
fn help_and_bad_arguments_are_answered() {
    let (output, said, _) = started(&["--help"]);
    assert!(output.status.success());
    for option in [
        "--demo", "--orders", "--keys", "--seed", "--work", "--server",
    ] {
        assert!(said.contains(option), "without {option}: {said}");
    }
    let mut lines = said.lines();
    assert!(
        lines.all(|line| !line.trim().starts_with("worker")),
        "{said}"
    );
    let bad: [&[&str]; 4] = [
        &[],
        &["--demo", "--orders", "7"],
        &["--demo", "--keys", "x"],
        &["--demo", "--server", "mysql"],
    ];
    for bad in bad {
        let (output, _, errors) = started(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {errors}");
        assert!(errors.contains("error: "), "{bad:?}: {errors}");
    }
}
