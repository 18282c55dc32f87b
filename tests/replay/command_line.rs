//! What the command line takes, and what it refuses.

use std::time::Duration;

use clap::Parser;

use crate::arguments::Arguments;
use crate::report::{duration, grouped};

#[test]
fn the_default_is_the_dynamic_design_here_and_without_work() {
    let arguments = parse(&[]).unwrap();
    assert_eq!(designs(&arguments), ["dynamic"]);
    assert_eq!(arguments.path.to_str(), Some("."));
    assert_eq!(arguments.work, Duration::ZERO);
}

#[test]
fn designs_are_named_one_or_several() {
    let named = ["--design", "single,static:12", "--design", "per-key"];
    assert_eq!(
        designs(&parse(&named).unwrap()),
        ["single", "static:12", "per-key"]
    );
    // With as many workers as others have handlers in flight, or it would lose for want of slots.
    let all = designs(&parse(&["--all", "--concurrency", "7"]).unwrap());
    assert_eq!(all, ["single", "per-key", "static:7", "dynamic"]);
}

#[test]
fn work_is_microseconds_or_has_a_unit() {
    for (text, work) in [
        ("0", Duration::ZERO),
        ("250", Duration::from_micros(250)),
        ("250us", Duration::from_micros(250)),
        ("5ms", Duration::from_millis(5)),
        ("1s", Duration::from_secs(1)),
    ] {
        assert_eq!(parse(&["--work", text]).unwrap().work, work);
    }
}

#[test]
fn nonsense_is_refused() {
    for arguments in [
        ["--design", "static"],
        ["--design", "static:0"],
        ["--design", "static:-1"],
        ["--design", "static:99999999999"],
        ["--design", "dynamic:3"],
        ["--design", ""],
        ["--work", "-1"],
        ["--work", "1h"],
        ["--work", "ms"],
        ["--work", "99999999999999999999"],
        ["--concurrency", "0"],
        ["--capacity", "0"],
        ["--capacity", "99999999999"],
        ["--all", "--design=single"],
    ] {
        assert!(parse(&arguments).is_err(), "{arguments:?}");
    }
}

#[test]
fn numbers_are_grouped_and_times_have_three_digits() {
    assert_eq!(
        [0, 999, 1_000, 1_234_567].map(grouped),
        ["0", "999", "1,000", "1,234,567"]
    );
    let nanos = [0, 999, 1_500, 25_040, 312_000, 4_200_000, 61_000_000_000];
    let shown = nanos.map(|nanos| duration(Duration::from_nanos(nanos)));
    assert_eq!(
        shown,
        [
            "0 ns", "999 ns", "1.50 µs", "25.0 µs", "312 µs", "4.20 ms", "61.0 s"
        ]
    );
}

fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(["replay"].iter().chain(arguments))
}

fn designs(arguments: &Arguments) -> Vec<String> {
    arguments
        .designs()
        .iter()
        .map(ToString::to_string)
        .collect()
}
