//! What an error shows: `main` and `unwrap` print its `Debug`, so that has its text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keylane::source::SourceError;
use keylane_testkit::error_texts;

/// A type of the user that cannot be shown.
struct Message;

/// Public types that are no errors of a caller, or are shown in another way, and why.
const LEFT_OUT: [(&str, &str); 4] = [
    // Between a connector and its driver: a user never gets it.
    ("keylane_connector", "End"),
    // A setting: what to do about errors.
    ("keylane_stream", "OnError"),
    // Their `Debug` begins on a line of its own, for the panic message of an `expect` in a test:
    // `check/tests/judge.rs` in the crate prints both forms of a violation.
    ("keylane_testkit", "Violation"),
    ("keylane_testkit", "Broken"),
];

#[test]
fn each_error_of_the_engine_says_the_same_both_ways() {
    use keylane::error::{Failure, *};
    let ttl = Duration::ZERO;
    error_texts! {
        keylane::error::SendError<Message> =>
            SendError::Closed(Message),
            SendError::LaneFull(Message),
            SendError::TooLarge(Message),
            SendError::TooFar(Message);
        keylane::error::TrySendError<Message> =>
            TrySendError::Full(Message),
            TrySendError::LaneFull(Message),
            TrySendError::TooLarge(Message),
            TrySendError::TooFar(Message),
            TrySendError::Closed(Message);
        keylane::error::ReserveError => ReserveError;
        keylane::error::ResizeError => ResizeError::Zero, ResizeError::TooMany, ResizeError::Closed;
        keylane::error::ReceiptError<Message, &str> =>
            ReceiptError::Failed(Failure::Error("no answer")),
            ReceiptError::DeadLettered(Failure::LaneFull),
            ReceiptError::HandedBack { message: Message, attempts: 0 },
            ReceiptError::HandedBack { message: Message, attempts: 2 },
            ReceiptError::Dropped(Message),
            ReceiptError::Purged(Message),
            ReceiptError::Declined(Message),
            ReceiptError::Superseded(Message),
            ReceiptError::Merged { handled: true },
            ReceiptError::Duplicate(Message),
            ReceiptError::Expired(Message),
            ReceiptError::Interrupted(None),
            ReceiptError::Stopped;
        keylane::error::BuildError =>
            BuildError::NoRuntime,
            BuildError::NoTimers,
            BuildError::Zero("capacity"),
            BuildError::TooLarge("capacity"),
            BuildError::EmptyRange { min: 9, max: 1 },
            BuildError::Shards(3),
            BuildError::Conflict("batch", "rate"),
            BuildError::Batch,
            BuildError::Needs("share_answers", "coalesce"),
            BuildError::AnswerType,
            BuildError::NoDeadLetterSink;
        keylane::error::ConsumeError =>
            ConsumeError::Closed,
            ConsumeError::Discards,
            ConsumeError::NoDeadLetters,
            ConsumeError::NoVersions,
            ConsumeError::Zero("in_flight"),
            ConsumeError::Source(SourceError::unsupported("go back"));
        keylane::error::LaneError<Message> =>
            LaneError::NotHalted(Message),
            LaneError::InFlight(Message),
            LaneError::OtherKey(Message),
            LaneError::TooLarge(Message);
        keylane_source::Failure<&str> =>
            Failure::Error("no answer"),
            Failure::Panicked("at line 3".to_owned()),
            Failure::TimedOut(ttl),
            Failure::NotRecorded("no answer".to_owned()),
            Failure::Crashed;
    }
    let discards = ConsumeError::Discards;
    let text = "a failed message of the source would be discarded: set `on_exhausted` on the \
                dispatcher (Discards)";
    assert_eq!(format!("{discards:?}"), text);
}

