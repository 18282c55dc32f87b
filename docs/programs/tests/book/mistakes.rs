//! The messages in the chapter of mistakes are those that keylane gives.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use keylane::discipline::{Coalesce, Sequence};
use keylane::source::RawMessage;
use keylane::{Builder, Dispatcher, OnExhausted, Overflow};
use keylane_console::{Action, Console};
use keylane_inbox::Inbox;
use keylane_kafka::KafkaSource;
use keylane_redis::{ListQueue, Redis, StreamSource};

use crate::book::{files, root};

fn chapter() -> String {
    fs::read_to_string(root().join("docs/src/mistakes.md")).unwrap()
}

/// The messages in the second column of the table below this heading.
fn messages(heading: &str) -> Vec<String> {
    let chapter = chapter();
    let section = chapter.split(&format!("## {heading}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2);
    let said = rows.map(|row| row.split(" | ").nth(1).unwrap());
    let quoted = said.filter_map(|said| {
        let ticks = said.bytes().take_while(|byte| *byte == b'`').count();
        let mark = "`".repeat(ticks);
        let inside = said.strip_prefix(&mark).filter(|_| ticks > 0)?;
        Some(inside.split(&mark).next()?.trim().to_owned())
    });
    quoted.collect()
}

/// Each message of this table is in one of these errors, and each error has one.
fn assert_said(heading: &str, errors: &[String]) {
    let messages = messages(heading);
    for message in &messages {
        let is_said = errors.iter().any(|error| error.contains(&**message));
        assert!(is_said, "{message:?} is in none of {errors:#?}");
    }
    assert_eq!(messages.len(), errors.len(), "{messages:#?} {errors:#?}");
}

type Plain<F> = Builder<u64, u64, std::io::Error, F>;

fn orders() -> Plain<impl Fn(&u64) -> Option<u64> + Send + Sync + 'static> {
    Dispatcher::builder(|order: &u64| *order)
}

async fn bill(_: u64) -> Result<(), std::io::Error> {
    Ok(())
}

async fn raw(_: RawMessage) -> Result<(), std::io::Error> {
    Ok(())
}

fn text<T>(built: Result<T, impl std::fmt::Display>) -> String {
    built.err().expect("it is a mistake").to_string()
}

#[test]
fn what_is_built_wrongly() {
    let outside = text(orders().spawn(bill));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut said = runtime.block_on(async {
        let redis = Redis::at("redis://localhost").unwrap();
        let list = || {
            ListQueue::builder(&redis, "orders")
                .build()
                .unwrap()
                .source()
        };
        let keyed = || Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone());
        let discards = keyed().spawn(raw).unwrap();
        let at_source = keyed()
            .on_exhausted(OnExhausted::AtSource)
            .spawn(raw)
            .unwrap();
        let closed = keyed().on_exhausted(OnExhausted::Halt).spawn(raw).unwrap();
        closed.drain().await;
        vec![
            text(orders().concurrency(0).spawn(bill)),
            text(
                orders()
                    .coalesce(Coalesce::keep_latest())
                    .sequence(Sequence::contiguous(|order: &u64| *order))
                    .spawn(bill),
            ),
            text(orders().batch(10, Duration::ZERO).spawn(bill)),
            text(orders().lane_capacity(10, Overflow::DeadLetter).spawn(bill)),
            text(discards.consume(list())),
            text(at_source.consume(list())),
            text(closed.consume(list())),
        ]
    });
    said.push(outside);
    assert_said("When it is built", &said);
}

#[tokio::test]
async fn what_is_named_wrongly() {
    let redis = Redis::at("redis://localhost").unwrap();
    let kafka = || KafkaSource::builder("localhost:9092", "billing");
    let (folder, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let inbox = Inbox::open(folder.path()).await.unwrap();
    fs::write(foreign.path().join("letter.txt"), "Dear").unwrap();
    let said = [
        text(Redis::at("localhost:6379")),
        text(StreamSource::builder(&redis, "billing").build()),
        text(kafka().build()),
        text(
            kafka()
                .topic("orders")
                .property("enable.auto.commit", "true")
                .build(),
        ),
        text(Inbox::open(folder.path()).await),
        text(Inbox::open(foreign.path()).await),
        text(Console::builder().remote(["ops.example"]).build()),
        text(Console::builder().allow([Action::Pause]).build()),
    ];
    assert_said("Addresses and names", &said);
    inbox.close().await.unwrap();
}

/// The compiler is asked in `tests/compile_errors`, which keeps what it says.
#[test]
fn what_the_compiler_says() {
    let kept = files("tests/compile_errors/cases", ".stderr");
    assert_said("The compiler", &kept.into_values().collect::<Vec<_>>());
}

/// What is logged needs a server or time: the lines are those of the product, and their tests are
/// in the crates.
#[test]
fn what_is_logged() {
    let sources = files("crates", ".rs").into_iter();
    let of_users = |path: &Path| {
        let mut parts = path.iter().skip(1).map(|part| part.to_str().unwrap());
        parts.next().unwrap().starts_with("keylane") && parts.next() == Some("src")
    };
    let sources: String = sources
        .filter(|(path, _)| of_users(path))
        .map(|(_, source)| code(&source))
        .collect();
    for message in messages("In operation, in the log") {
        assert!(
            sources.contains(&message),
            "no line of the log says {message:?}"
        );
    }
}

/// The code of the product in a source text, with single spaces: without comments, tests, and the
/// backslashes that break a text.
fn code(source: &str) -> String {
    let product = source.split("#[cfg(test)]").next().unwrap();
    let lines = product.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with("//"));
    let words = lines.flat_map(str::split_whitespace);
    words
        .filter(|word| *word != "\\")
        .collect::<Vec<_>>()
        .join(" ")
        + " "
}

