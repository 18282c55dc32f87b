//! Letters of a service that runs.

use keylane_console::Action;
use keylane_inbox::Inbox;
use serde_json::Value;
use tempfile::TempDir;

use crate::served::{Served, inbox_with_letters, letters, runtime};

fn object(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// A service that has an inbox open.
fn open(directory: &TempDir) -> (Served, Inbox) {
    let inbox = runtime().block_on(Inbox::open(directory.path())).unwrap();
    let letters = inbox.letters();
    let served = Served::start(|console| console.letters("orders", letters).allow(Action::ALL));
    (served, inbox)
}

#[test]
fn a_service_that_runs_shows_the_letters_as_its_directory_does() {
    let directory = inbox_with_letters();
    let dir = ["--dir", directory.path().to_str().unwrap()];
    let stopped = |args: &[&str]| {
        let (code, out, err) = letters(&dir, args);
        assert_eq!((code, &*err), (0, ""), "{args:?}");
        out
    };
    let commands = [
        &["list"][..],
        &[],
        &["list", "--key", r"user\\3"],
        &["list", "--key", "user"],
        &["list", "--key", r"\x1b[\xff"],
        &["list", "--after", "100", "--limit", "3"],
        &["list", "--limit", "0"],
    ];
    let expected: Vec<_> = commands.iter().map(|args| stopped(args)).collect();
    assert_eq!(expected[0].lines().count(), 120);
    assert_eq!(expected[2].lines().count(), 17);
    // Each key, one of them bytes; with an id of bytes and a version. 3 has long headers.
    let ids = ["1", "3", "7", "8"];
    let shown = ids.map(|id| object(&stopped(&["show", id, "--json"])));
    assert_eq!(shown[1]["accepted_at"].as_str().unwrap().len(), 20);
    assert_eq!(shown[1]["version"], 3);
    assert_eq!(shown[1]["headers"].as_array().unwrap().len(), 80);
    let listed = stopped(&["list", "--json", "--limit", "20"]);
    let (served, _inbox) = open(&directory);
    for (args, expected) in commands.iter().zip(expected) {
        assert_eq!(served.ok(args), expected, "{args:?}");
    }
    for (id, shown) in ids.iter().zip(shown) {
        assert_eq!(object(&served.ok(&["show", id, "--json"])), shown);
    }
    let rows = served.ok(&["list", "--json", "--limit", "20"]);
    assert_eq!(rows.lines().count(), 20);
    for (row, expected) in rows.lines().zip(listed.lines()) {
        let (mut row, mut expected) = (object(row), object(expected));
        // A list has the start of what is long.
        for long in ["payload", "payload_is_cut", "headers"] {
            assert!(row.as_object_mut().unwrap().remove(long).is_some());
            assert!(expected.as_object_mut().unwrap().remove(long).is_some());
        }
        assert_eq!(row, expected);
    }
    let row = served.ok(&["list", "--json", "--key", r"\x1b[\xff", "--limit", "1"]);
    let row = object(&row);
    assert_eq!(row["payload_bytes"], 1_000);
    assert_eq!(row["payload_is_cut"], true);
    assert_eq!(row["payload"], "\\x00".repeat(256));
    let (code, _, err) = served.letters(&["show", "121"]);
    assert_eq!(code, 1);
    assert!(err.contains("121 is not a dead letter"), "{err}");
}

#[test]
fn letters_are_redriven_and_purged_while_the_service_runs() {
    let directory = inbox_with_letters();
    let (served, inbox) = open(&directory);
    // They are out of use for others.
    let dir = ["--dir", directory.path().to_str().unwrap()];
    assert_eq!(letters(&dir, &["list"]).0, 2);
    let redriven = served.ok(&["redrive", "--key", r"user\\3"]);
    assert_eq!(redriven, "17 of 17 redriven\n");
    let (code, _, err) = served.letters(&["redrive", "--key", r"user\\3"]);
    assert_eq!(code, 1);
    assert!(err.contains("no dead letters with this key"), "{err}");
    let (code, out, err) = served.letters(&["purge", "1", "3", "2", "--json"]);
    assert_eq!((code, &*out), (1, "{\"purged\":2,\"wanted\":3}\n"));
    assert!(err.contains("3 is not a dead letter"), "{err}");
    assert_eq!(
        served.ok(&["purge", "--older-than", "1d"]),
        "0 of 0 purged\n"
    );
    assert_eq!(served.ok(&["redrive", "--all"]), "101 of 101 redriven\n");
    assert_eq!(served.ok(&["list"]), "");
    let stats = runtime().block_on(inbox.store().stats()).unwrap();
    assert_eq!((stats.waiting, stats.letters), (119, 0));
}