#[test]
fn each_error_of_the_contract_of_sources_says_the_same_both_ways() {
    use keylane_source::{frontier, lease::LaneLeaseError};
    error_texts! {
        keylane_source::SourceError =>
            SourceError::failed("no answer"),
            SourceError::unsupported("go back"),
            SourceError::pending();
        keylane_source::lease::LaneLeaseError =>
            LaneLeaseError::Closed,
            LaneLeaseError::Failed("no answer".into());
        keylane_source::frontier::DeliverError =>
            frontier::DeliverError::TooManyOpen,
            frontier::DeliverError::TooHigh;
        keylane_source::frontier::DecodeError =>
            frontier::DecodeError::Unsupported,
            frontier::DecodeError::Corrupt;
    }
}

#[test]
fn each_error_of_queue_and_semaphore_says_the_same_both_ways() {
    use keylane_queue::{EnqueueError, LeaseError, SpawnError, TryDequeueError, TryEnqueueError};
    use keylane_semaphore::{AcquireError, SettingError, TryAcquireError, TryReserveError};
    error_texts! {
        keylane_queue::SpawnError => SpawnError::NoRuntime, SpawnError::Zero("shards");
        keylane_queue::EnqueueError<Message> =>
            EnqueueError::LaneFull(Message),
            EnqueueError::Closed(Message);
        keylane_queue::TryEnqueueError<Message> =>
            TryEnqueueError::Full(Message),
            TryEnqueueError::Closed(Message);
        keylane_queue::TryDequeueError => TryDequeueError::Empty, TryDequeueError::Closed;
        keylane_queue::LeaseError => LeaseError::Expired, LeaseError::Zero, LeaseError::TooLong;
        keylane_semaphore::SettingError => SettingError::Shards(3), SettingError::Zero("shards");
        keylane_semaphore::Closed => keylane_semaphore::Closed;
        keylane_semaphore::AcquireError<Message> =>
            AcquireError::LaneFull(Message),
            AcquireError::Closed(Message);
        keylane_semaphore::TryAcquireError<Message> =>
            TryAcquireError::NoPermits(Message),
            TryAcquireError::Closed(Message);
        keylane_semaphore::TryReserveError => TryReserveError::Full, TryReserveError::Closed;
    }
}

#[test]
fn each_error_of_leases_and_leaders_says_the_same_both_ways() {
    use keylane_leader::error::{CandidateError, CommandError, WatchEnded};
    use keylane_leases::error::{AcquireError, LeaseLost, OpenError, StoreError};
    let ttl = Duration::ZERO;
    error_texts! {
        keylane_leases::error::OpenError =>
            OpenError::NoRuntime,
            OpenError::NoTimers,
            OpenError::Zero("most");
        keylane_leases::error::AcquireError =>
            AcquireError::Taken { remaining: ttl },
            AcquireError::Full,
            AcquireError::Ttl(ttl),
            AcquireError::Closed,
            AcquireError::Store(StoreError::new("no answer"));
        keylane_leases::error::LeaseLost =>
            LeaseLost::RanOut,
            LeaseLost::Released,
            LeaseLost::TakenOver,
            LeaseLost::Closed;
        keylane_leases::error::StoreError => StoreError::new("no answer");
        keylane_leader::error::CandidateError =>
            CandidateError::Ttl(ttl),
            CandidateError::TtlOfStore { ttl, longest: ttl },
            CandidateError::Zero("step_down"),
            CandidateError::Id("a/b".to_owned());
        keylane_leader::error::CommandError => CommandError::NotLeading, CommandError::Over;
        keylane_leader::error::WatchEnded => WatchEnded;
    }
}

