//! The alerts name what is published, and each fires when it must.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::names::all;
use crate::query::Query;

const ALERTS: &str = include_str!("../../prometheus/alerts.yml");
const TESTS: &str = include_str!("../../prometheus/alerts.test.yml");

/// What follows a name in each line that begins with it. Each value is in one line.
fn values<'a>(file: &'a str, name: &str) -> Vec<&'a str> {
    let value = |line: &'a str| {
        let line = line.trim_start().trim_start_matches("- ");
        Some(line.strip_prefix(name)?.strip_prefix(':')?.trim())
    };
    file.lines().filter_map(value).collect()
}

/// The expressions of the alerts.
pub(crate) fn expressions() -> Vec<&'static str> {
    values(ALERTS, "expr")
}

#[test]
fn each_alert_names_what_is_published() {
    let all = all();
    let expressions = expressions();
    assert_eq!(expressions.len(), values(ALERTS, "alert").len());
    for expression in expressions {
        let query = Query::parse(expression);
        assert!(!query.metrics(&all).is_empty(), "{expression}");
    }
}

#[test]
fn each_alert_says_what_to_do_and_has_a_severity() {
    let alerts = values(ALERTS, "alert").len();
    for name in ["severity", "summary", "description"] {
        assert_eq!(values(ALERTS, name).len(), alerts, "{name}");
    }
    for severity in values(ALERTS, "severity") {
        assert!(["critical", "warning", "info"].contains(&severity));
    }
}

/// Each alert is tested twice: before it fires, and when it does.
#[test]
fn each_alert_has_a_test_in_which_it_fires() {
    let alerts = values(ALERTS, "alert");
    let distinct: BTreeSet<&str> = alerts.iter().copied().collect();
    assert_eq!(distinct.len(), alerts.len());
    let tested = values(TESTS, "alertname");
    for alert in alerts {
        let times = tested.iter().filter(|tested| **tested == alert).count();
        assert_eq!(times, 2, "{alert}");
    }
    let silent = values(TESTS, "exp_alerts");
    let fires = silent.iter().filter(|expected| expected.is_empty()).count();
    assert_eq!(fires * 2, silent.len(), "each test has both");
}

/// `promtool` of Prometheus reads the file and evaluates the alerts over the series of the tests.
#[test]
fn promtool_finds_the_alerts_correct_and_they_fire() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("prometheus");
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        promtool.args(arguments).current_dir(&folder);
        let output = promtool
            .output()
            .expect("promtool is missing: run `cargo xtask setup`");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}\n{text}{errors}");
        assert!(text.contains("SUCCESS"), "{text}");
    }
}
