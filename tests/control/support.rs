//! Handlers that follow a script, a recorder that writes down when each was called and for what, and
//! the judge of the end.
//!
//! `History` has no event for a batch, and these tests are about moments, so they record calls.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::error::ReceiptError;
use keylane::{Builder, Context, Dispatcher, Report};
use keylane_testkit::scenario::{
    self, Message, ScriptedDispatcher, ScriptedReceipt, assert_no_engine_panics,
    assert_nothing_left, assert_report_adds_up, settle, within_years,
};
use keylane_testkit::{Act, History, Script, ScriptError};
use tokio::time::Instant;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The capacity unless a test sets another.
pub(crate) const CAPACITY: usize = 20_000;

pub(crate) type Refusal = ReceiptError<Message, ScriptError>;

/// What a receipt may say where lanes have no discipline and the runtime stays.
pub(crate) const PLAIN_OUTCOMES: [&str; 8] = [
    "done",
    "failed",
    "dead-lettered",
    "handed back",
    "dropped",
    "purged",
    "expired",
    "interrupted",
];

/// A dispatcher with room for all that a test sends.
pub(crate) fn dispatcher()
-> Builder<u64, Message, ScriptError, impl Fn(&Message) -> Option<u64> + Send + Sync + 'static> {
    // Looking for handlers that are stuck takes a step each second, and years pass here.
    scenario::dispatcher()
        .capacity(CAPACITY)
        .stuck_after(1_000 * HOUR)
}

/// A call of the handler: when, in milliseconds since the start; for which messages; which attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) at: u64,
    pub(crate) ids: Vec<u64>,
    pub(crate) attempt: u32,
}

/// Writes down every call. Clones are the same recorder.
#[derive(Clone)]
pub(crate) struct Recorder {
    history: History,
    start: Instant,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    calls: Vec<Call>,
    running: BTreeSet<u64>,
    wrong: Vec<String>,
}

/// A message in its handler, or a batch.
type Handling<O> = Pin<Box<dyn Future<Output = Result<O, ScriptError>> + Send>>;

/// One type for all scripts: the engine's runner is compiled once.
pub(crate) type Handler = Box<dyn Fn(Context<u64>, Message) -> Handling<u64> + Send + Sync>;

/// The same for batches.
pub(crate) type BatchHandler = Box<dyn Fn(Vec<Message>) -> Handling<Vec<u64>> + Send + Sync>;

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            history: History::new(),
            start: Instant::now(),
            seen: Arc::default(),
        }
    }

    /// A handler of single messages that does what `act` says for the id and the attempt.
    pub(crate) fn handler(&self, act: impl Fn(u64, u32) -> Act + Send + Sync + 'static) -> Handler {
        self.scripted(Script::new(&self.history).choose(move |cue| act(cue.id, cue.attempt)))
    }

    fn scripted(&self, script: Script) -> Handler {
        let recorder = self.clone();
        Box::new(move |context, Message { key, id }| {
            let (recorder, script) = (recorder.clone(), script.clone());
            Box::pin(async move {
                let attempt = context.attempt();
                let _running = recorder.begin(key, vec![id], attempt);
                script.run(key, id, attempt).await
            })
        })
    }

    /// A handler of batches that answers each message with its id, after the time that `takes`
    /// says for the batch.
    pub(crate) fn batch_handler(
        &self,
        takes: impl Fn(&[u64]) -> Duration + Send + Sync + 'static,
    ) -> BatchHandler {
        let recorder = self.clone();
        Box::new(move |batch| {
            let ids: Vec<_> = batch.iter().map(|message| message.id).collect();
            let running = recorder.begin(batch[0].key, ids.clone(), 1);
            let takes = takes(&ids);
            Box::pin(async move {
                if !takes.is_zero() {
                    tokio::time::sleep(takes).await;
                }
                drop(running);
                Ok(ids)
            })
        })
    }

    /// Notes a call; the guard says when it is over.
    pub(crate) fn begin(&self, key: Option<u64>, ids: Vec<u64>, attempt: u32) -> Running {
        let mut seen = self.seen.lock().unwrap();
        let at = self.now();
        if let Some(key) = key
            && !seen.running.insert(key)
        {
            let wrong = format!("{ids:?} started while another one of key {key} ran");
            seen.wrong.push(wrong);
        }
        seen.calls.push(Call { at, ids, attempt });
        Running {
            recorder: self.clone(),
            key,
        }
    }

    /// Milliseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.seen.lock().unwrap().calls.clone()
    }

    /// When each message started, in the order of the starts.
    pub(crate) fn times(&self) -> Vec<(u64, u64)> {
        let calls = self.calls().into_iter();
        calls.map(|call| (call.at, call.ids[0])).collect()
    }

    /// The messages in the order of their starts, retries included.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.calls().into_iter().flat_map(|call| call.ids).collect()
    }

    /// The messages of each call.
    pub(crate) fn batches(&self) -> Vec<Vec<u64>> {
        self.calls().into_iter().map(|call| call.ids).collect()
    }

    /// Drains and judges.
    pub(crate) async fn finish(&self, dispatcher: ScriptedDispatcher) -> Report<u64, Message> {
        let report = within_years(async { dispatcher.drain().await }).await;
        self.judge(&dispatcher, &report, CAPACITY);
        report
    }

    /// Every message is accounted for, and nothing is left behind.
    #[track_caller]
    pub(crate) fn judge<O: Send + 'static>(
        &self,
        dispatcher: &Dispatcher<u64, Message, O, ScriptError>,
        report: &Report<u64, Message>,
        capacity: usize,
    ) {
        assert_report_adds_up(report);
        assert_no_engine_panics();
        assert_nothing_left(dispatcher);
        let stats = dispatcher.stats();
        assert_eq!(stats.capacity_left, capacity, "the room is back");
        let seen = self.seen.lock().unwrap();
        assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
        assert!(seen.running.is_empty(), "{:?} run still", seen.running);
    }
}

/// A handler that runs.
pub(crate) struct Running {
    recorder: Recorder,
    key: Option<u64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && let Ok(mut seen) = self.recorder.seen.lock()
        {
            seen.running.remove(&key);
        }
    }
}

/// Until so many milliseconds since the start of the recorder.
pub(crate) async fn at(recorder: &Recorder, ms: u64) {
    tokio::time::sleep_until(recorder.start + Duration::from_millis(ms)).await;
    settle().await;
}

/// Sends messages of one key, in order.
pub(crate) async fn send_all(
    dispatcher: &Dispatcher<u64, Message, u64, ScriptError>,
    key: impl Into<Option<u64>>,
    ids: impl IntoIterator<Item = u64>,
) {
    let key = key.into();
    for id in ids {
        dispatcher.send(Message::new(key, id)).await.unwrap();
    }
}

/// Submits messages of one key, in order.
pub(crate) async fn submit_all(
    dispatcher: &Dispatcher<u64, Message, u64, ScriptError>,
    key: impl Into<Option<u64>>,
    ids: impl IntoIterator<Item = u64>,
) -> Vec<ScriptedReceipt> {
    let key = key.into();
    let mut receipts = Vec::new();
    for id in ids {
        receipts.push(dispatcher.submit(Message::new(key, id)).await.unwrap());
    }
    receipts
}

/// A time that may be some nanoseconds short, because no two messages are parked in the same one.
pub(crate) fn rounded(age: Option<Duration>) -> Option<u64> {
    age.map(|age| (age + Duration::from_micros(1)).as_millis() as u64)
}
