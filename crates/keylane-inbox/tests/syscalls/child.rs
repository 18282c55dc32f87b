//! The process whose system calls fail: it accepts, handles and settles, and says in a journal what
//! it has asked for and what was confirmed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::try_join_all;
use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{Context, Dispatcher, OnExhausted, Retry};
use keylane_inbox::error::{AcceptError, OpenError, StoreError};
use keylane_inbox::store::Settled;
use keylane_inbox::{Bytes, Inbox, LetterKind, NewMessage};

pub(crate) type Id = u64;

pub(crate) const DIRECTORY: &str = "KEYLANE_SYSCALLS_DIRECTORY";
pub(crate) const JOURNAL: &str = "KEYLANE_SYSCALLS_JOURNAL";

/// Rounds of each of the three parts.
const ROUNDS: Id = 12;

/// How long a call that has failed waits before it is tried again; then it is given up. The last
/// wait is longer than the store leaves a database alone that it could not open.
const WAITS_MS: [u64; 5] = [1, 5, 20, 100, 400];

/// What begins the payload of a message; a page of the database holds one payload only, so that
/// this stands near the start of its page.
pub(crate) fn mark(id: Id) -> String {
    format!("message {id};")
}

pub(crate) fn payload(id: Id) -> Vec<u8> {
    let mut payload = mark(id).into_bytes();
    payload.resize(3_000, b'.');
    payload
}

pub(crate) fn id_of(payload: &[u8]) -> Id {
    let text = payload.strip_prefix(b"message ").unwrap();
    let end = text.iter().position(|byte| *byte == b';').unwrap();
    std::str::from_utf8(&text[..end]).unwrap().parse().unwrap()
}

/// What fails. Nothing, unless it is started by the tests of this program.
#[test]
fn child() {
    let (Some(directory), Some(journal)) = (std::env::var_os(DIRECTORY), std::env::var_os(JOURNAL))
    else {
        return;
    };
    // As few threads as there can be: the calls of each are in the same order in every run.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let worker = Worker {
            directory: directory.into(),
            journal: Journal::open(Path::new(&journal)),
            sequences: BTreeMap::new(),
            next: 1,
        };
        worker.run().await;
    });
}

/// Where the process says what it does: a system call that nothing else makes, in one piece.
#[derive(Clone)]
struct Journal(Arc<File>);

impl Journal {
    fn open(path: &Path) -> Self {
        Self(Arc::new(
            OpenOptions::new().append(true).open(path).unwrap(),
        ))
    }

    fn say(&self, line: impl fmt::Display) {
        let line = format!("{line}|");
        let written = (&*self.0).write_vectored(&[IoSlice::new(line.as_bytes())]);
        assert_eq!(written.unwrap(), line.len());
    }

    /// Says that a call was refused, and whether the error tells its caller the right thing.
    fn refused(&self, call: &str, error: &(impl Fault + fmt::Debug)) {
        let word = if error.is_fair() { "refused" } else { "unfair" };
        let no_space = error.says_no_space();
        self.say(format_args!(
            "{word} {call}: {error:?}, no_space: {no_space}"
        ));
    }
}

/// The disk no longer works.
struct GivenUp;

/// Errors of a disk that fails now, and will work again.
trait Fault {
    fn is_fair(&self) -> bool;

    /// Whether it says that there is no room, and not only in words.
    fn says_no_space(&self) -> bool;
}

impl Fault for OpenError {
    fn is_fair(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::NoSpace { .. })
    }

    fn says_no_space(&self) -> bool {
        matches!(self, Self::NoSpace { .. })
    }
}

impl Fault for StoreError {
    fn is_fair(&self) -> bool {
        matches!(self, Self::NotCommitted { .. } | Self::Unavailable { .. })
    }

    fn says_no_space(&self) -> bool {
        matches!(self, Self::NotCommitted { no_space: true, .. })
    }
}

impl Fault for AcceptError<NewMessage> {
    fn is_fair(&self) -> bool {
        matches!(self, Self::Store(error, message) if error.is_fair() && !message.payload.is_empty())
    }

    fn says_no_space(&self) -> bool {
        matches!(self, Self::Store(error, _) if error.says_no_space())
    }
}

struct Worker {
    directory: PathBuf,
    journal: Journal,
    /// What was accepted and is not settled.
    sequences: BTreeMap<Id, u64>,
    next: Id,
}

impl Worker {
    async fn run(mut self) {
        for part in 0..3 {
            let Ok(inbox) = self.open().await else { return };
            let worked = self.part(&inbox, part).await;
            if let Err(error) = inbox.close().await {
                self.journal.refused("close", &error);
            }
            if worked.is_err() {
                self.journal.say("gave up");
                return;
            }
        }
        self.journal.say("the end");
    }

