//! Messages that kill the process: each is given up on after exactly its attempts, the other keys go
//! on between the deaths, and none of their messages is given up on for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{Context, OnExhausted, Retry};
use keylane_inbox::{Letter, LetterKind, NewMessage};
use keylane_testkit::Id;
use keylane_testkit::scenario::by_key;

use crate::logged::{Line, Log, Logged};
use crate::support::{id_of, key_of, open};

const ATTEMPTS: u32 = 3;

/// Keys whose messages do not kill.
const INNOCENT: u64 = 20;

const EACH: u64 = 40;

/// Most marks of messages that have ended.
const MOST_STALE: u32 = 64;

/// The key of the messages that kill, but for the last of them.
const POISONED: u64 = 100;

#[test]
fn a_message_that_kills_the_process_is_given_up_on() {
    supervised(1);
}

#[test]
fn several_messages_that_kill_the_process_are_given_up_on() {
    supervised(4);
}

/// Starts a process until it comes to its end, and looks at what it leaves.
fn supervised(poison: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    // One after the other, in one key; behind them one that does not kill.
    for n in 0..=poison {
        all.push((POISONED, POISONED * 1_000 + n));
    }
    for n in 0..EACH {
        all.extend((0..INNOCENT).map(|key| (key, key * 1_000 + n)));
    }
    block_on(async {
        let inbox = open(directory.path()).await;
        let messages = all
            .iter()
            .map(|(key, id)| NewMessage::new(key.to_string(), id.to_be_bytes().to_vec()));
        inbox.accept_many(messages).await.unwrap();
        inbox.close().await.unwrap();
    });
    let mut deaths = 0;
    while !lives(directory.path(), poison) {
        deaths += 1;
        Log::open(directory.path()).write([Line::Crash(deaths)]);
        assert!(deaths <= 3 * poison, "it dies for ever");
    }
    assert_eq!(deaths, u64::from(ATTEMPTS) * poison);

    let letters = block_on(async {
        let inbox = open(directory.path()).await;
        assert_eq!(inbox.stats().await.unwrap().waiting, 0);
        let letters = inbox.letters().list(0, 1_000).await.unwrap();
        inbox.close().await.unwrap();
        letters
    });
    let given_up: Vec<Id> = letters.iter().map(id).collect();
    let wanted: Vec<Id> = (0..poison).map(|n| POISONED * 1_000 + n).collect();
    assert_eq!(given_up, wanted);
    for letter in &letters {
        assert_eq!(
            (letter.kind, letter.attempts),
            (LetterKind::Crashed, ATTEMPTS)
        );
    }
    let lines = Log::read(directory.path());
    let done: BTreeSet<Id> = (lines.iter())
        .filter_map(|line| match *line {
            Line::End(id, _, true) => Some(id),
            _ => None,
        })
        .collect();
    let lost = all
        .iter()
        .filter(|(_, id)| !done.contains(id) && !wanted.contains(id));
    assert_eq!(lost.count(), 0);
    judge(&lines, &wanted);
}

/// Every innocent key has something done in each life; and an attempt is charged to what was in
/// flight at a death. What had ended by then, and was not confirmed, may have its mark still: a few
/// are charged although they have ended.
fn judge(lines: &[Line], poison: &[Id]) {
    let mut charged: BTreeMap<Id, u32> = BTreeMap::new();
    let mut open: BTreeSet<Id> = BTreeSet::new();
    // What has ended and is not confirmed, with its attempts: in this life, and in the last.
    let (mut ended, mut stale) = (BTreeMap::new(), BTreeMap::new());
    let mut charged_late = 0;
    let mut done: BTreeSet<u64> = BTreeSet::new();
    for line in lines {
        match *line {
            Line::Start(id, attempt) => {
                if stale.remove(&id) == Some(attempt - 1) {
                    charged_late += 1;
                    charged.insert(id, attempt - 1);
                }
                let before = charged.get(&id).copied().unwrap_or(0);
                assert_eq!(attempt, before + 1, "{id}");
                open.insert(id);
            }
            Line::End(id, attempt, _) => {
                open.remove(&id);
                charged.remove(&id);
                ended.insert(id, attempt);
                done.insert(id / 1_000);
            }
            Line::Confirmed(id) => {
                ended.remove(&id);
            }
            Line::Crash(epoch) => {
                for id in std::mem::take(&mut open) {
                    *charged.entry(id).or_default() += 1;
                }
                stale = std::mem::take(&mut ended);
                assert!(charged_late <= MOST_STALE, "{charged_late} in life {epoch}");
                charged_late = 0;
                let innocent = done.iter().filter(|key| **key < INNOCENT).count() as u64;
                assert_eq!(innocent, INNOCENT, "in life {epoch}");
                done.clear();
            }
            _ => {}
        }
    }
    for id in poison {
        assert_eq!(charged.get(id), Some(&ATTEMPTS));
    }
}