#[test]
fn each_public_error_is_in_a_table_of_its_crate() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut printed = printed_in(
        "",
        &fs::read_to_string(tests.join("types/errors.rs")).unwrap(),
    );
    let mut public = BTreeSet::new();
    for (krate, source) in sources_of_crates() {
        printed.extend(printed_in(&krate, &source));
        let names = errors_in(&source).into_iter();
        public.extend(names.map(|name| (krate.clone(), name.to_owned())));
    }
    let left_out = LEFT_OUT.map(|(krate, name)| (krate.to_owned(), name.to_owned()));
    let gone: Vec<_> = left_out.iter().filter(|of| !public.contains(of)).collect();
    assert!(gone.is_empty(), "left out, and not there: {gone:?}");
    let public: Vec<_> = public.iter().filter(|of| !left_out.contains(of)).collect();
    let missing: Vec<_> = public.iter().filter(|of| !printed.contains(of)).collect();
    assert!(
        missing.is_empty(),
        "add to `error_texts!` of a test: {missing:?}"
    );
    assert!(public.len() > 60, "{} errors", public.len());
}

#[test]
fn errors_and_tables_are_read() {
    let derived = "#[derive(Error, Debug)]\n#[error(\"it is full\")]\npub enum Full {}";
    assert_eq!(errors_in(derived), ["Full"]);
    let by_hand = "pub struct Full;\nimpl<M> std::error::Error for Full<M> {}";
    assert_eq!(errors_in(by_hand), ["Full"]);
    let by_name = "#[derive(Debug)]\npub struct SinkError;\npub enum Error<E> {}\npub enum Kind {}";
    assert_eq!(errors_in(by_name), ["SinkError", "Error"]);
    let hidden = "#[derive(Error)]\npub(crate) enum Full {}\npub(super) struct AnError;";
    assert_eq!(errors_in(hidden), [""; 0]);
    let table = "a => b;\n  error_texts! {\n  Full<M> => Full::Of(a => b);\n  One =>\n  \
                 One::Two { a },\n  }\n  Not => a;\n error_texts! {\n keylane_x::y::Z => 1;\n}";
    let of = |krate: &str, name: &str| (krate.to_owned(), name.to_owned());
    let read = [of("k", "Full"), of("k", "One"), of("keylane_x", "Z")];
    assert_eq!(printed_in("k", table), BTreeSet::from(read));
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
    names.extend(source.lines().filter_map(named_as_an_error));
    names.retain(|name| {
        let is_public = |kind| source.contains(&format!("pub {kind} {name}"));
        is_public("enum") || is_public("struct")
    });
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    names
}

fn named_as_an_error(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let item = line
        .strip_prefix("pub enum ")
        .or_else(|| line.strip_prefix("pub struct "))?;
    let name = item.split(|c: char| !c.is_alphanumeric()).next()?;
    name.ends_with("Error").then_some(name)
}

fn is_error(derive: &str) -> bool {
    matches!(derive.trim(), "Error" | "thiserror::Error")
}

/// Returns the name behind these words.
fn name_behind<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(words)?;
    rest.split(|c: char| !c.is_alphanumeric()).next()
}

/// Returns the types in the tables of a file: of the crate that their path begins with, or of this
/// one.
fn printed_in(krate: &str, source: &str) -> BTreeSet<(String, String)> {
    let tables = source.split("error_texts! {\n").skip(1);
    let lines = tables.flat_map(|table| table.lines().take_while(|line| line.trim() != "}"));
    let types = lines.filter_map(|line| line.split_once(" =>"));
    types
        .map(|(named, _)| {
            let path = named.split('<').next().unwrap_or(named).trim();
            let (first, name) = (path.split("::").next(), path.rsplit("::").next());
            let of = first.filter(|first| first.starts_with("keylane"));
            (
                of.unwrap_or(krate).to_owned(),
                name.unwrap_or_default().to_owned(),
            )
        })
        .collect()
}

/// Returns the sources of the crates of users, with the name of the crate.
fn sources_of_crates() -> Vec<(String, String)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for entry in fs::read_dir(tests.parent().unwrap().join("crates")).unwrap() {
        let entry = entry.unwrap();
        let krate = entry.file_name().to_string_lossy().replace('-', "_");
        if krate.starts_with("keylane") {
            let files = sources(&entry.path().join("src")).into_iter();
            all.extend(files.map(|file| (krate.clone(), fs::read_to_string(file).unwrap())));
        }
    }
    all
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
