//! A large backlog in little memory, and a hot key that is blocked for ever.
//!
//! With `KEYLANE_BACKLOG` the ignored tests take so many messages instead of 10 million, and with
//! `KEYLANE_BACKLOG_DIRECTORY` they are stored below that.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keylane::source::RawMessage;
use keylane::{Context, OnExhausted};
use keylane_inbox::{Inbox, NewMessage, SyncMode};
use keylane_testkit::scenario::by_key;
use tempfile::TempDir;

use crate::support::{id_of, key_of, open};

/// Messages of each shape in the test command.
const FEW: u64 = 200_000;

/// Most memory of a process that consumes, in KiB.
const MOST: u64 = 256 << 10;

#[test]
fn a_backlog_on_one_key() {
    consumed(FEW, Shape::Keys(1));
}

#[test]
fn a_backlog_on_many_keys() {
    consumed(FEW, Shape::Keys(10_000));
}

#[test]
fn a_backlog_on_as_many_keys_as_messages() {
    consumed(FEW, Shape::Keys(FEW));
}

#[test]
#[ignore = "10 million messages"]
fn a_large_backlog_on_one_key() {
    consumed(many(), Shape::Keys(1));
}

#[test]
#[ignore = "10 million messages"]
fn a_large_backlog_on_many_keys() {
    consumed(many(), Shape::Keys(10_000));
}

#[test]
#[ignore = "10 million messages"]
fn a_large_backlog_on_as_many_keys_as_messages() {
    consumed(many(), Shape::Keys(many()));
}

/// I15, as a figure: what the other keys do in a second, with the hot key and without.
#[test]
fn a_blocked_key_with_half_of_all_messages_leaves_the_others_their_throughput() {
    blocked(FEW, Duration::ZERO);
}

#[test]
#[ignore = "10 million messages"]
fn a_blocked_key_with_half_of_a_large_backlog() {
    blocked(many(), Duration::ZERO);
}

#[test]
#[ignore = "10 million messages"]
fn a_blocked_key_with_half_of_a_large_backlog_beside_handlers_that_wait() {
    blocked(many(), Duration::from_millis(2));
}

/// What the other keys do in a second: alone, beside a hot key that is blocked for ever, and beside
/// one that is not. Each handler takes so long.
fn blocked(count: u64, work: Duration) {
    let alone = consumed_by(work, count / 2, Shape::Keys(1_000));
    let [beside_blocked, beside_free] = [true, false].map(|is_blocked| {
        let others = 1_000;
        consumed_by(work, count, Shape::HotAnd { others, is_blocked })
    });
    println!(
        "{count} messages, half of them of one key, handlers of {work:?}: the others do \
         {beside_blocked:.0}/s while it is blocked, {:.2} of what they do while it is not, and \
         {:.2} of what they do alone",
        beside_blocked / beside_free,
        beside_blocked / alone,
    );
}

fn many() -> u64 {
    std::env::var("KEYLANE_BACKLOG").map_or(10_000_000, |count| count.parse().unwrap())
}

/// The keys of a backlog.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// So many, in turn.
    Keys(u64),
    /// Every second message is of the key 0, and the rest of so many others.
    HotAnd { others: u64, is_blocked: bool },
}

impl Shape {
    fn key(self, n: u64) -> u64 {
        match self {
            Self::Keys(keys) => 1 + n % keys,
            Self::HotAnd { .. } if n.is_multiple_of(2) => 0,
            Self::HotAnd { others, .. } => 1 + n / 2 % others,
        }
    }

    /// How many of so many messages are not of the hot key.
    fn others(self, count: u64) -> u64 {
        match self {
            Self::Keys(_) => count,
            Self::HotAnd { .. } => count / 2,
        }
    }

    fn is_blocked(self) -> bool {
        match self {
            Self::Keys(_) => false,
            Self::HotAnd { is_blocked, .. } => is_blocked,
        }
    }
}

/// Stores messages, and has a process handle those that are not of the hot key, in the order of their
/// keys. Returns how many it handles in a second.
fn consumed(count: u64, shape: Shape) -> f64 {
    consumed_by(Duration::ZERO, count, shape)
}