fn id(letter: &Letter) -> Id {
    Id::from_be_bytes(letter.message.payload[..8].try_into().unwrap())
}

/// Whether the process has come to its end.
fn lives(directory: &Path, poison: u64) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture"])
        .env("KEYLANE_INBOX_POISON", poison.to_string())
        .env("KEYLANE_INBOX_CHILD_OF_CRASH", directory)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    // By a signal, or with a code of 0.
    assert!(status.success() || status.code().is_none(), "{status}");
    status.success()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(future)
}

/// What dies. Nothing, unless it is started by the tests above.
#[test]
fn child() {
    let Some(directory) = std::env::var_os("KEYLANE_INBOX_CHILD_OF_CRASH") else {
        return;
    };
    let poison = std::env::var("KEYLANE_INBOX_POISON")
        .unwrap()
        .parse()
        .unwrap();
    // On one thread: a message that has ended is not charged, and nothing comes in between.
    block_on(run(PathBuf::from(directory), poison));
}

async fn run(directory: PathBuf, poison: u64) {
    let before = Log::read(&directory)
        .into_iter()
        .filter_map(|line| match line {
            Line::Start(id, _) => Some(id),
            _ => None,
        });
    let before: Arc<BTreeSet<Id>> = Arc::new(before.collect());
    let log = Log::open(&directory);
    let inbox = open(&directory).await;
    // The keys that have got further in this life than in those before.
    let done: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
    let dispatcher = by_key()
        .concurrency(64)
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(ATTEMPTS))
        .on_exhausted(OnExhausted::AtSource)
        .spawn({
            let log = log.clone();
            move |context: Context<Bytes>, message: RawMessage| {
                let (log, done) = (log.clone(), Arc::clone(&done));
                let before = Arc::clone(&before);
                async move {
                    let (id, key) = (id_of(&message), key_of(&message).unwrap());
                    if key == POISONED && id % 1_000 < poison {
                        // Until each of the others has got further: what was in flight at the last
                        // death is not so at the next.
                        while done.lock().unwrap().len() < INNOCENT as usize {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        std::process::abort();
                    }
                    if key < INNOCENT {
                        // The next one of a key is in flight at the death, and then goes on.
                        let waits = || {
                            let done = done.lock().unwrap();
                            done.contains(&key) && !done.contains(&POISONED)
                        };
                        while waits() {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        tokio::time::sleep(Duration::from_millis(id % 3)).await;
                    }
                    if !before.contains(&id) || key == POISONED {
                        done.lock().unwrap().insert(key);
                    }
                    log.write([Line::End(id, context.attempt(), true)]);
                    Ok(())
                }
            }
        })
        .unwrap();
    let settings = IntakeSettings::new().confirm_every(Duration::from_millis(5));
    let source = Logged::new(inbox.source(), &log);
    let intake = dispatcher.consume_with(source, settings).unwrap();
    while inbox.stats().await.unwrap().waiting > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    crate::support::adds_up(&intake.stop().await);
    inbox.close().await.unwrap();
}
