//! An inbox in a directory of its own, and dispatchers whose handlers follow a script.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{IntakeReport, IntakeSettings};
use keylane::source::RawMessage;
use keylane::{Builder, Context, Dispatcher, OnExhausted, Retry};
use keylane_inbox::error::OpenError;
use keylane_inbox::{Inbox, NewMessage};
pub(crate) use keylane_testkit::scenario::{MS, until, until_async};
use keylane_testkit::{Evidence, History, Id, Key, Script, ScriptError, Scripted};
use tempfile::TempDir;
use tokio::time::Instant;

pub(crate) type Orders = Dispatcher<Bytes, RawMessage, Id, ScriptError>;

/// A dispatcher that leaves its dead letters to the inbox, after two attempts.
pub(crate) fn orders()
-> Builder<Bytes, RawMessage, ScriptError, impl Fn(&RawMessage) -> Option<Bytes> + Send + Sync> {
    Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(2))
        .on_exhausted(OnExhausted::AtSource)
}

/// The script as a handler.
pub(crate) fn scripted(
    script: Script,
) -> impl Fn(Context<Bytes>, RawMessage) -> Scripted + Send + Sync + 'static {
    move |context, message| script.run(key_of(&message), id_of(&message), context.attempt())
}

pub(crate) fn settings() -> IntakeSettings {
    IntakeSettings::new()
        .revoke_within(Duration::from_millis(100))
        .confirm_every(Duration::from_millis(20))
}

/// The message `id` of a key.
pub(crate) fn message(key: Key, id: Id) -> NewMessage {
    NewMessage::new(key.to_string(), id.to_be_bytes().to_vec())
}

pub(crate) fn id_of(message: &RawMessage) -> Id {
    Id::from_be_bytes(message.payload[..8].try_into().unwrap())
}

pub(crate) fn key_of(message: &RawMessage) -> Option<Key> {
    let key = message.key.as_ref()?;
    std::str::from_utf8(key).unwrap().parse().ok()
}

/// An inbox, and what happens to its messages.
pub(crate) struct Rig {
    pub(crate) inbox: Inbox,
    pub(crate) history: History,
    seqs: BTreeMap<Key, u64>,
    last_id: Id,
    directory: TempDir,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            inbox: open(directory.path()).await,
            history: History::new(),
            seqs: BTreeMap::new(),
            last_id: 0,
            directory,
        }
    }

    /// Accepts one message for each of these keys. The ids count from 1, and so do the sequences.
    pub(crate) async fn accept(&mut self, keys: impl IntoIterator<Item = Key>) -> Vec<Id> {
        let mut messages = Vec::new();
        let mut sendings = Vec::new();
        for key in keys {
            self.last_id += 1;
            let seq = self.seqs.entry(key).or_default();
            *seq += 1;
            sendings.push((self.history.sending(key, *seq, self.last_id), self.last_id));
            messages.push(message(key, self.last_id));
        }
        self.inbox.accept_many(messages).await.unwrap();
        let answered = sendings.into_iter().map(|(sending, id)| {
            sending.ok();
            id
        });
        answered.collect()
    }

    pub(crate) fn script(&self) -> Script {
        Script::new(&self.history)
    }

    /// Closes the inbox, as at the end of a process, and opens it again.
    pub(crate) async fn reopen(&mut self) {
        self.inbox.close().await.unwrap();
        self.inbox = open(self.directory.path()).await;
    }

    /// Opens the inbox as after a process that has died while it handled these: sequences, each
    /// with the number of its attempts.
    pub(crate) async fn crashed(&mut self, started: &[(u64, u32)]) {
        self.inbox.close().await.unwrap();
        let starts = self.directory.path().join("inbox").join("starts");
        let marks = keylane_inbox::attempts::Marks::open(&starts, 0).unwrap();
        for (slot, (sequence, attempts)) in started.iter().enumerate() {
            marks.start(slot as u32, *sequence, *attempts).unwrap();
        }
        drop(marks);
        self.inbox = open(self.directory.path()).await;
    }

    /// The start marks that a process would find which opens the inbox now.
    pub(crate) fn start_marks(&self) -> usize {
        let starts = self.directory.path().join("inbox").join("starts");
        let marks = keylane_inbox::attempts::Marks::open(&starts, 0).unwrap();
        marks.recover().len()
    }

    /// Waits until so many handlers have succeeded.
    pub(crate) async fn handled(&self, count: usize) {
        until(|| self.history.handled().len() >= count).await;
    }

    /// Waits until so many attempts have started.
    pub(crate) async fn started(&self, count: usize) {
        until(|| self.history.started().len() >= count).await;
    }

    /// Waits until nothing waits in the store.
    pub(crate) async fn nothing_waits(&self) {
        let is_empty = async || self.inbox.stats().await.unwrap().waiting == 0;
        until_async("nothing waits in the store", is_empty).await;
    }

    pub(crate) fn judge(&self, evidence: Evidence) {
        let evidence = evidence.quiescent(Instant::now());
        self.history.check(&evidence).expect("a correct inbox");
    }
}

/// Opens the inbox in a directory. A process that another test starts has the lock of the one before
/// for a moment, until it is another program.
pub(crate) async fn open(directory: &Path) -> Inbox {
    for _ in 0..500 {
        let inbox = Inbox::builder(directory.join("inbox")).key_bytes(64 << 10);
        match inbox.open().await {
            Err(OpenError::Locked { .. }) => tokio::time::sleep(MS).await,
            opened => return opened.unwrap(),
        }
    }
    panic!("the inbox stays locked");
}

/// S7.
#[track_caller]
pub(crate) fn adds_up(report: &IntakeReport) {
    let sum = report.acked + report.dead_lettered + report.nacked + report.given_back;
    assert_eq!(sum, report.received, "{report}");
}