fn consumed_by(work: Duration, count: u64, shape: Shape) -> f64 {
    let directory = match std::env::var_os("KEYLANE_BACKLOG_DIRECTORY") {
        Some(below) => TempDir::new_in(below),
        None => TempDir::new(),
    };
    let directory = directory.unwrap();
    let began = Instant::now();
    store(directory.path(), count, shape);
    let stored = began.elapsed();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::child", "--nocapture"])
        .env("KEYLANE_INBOX_CHILD_OF_MEMORY", directory.path())
        .env("KEYLANE_INBOX_ALL", count.to_string())
        .env("KEYLANE_INBOX_OTHERS", shape.others(count).to_string())
        .env(
            "KEYLANE_INBOX_BLOCKED",
            u8::from(shape.is_blocked()).to_string(),
        )
        .env("KEYLANE_INBOX_WORK_US", work.as_micros().to_string())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    let output = String::from_utf8(output.stdout).unwrap();
    let figure = |name: &str| -> u64 {
        let line = output.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{output}"))
            .trim()
            .parse()
            .unwrap()
    };
    let (opened, took, most) = (figure("opened_us"), figure("took_us"), figure("most_kib"));
    let per_second = shape.others(count) as f64 / (took as f64 / 1e6);
    println!(
        "{count} messages, {shape:?}: stored in {stored:.1?}, opened in {:.1?}, {per_second:.0} \
         handled per second, at most {} MiB, of which {} MiB when it was open",
        Duration::from_micros(opened),
        most >> 10,
        figure("open_kib") >> 10,
    );
    assert!(most < MOST, "{most} KiB");
    per_second
}

fn store(directory: &Path, count: u64, shape: Shape) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        // It is about what is stored in the end.
        let inbox = Inbox::builder(directory.join("inbox"))
            .sync(SyncMode::LosesUpTo(Duration::from_secs(1)))
            .open()
            .await
            .unwrap();
        let mut n = 0;
        while n < count {
            let end = (n + 10_000).min(count);
            let messages = (n..end).map(|n| {
                let mut payload = n.to_be_bytes().to_vec();
                payload.resize(64, 7);
                NewMessage::new(shape.key(n).to_string(), payload)
            });
            inbox.accept_many(messages).await.unwrap();
            n = end;
        }
        inbox.close().await.unwrap();
    });
}

/// What is measured. Nothing, unless it is started by the tests above.
#[test]
fn child() {
    let Some(directory) = std::env::var_os("KEYLANE_INBOX_CHILD_OF_MEMORY") else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    let backlog = Backlog {
        all: number("KEYLANE_INBOX_ALL"),
        others: number("KEYLANE_INBOX_OTHERS"),
        is_blocked: number("KEYLANE_INBOX_BLOCKED") == 1,
    };
    let work = Duration::from_micros(number("KEYLANE_INBOX_WORK_US"));
    runtime.block_on(run(PathBuf::from(directory), backlog, work));
}

/// What is stored, and whether the key 0 is blocked for ever.
struct Backlog {
    all: u64,
    others: u64,
    is_blocked: bool,
}

async fn run(directory: PathBuf, backlog: Backlog, work: Duration) {
    let Backlog {
        all,
        others,
        is_blocked,
    } = backlog;
    let began = Instant::now();
    let inbox = open(&directory).await;
    let opened = began.elapsed();
    let open_kib = most_kib();
    let others_handled = Arc::new(AtomicU64::new(0));
    let dispatcher = by_key()
        .on_exhausted(OnExhausted::AtSource)
        .spawn({
            let others_handled = Arc::clone(&others_handled);
            move |_: Context<_>, message: RawMessage| {
                let others_handled = Arc::clone(&others_handled);
                async move {
                    let is_hot = key_of(&message) == Some(0);
                    if is_hot && is_blocked {
                        std::future::pending::<()>().await;
                    }
                    assert_eq!(message.payload.len(), 64);
                    let _ = id_of(&message);
                    if !work.is_zero() {
                        tokio::time::sleep(work).await;
                    }
                    others_handled.fetch_add(u64::from(!is_hot), Ordering::Relaxed);
                    Ok(())
                }
            }
        })
        .unwrap();
    let began = Instant::now();
    let intake = dispatcher.consume(inbox.source()).unwrap();
    while others_handled.load(Ordering::Relaxed) < others {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = began.elapsed();
    while inbox.stats().await.unwrap().waiting > all - others {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(others_handled.load(Ordering::Relaxed), others);
    println!("\nopened_us {}", opened.as_micros());
    println!("open_kib {open_kib}");
    println!("took_us {}", took.as_micros());
    println!("most_kib {}", most_kib());
    let report = intake.stop().within(Duration::ZERO).await;
    crate::support::adds_up(&report);
    inbox.close().await.unwrap();
}

/// The most memory that this process has had.
fn most_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse().ok()).unwrap()
}
