//! What an error shows: `main` and `unwrap` print its `Debug`, so that has its text.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use keylane::error::{
    BuildError, ConsumeError, LaneError, ReceiptError, ReserveError, ResizeError, SendError,
    TrySendError,
};
use keylane::source::SourceError;

/// Between a connector and its driver; a user never gets it.
const OF_DRIVERS: &str = "End";

/// A type of the user that cannot be shown.
struct Message;

#[test]
fn each_error_of_the_engine_says_the_same_both_ways() {
    let shown: [(String, String); 14] = [
        both(&SendError::Closed(Message)),
        both(&TrySendError::Full(Message)),
        both(&ReserveError),
        both(&ResizeError::Zero),
        both(&ReceiptError::<Message, &str>::Stopped),
        both(&BuildError::Zero("capacity")),
        both(&ConsumeError::Discards),
        both(&ConsumeError::from(SourceError::unsupported("go back"))),
        both(&LaneError::InFlight(Message)),
        both(&keylane_queue::SpawnError::NoRuntime),
        both(&keylane_queue::TryEnqueueError::Full(Message)),
        both(&keylane_queue::TryDequeueError::Empty),
        both(&keylane_semaphore::SettingError::Shards(3)),
        both(&keylane_semaphore::TryAcquireError::Closed(Message)),
    ];
    for (text, debug) in shown {
        println!("{text}\n{debug}\n");
        assert!(debug.starts_with(&text), "{debug}");
        assert!(!debug.contains(['{', '\n']), "{debug}");
        assert!(
            !text.ends_with('.') && !text.starts_with(char::is_uppercase),
            "{text}"
        );
    }
    let discards = ConsumeError::Discards;
    let text = "a failed message of the source would be discarded: set `on_exhausted` on the \
                dispatcher (Discards)";
    assert_eq!(format!("{discards:?}"), text);
}

fn both(error: &dyn Error) -> (String, String) {
    (error.to_string(), format!("{error:?}"))
}

#[test]
fn no_published_error_has_a_debug_of_its_fields_alone() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = tests.parent().unwrap().join("crates");
    let mut count = 0;
    for file in sources(&crates) {
        let path = file.to_string_lossy();
        if path.contains("testkit") || path.contains("/tests/") {
            continue;
        }
        let source = fs::read_to_string(&file).unwrap();
        for name in errors_in(&source)
            .into_iter()
            .filter(|name| *name != OF_DRIVERS)
        {
            count += 1;
            assert!(
                shows_its_text(&source, name),
                "{path}: {name} needs `text_in_debug!`"
            );
        }
    }
    assert!(count > 50, "{count} errors");
}

#[test]
fn an_error_with_a_derived_debug_is_found() {
    let derived = "#[derive(Error, Debug)]\n#[error(\"it is full\")]\npub enum Full {}";
    assert_eq!(errors_in(derived), ["Full"]);
    assert!(!shows_its_text(derived, "Full"));
    let by_hand = "pub struct Full;\nimpl<M> std::error::Error for Full<M> {}";
    assert_eq!(errors_in(by_hand), ["Full"]);
    assert!(shows_its_text("text_in_debug! { Full<M>: A }", "Full"));
    assert!(!shows_its_text("text_in_debug! { Fuller }", "Full"));
}

/// Returns the names of the public errors of a file.
fn errors_in(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut lines = source.lines().map(str::trim_start);
    while let Some(line) = lines.next() {
        let derives = line.strip_prefix("#[derive(");
        if derives.is_some_and(|list| list.split([',', ')']).any(is_error)) {
            let item = lines.find(|line| line.contains("enum ") || line.contains("struct "));
            let name = item.and_then(|item| {
                name_behind(item, "enum ").or_else(|| name_behind(item, "struct "))
            });
            names.extend(name);
        } else if line.starts_with("impl") {
            names.extend(name_behind(line, "Error for "));
        }
    }
    names.retain(|name| {
        let is_public = |kind| source.contains(&format!("pub {kind} {name}"));
        is_public("enum") || is_public("struct")
    });
    names
}

fn is_error(derive: &str) -> bool {
    matches!(derive.trim(), "Error" | "thiserror::Error")
}

/// Returns the name behind these words.
fn name_behind<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(words)?;
    rest.split(|c: char| !c.is_alphanumeric()).next()
}

fn shows_its_text(source: &str, name: &str) -> bool {
    let with_macro = source
        .split("text_in_debug! {")
        .skip(1)
        .map(str::trim_start);
    let mut named = with_macro.filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
    let by_hand = source.split(&format!("fmt::Debug for {name} ")).nth(1);
    named.any(|shown| shown == name) || by_hand.is_some_and(|code| code.contains("{self}"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found
}