    async fn part(&mut self, inbox: &Inbox, part: u64) -> Result<(), GivenUp> {
        for round in 0..ROUNDS {
            self.accept(inbox, 1).await?;
            self.accept(inbox, 3).await?;
            let oldest = self.sequences.keys().take(2).copied();
            self.settle(inbox, Vec::from_iter(oldest), None).await?;
            if round % 8 == 0 {
                let oldest = self.sequences.keys().take(1).copied();
                let kind = Some(LetterKind::Failed);
                self.settle(inbox, Vec::from_iter(oldest), kind).await?;
                self.read(inbox).await?;
            }
        }
        if part == 1 {
            self.handle(inbox).await;
        }
        self.read(inbox).await
    }

    async fn open(&self) -> Result<Inbox, GivenUp> {
        self.insist("open", async || Inbox::open(&self.directory).await)
            .await
    }

    /// Accepts so many messages at the same time.
    async fn accept(&mut self, inbox: &Inbox, count: u64) -> Result<(), GivenUp> {
        let ids = self.next..self.next + count;
        self.next = ids.end;
        let this = &*self;
        let accepted = ids.map(async |id| {
            let accept = async || {
                this.journal.say(format_args!("asked {id}"));
                let message = NewMessage::new(format!("key {}", id % 7), payload(id));
                inbox.accept_message(message.id(id.to_string())).await
            };
            let accepted = this.insist("accept", accept).await?;
            this.journal.say(format_args!("acked {id}"));
            Ok((id, accepted.sequence()))
        });
        let accepted = try_join_all(accepted).await?;
        self.sequences.extend(accepted);
        Ok(())
    }

    async fn settle(
        &mut self,
        inbox: &Inbox,
        ids: Vec<Id>,
        as_letter: Option<LetterKind>,
    ) -> Result<(), GivenUp> {
        let settled = ids.iter().map(|id| {
            let sequence = self.sequences[id];
            match as_letter {
                None => Settled::Done(sequence),
                Some(kind) => Settled::DeadLetter {
                    sequence,
                    attempts: 1,
                    kind,
                    error: "no".into(),
                },
            }
        });
        let settled = Vec::from_iter(settled);
        let (asks, confirms) = match as_letter {
            None => ("settling", "settled"),
            Some(_) => ("burying", "buried"),
        };
        for id in &ids {
            self.journal.say(format_args!("{asks} {id}"));
        }
        let settle = async || inbox.store().settle(settled.clone()).await;
        self.insist("settle", settle).await?;
        for id in &ids {
            self.journal.say(format_args!("{confirms} {id}"));
            self.sequences.remove(id);
        }
        Ok(())
    }

    /// Reads all that waits, and looks for what must.
    async fn read(&self, inbox: &Inbox) -> Result<(), GivenUp> {
        let scan = async || inbox.store().scan(0, usize::MAX, usize::MAX).await;
        let waiting = self.insist("scan", scan).await?;
        let waiting: BTreeSet<Id> = waiting.iter().map(|one| id_of(&one.payload)).collect();
        if self.sequences.keys().any(|id| !waiting.contains(id)) {
            self.journal.say("unfair scan: it lacks what was accepted");
        }
        Ok(())
    }

    /// Lets a dispatcher handle half of what waits, in part at the second attempt.
    async fn handle(&mut self, inbox: &Inbox) {
        let journal = self.journal.clone();
        let left = Arc::new(Mutex::new(BTreeSet::from_iter(
            self.sequences.keys().copied(),
        )));
        let all_handled = Arc::new(tokio::sync::Notify::new());
        let (handled, notify) = (Arc::clone(&left), Arc::clone(&all_handled));
        let orders = Dispatcher::builder(|message: &RawMessage| message.key.clone())
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(100))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(
                move |context: Context<Option<Bytes>>, message: RawMessage| {
                    let id = id_of(&message.payload);
                    let is_done = !(id.is_multiple_of(5) && context.attempt() == 1);
                    if is_done {
                        // What was handled need not be there any more, whatever comes next.
                        journal.say(format_args!("handled {id}"));
                        let mut left = handled.lock().unwrap();
                        left.remove(&id);
                        if left.is_empty() {
                            notify.notify_one();
                        }
                    }
                    async move {
                        if is_done {
                            Ok(())
                        } else {
                            Err("it fails once")
                        }
                    }
                },
            )
            .unwrap();
        let settings = IntakeSettings::new()
            .confirm_every(Duration::from_millis(5))
            // An ack that a disk does not take is waited for so long, and not for minutes.
            .stall_after(Duration::from_secs(2));
        let intake = orders.consume_with(inbox.source(), settings).unwrap();
        // On a disk that fails the handlers may never start.
        let patience = Duration::from_secs(1);
        let _ = tokio::time::timeout(patience, all_handled.notified()).await;
        let report = intake.stop().await;
        self.journal.say(format_args!("intake {report}"));
        orders.drain().await;
        let left = left.lock().unwrap();
        self.sequences.retain(|id, _| left.contains(id));
    }

    async fn insist<T, E: Fault + fmt::Debug>(
        &self,
        name: &str,
        call: impl AsyncFn() -> Result<T, E>,
    ) -> Result<T, GivenUp> {
        for wait in WAITS_MS {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.journal.refused(name, &error),
            }
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        Err(GivenUp)
    }
}
