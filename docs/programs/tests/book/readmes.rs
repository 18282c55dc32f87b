//! What READMEs have to say.

use std::collections::BTreeSet;

use crate::book::{files, root};
use crate::markdown::prose;

/// Crates whose lines are about no message, or name none by its key.
const WITHOUT_KEYS: [&str; 6] = [
    "keylane-connector",
    "keylane-queue",
    "keylane-rt",
    "keylane-semaphore",
    "keylane-source",
    "keylane-stream",
];

/// Logs nothing itself: its spans are beside the lines of the dispatcher, which have the key.
const BESIDE_A_LOG: &str = "keylane-otel";

fn logs(source: &str) -> bool {
    let code = source.split("#[cfg(test)]").next().unwrap();
    let lines = code.lines().map(str::trim_start);
    let mut lines = lines.filter(|line| !line.starts_with("//"));
    lines.any(|line| {
        ["error!(", "warn!(", "info!(", "debug!(", "trace!("]
            .iter()
            .any(|call| line.contains(call))
    })
}

/// Returns the crates of users that write into the log.
fn crates_that_log() -> BTreeSet<String> {
    let mut found = BTreeSet::from([BESIDE_A_LOG.to_owned()]);
    for (path, source) in files("crates", ".rs") {
        let mut parts = path.iter().skip(1).map(|part| part.to_str().unwrap());
        let (krate, folder) = (parts.next().unwrap(), parts.next().unwrap());
        if krate.starts_with("keylane") && folder == "src" && logs(&source) {
            found.insert(krate.to_owned());
        }
    }
    found.remove("keylane-testkit");
    found
}

fn readme(krate: &str) -> String {
    std::fs::read_to_string(root().join(format!("crates/{krate}/README.md"))).unwrap()
}

#[test]
fn each_readme_of_a_crate_that_logs_says_how_keys_are_shown() {
    let crates = crates_that_log();
    for krate in WITHOUT_KEYS {
        assert!(
            crates.contains(krate),
            "{krate} does not log: remove it here"
        );
    }
    for krate in crates.iter().filter(|of| !WITHOUT_KEYS.contains(&&***of)) {
        let says = prose(&readme(krate)).contains("`trace_keys()`");
        assert!(
            says,
            "crates/{krate}/README.md: name `trace_keys()` where it logs keys, or not"
        );
    }
    assert!(crates.len() > 15, "{crates:?}");
}

/// Where messages may have no key, there is one form: `key_by_opt`, and `decode` with an error.
#[test]
fn no_readme_makes_a_key_where_there_is_none() {
    for (path, text) in files("crates", "README.md") {
        let lines = text.lines();
        let wrong = lines.filter(|line| line.contains("key") && line.contains("unwrap_or"));
        assert_eq!(wrong.collect::<Vec<_>>(), [""; 0], "{}", path.display());
        let reads = ["raw.key", "order.key", "record.key()"]
            .iter()
            .any(|of| text.contains(of));
        let says = prose(&text).replace('\n', " ");
        let is_said =
            says.contains("without a key") || says.contains("has a key, which may be empty");
        assert!(
            !reads || is_said,
            "{}: say what happens without a key",
            path.display()
        );
    }
    let programs = files("docs/programs/src", ".rs");
    for (path, text) in programs {
        let wrong = text
            .lines()
            .filter(|line| line.contains("key") && line.contains("unwrap_or"));
        assert_eq!(wrong.collect::<Vec<_>>(), [""; 0], "{}", path.display());
    }
}

#[test]
fn a_line_of_the_log_is_found() {
    assert!(logs("fn a() {\n    tracing::warn!(key, \"it waits\");\n}"));
    assert!(!logs(
        "// tracing::warn!(key)\n#[cfg(test)]\nmod tests { warn!() }"
    ));
}