#[test]
fn comments_and_tests_say_nothing() {
    let source =
        "// it waits\nwarn!(\n  \"it \\\n   blocks\"\n);\n#[cfg(test)]\nmod tests { \"it fails\" }";
    assert_eq!(code(source), "warn!( \"it blocks\" ); ");
}

/// The rows that quote no message, by their mistakes, and the test that shows each.
const SHOWN: [(&str, &str, &str); 12] = [
    (
        "a wrong port, or a server that is away",
        "crates/keylane-redis/src/server.rs",
        "a_wrong_address_or_password_says_what_to_correct",
    ),
    (
        "a wrong port, or a server that is away",
        "crates/keylane-kafka/tests/broker/outages.rs",
        "a_wrong_address_is_the_last_error_soon",
    ),
    (
        "a password that is wrong or missing",
        "crates/keylane-redis/src/server.rs",
        "a_wrong_address_or_password_says_what_to_correct",
    ),
    (
        "a database that is missing, or a right in it",
        "crates/keylane-sql/tests/inbox/rights.rs",
        "a_wrong_password_or_name_says_what_to_correct",
    ),
    (
        "a database that is missing, or a right in it",
        "crates/keylane-sql/tests/inbox/rights.rs",
        "a_table_without_rights_in_postgres_stands_in_the_stats_and_recovers",
    ),
    (
        "a key of Redis that has another type",
        "crates/keylane-redis/tests/lists/hostile.rs",
        "keys_of_another_type_lose_nothing",
    ),
    (
        "a topic, a right or a server that is missing",
        "crates/keylane-kafka/tests/broker/rights.rs",
        "a_topic_that_may_not_be_read_holds_up_no_other",
    ),
    (
        "`main` returns, and nothing was drained",
        "tests/engine/settlement.rs",
        "by_the_end_of_the_runtime",
    ),
    (
        "`Retry::custom` or `u32::MAX` attempts, with short pauses",
        "tests/observe/logs.rs",
        "a_filter_chooses_what_is_logged",
    ),
    (
        "a handler under `leased_by` that acquires the lease of its own key",
        "crates/keylane-leases/tests/leases/holding.rs",
        "one_of_many_that_wait_for_a_key_asks_the_store",
    ),
    (
        "more handlers in a transaction than the pool has connections",
        "crates/keylane-sql/tests/inbox/transactions.rs",
        "handlers_wait_for_connections",
    ),
    (
        "no subscriber of `tracing`",
        "docs/programs/tests/book/mistakes.rs",
        "each_program_of_a_dispatcher_sets_up_a_subscriber",
    ),
];

/// The mistakes of all rows without a quoted message.
fn rows_without_a_quote(chapter: &str) -> BTreeSet<String> {
    let rows = chapter.lines().filter(|line| line.starts_with("| "));
    let rows = rows.filter(|row| !row.starts_with("| ---") && !row.starts_with("| mistake "));
    let cells = rows.map(|row| row.trim_start_matches("| ").split(" | "));
    let unquoted = cells.filter_map(|mut cells| {
        let (mistake, said) = (cells.next()?, cells.next()?);
        (!said.starts_with('`')).then(|| mistake.to_owned())
    });
    unquoted.collect()
}

#[test]
fn each_row_without_a_quote_is_shown_by_a_test() {
    let shown: BTreeSet<_> = SHOWN.iter().map(|(row, ..)| (*row).to_owned()).collect();
    assert_eq!(rows_without_a_quote(&chapter()), shown);
    for (row, file, name) in SHOWN {
        let source = fs::read_to_string(root().join(file)).unwrap();
        let is_there = source.contains(&format!("fn {name}("));
        assert!(is_there, "{row}: there is no {name} in {file}");
    }
    let table = "| mistake | it says | do |\n| --- | --- | --- |\n| a | `b` | c |\n| d | e | f |";
    assert_eq!(
        rows_without_a_quote(table),
        BTreeSet::from(["d".to_owned()])
    );
}

/// Without one a reader sees nothing of failures: so no program that can be copied lacks it.
#[test]
fn each_program_of_a_dispatcher_sets_up_a_subscriber() {
    for (path, program) in files("docs/programs/src", ".rs") {
        let needs = program.contains("Dispatcher::") && program.contains("fn main");
        let has = program.contains("tracing_subscriber::fmt().init();");
        assert!(!needs || has, "{} sets up no subscriber", path.display());
    }
}
