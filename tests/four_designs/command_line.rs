//! What the command line takes, and what comes out.

use std::path::Path;

use clap::CommandFactory;
use keylane_testkit::scenario::paused;
use tempfile::TempDir;

use crate::arguments::Arguments;
use crate::experiment::{self, RunError};
use crate::support::{assert_well_formed, parse};

const TINY: [&str; 10] = [
    "--seconds",
    "0.3",
    "--users",
    "6",
    "--lanes",
    "2",
    "--slow-ms",
    "20",
    "--crowd",
    "200",
];

#[test]
fn the_table_says_what_happened_and_the_picture_is_where_it_says() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a picture.svg");
    let (good, text) = run(&file).unwrap();
    assert!(good);
    for (design, key) in [
        ("one worker", "key: ()"),
        ("a task and a queue per user", "plain Tokio"),
        ("static lanes", "key: hash_lane(2, user)"),
        ("keylane by user", "key: user"),
    ] {
        let row = text.lines().find(|line| line.starts_with(design)).unwrap();
        let cells: Vec<&str> = row[design.len()..]
            .split("  ")
            .filter(|cell| !cell.is_empty())
            .collect();
        let (handled, sent) = cells[1].trim().split_once('/').unwrap();
        assert_eq!(handled, sent, "{row}");
        assert_ne!(handled, "0", "{row}");
        assert_eq!(cells[2].trim(), "0", "order breaks: {row}");
        // The worst users of each design, and what it keeps, follow in tables of their own.
        assert_eq!(
            text.lines().filter(|line| line.starts_with(design)).count(),
            3
        );
        let picture = std::fs::read_to_string(&file).unwrap();
        assert!(picture.contains(&format!(">{key}<")), "{key}");
    }
    let crowd = folder.path().join("many_users.svg");
    for file in [&file, &crowd] {
        assert!(text.contains(&format!("picture: {}\n", file.display())));
        assert_well_formed(&std::fs::read_to_string(file).unwrap());
    }
    let is_picture = |line: &str| line.starts_with("picture: ");
    let wide = text
        .lines()
        .filter(|line| !is_picture(line) && line.chars().count() > 100);
    assert_eq!(wide.collect::<Vec<_>>(), [""; 0]);
    let picture = std::fs::read_to_string(&file).unwrap();
    assert_well_formed(&picture);
    assert_eq!(picture.matches("<g id=\"panel-").count(), 4);
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error_and_the_table_is_there() {
    let folder = TempDir::new().unwrap();
    let error = run(&folder.path().join("missing/a.svg")).unwrap_err();
    assert!(matches!(error, RunError::Picture { .. }), "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn the_default_goes_to_the_temporary_files() {
    let out = parse(&[]).unwrap().out();
    assert_eq!(out, std::env::temp_dir().join("four_designs.svg"));
    let given = parse(&["--out", "a/b.svg"]).unwrap();
    assert_eq!(given.out(), Path::new("a/b.svg"));
    assert_eq!(given.crowd_out(), Path::new("a/many_users.svg"));
    let given = parse(&["--crowd-out", "c.svg"]).unwrap();
    assert_eq!(given.crowd_out(), Path::new("c.svg"));
}

#[test]
fn the_help_names_each_option() {
    let help = Arguments::command().render_help().to_string();
    for option in [
        "--seconds",
        "--users",
        "--lanes",
        "--slow-ms",
        "--out",
        "--crowd",
        "--crowd-out",
    ] {
        assert!(help.contains(option), "{help}");
    }
}

#[test]
fn nonsense_is_refused() {
    for options in [
        ["--seconds", "0"],
        ["--seconds", "61"],
        ["--seconds", "NaN"],
        ["--users", "1"],
        ["--users", "501"],
        ["--lanes", "0"],
        ["--lanes", "-1"],
        ["--lanes", "1025"],
        ["--slow-ms", "0"],
        ["--slow-ms", "x"],
        ["--crowd", "1000001"],
    ] {
        assert!(parse(&options).is_err(), "{options:?}");
    }
}

fn run(file: &Path) -> Result<(bool, String), RunError> {
    let file = file.to_str().unwrap();
    let arguments = parse(&[&TINY[..], &["--out", file]].concat()).unwrap();
    let mut text = Vec::new();
    let good = paused().block_on(experiment::run(&arguments, &mut text))?;
    Ok((good, String::from_utf8(text).unwrap()))
}
