//! The messages in the chapter of mistakes are those that keylane gives.

use std::fs;
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

/// What is logged needs a server or time: their tests are in the crates.
#[test]
fn what_is_logged() {
    let sources: String = files("crates", ".rs").into_values().collect();
    // A text in the source may be broken with a backslash.
    let mut words: Vec<&str> = sources.split_whitespace().collect();
    words.retain(|word| *word != "\\");
    let sources = words.join(" ");
    for message in messages("In operation, in the log") {
        assert!(
            sources.contains(&message),
            "{message:?} is nowhere in the sources"
        );
    }
}
