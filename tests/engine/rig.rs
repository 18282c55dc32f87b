//! What all tests here stand on: messages with a number, a desk that sends and writes down, runtimes.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use keylane::{Builder, Context, Dispatcher, Receipt, Report, TrySendError};
use keylane_testkit::{
    Drained, Evidence, History, Id, Key, Rule, Script, ScriptError, Scripted, Sending, Verdict,
};
use tokio::runtime::Runtime;
use tokio::time::Instant;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// What is sent: a key and a number of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mail {
    pub(crate) key: Option<Key>,
    pub(crate) id: Id,
}

pub(crate) type Mails = Dispatcher<Key, Mail, Id, ScriptError>;
pub(crate) type MailReceipt = Receipt<Mail, Id, ScriptError>;

/// A dispatcher of mails, all settings at their defaults.
pub(crate) fn mails()
-> Builder<Key, Mail, ScriptError, impl Fn(&Mail) -> Option<Key> + Send + Sync + 'static> {
    watch_for_engine_panics();
    Dispatcher::key_by_opt(|mail: &Mail| mail.key)
}

/// The script as a handler.
pub(crate) fn scripted(
    script: Script,
) -> impl Fn(Context<Key>, Mail) -> Scripted + Send + Sync + 'static {
    move |ctx, mail| script.run(mail.key, mail.id, ctx.attempt())
}

/// Sends mails, numbers them from 1, and writes down what became of each send.
///
/// Clones are the same desk. Tasks that send for the same key at the same time take turns, so that
/// the order of the numbers is the order of acceptance.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) history: History,
    pub(crate) mails: Mails,
    seqs: Arc<Mutex<HashMap<Option<Key>, u64>>>,
    last_id: Arc<AtomicU64>,
}

impl Desk {
    pub(crate) fn new(history: &History, mails: Mails) -> Self {
        Self {
            history: history.clone(),
            mails,
            seqs: Arc::default(),
            last_id: Arc::default(),
        }
    }

    /// The next mail of a key, and the entry in the history to be completed with the answer.
    pub(crate) fn next(&self, key: impl Into<Option<Key>>) -> (Mail, Sending) {
        let key = key.into();
        let seq = {
            let mut seqs = self.seqs.lock().unwrap();
            let seq = seqs.entry(key).or_default();
            *seq += 1;
            *seq
        };
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        (Mail { key, id }, self.history.sending(key, seq, id))
    }

    /// Sends, and insists on being accepted.
    pub(crate) async fn send(&self, key: impl Into<Option<Key>>) -> Id {
        let (mail, sending) = self.next(key);
        let id = mail.id;
        self.mails.send(mail).await.expect("the desk is open");
        sending.ok();
        id
    }

    /// Submits, and insists on being accepted.
    pub(crate) async fn submit(&self, key: impl Into<Option<Key>>) -> MailReceipt {
        let (mail, sending) = self.next(key);
        let receipt = self.mails.submit(mail).await.expect("the desk is open");
        sending.ok();
        receipt
    }

    /// Sends `count` mails of a key.
    pub(crate) async fn send_all(&self, key: impl Into<Option<Key>>, count: usize) -> Vec<Id> {
        let key = key.into();
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.send(key).await);
        }
        ids
    }

    /// Sends if there is room at once.
    pub(crate) fn try_send(&self, key: impl Into<Option<Key>>) -> Result<Id, TrySendError<Mail>> {
        let (mail, sending) = self.next(key);
        let id = mail.id;
        match self.mails.try_send(mail) {
            Ok(()) => {
                sending.ok();
                Ok(id)
            }
            Err(error) => {
                sending.fail();
                Err(error)
            }
        }
    }

    /// Judges the whole history: nothing runs any more, and this was the report.
    #[track_caller]
    pub(crate) fn judge(&self, report: &Report<Key, Mail>, evidence: Evidence) -> Verdict {
        let stats = self.mails.stats();
        let evidence = evidence
            .quiescent(Instant::now())
            .lanes(stats.lanes)
            .drained(Drained::new(self.history.position(), report));
        assert_no_engine_panics();
        assert_empty(&self.mails);
        match self.history.check(&evidence) {
            Ok(verdict) => verdict,
            Err(violations) => panic!("{violations:?}"),
        }
    }

    /// Drains and judges. The rules that every history of a whole life must be judged by are
    /// insisted on.
    pub(crate) async fn finish(self, evidence: Evidence) -> Report<Key, Mail> {
        let report = within(async { self.mails.drain().await }).await;
        let verdict = self.judge(&report, evidence);
        verdict.assert_judged(&[
            Rule::NoLoss,
            Rule::NoInvention,
            Rule::Exclusion,
            Rule::Order,
            Rule::Duplicates,
            Rule::Drain,
        ]);
        report
    }
}

/// Nothing is left of any message, and all room is back.
#[track_caller]
pub(crate) fn assert_empty<K, M, O, E>(mails: &Dispatcher<K, M, O, E>)
where
    K: std::hash::Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: std::fmt::Debug + Send + Sync + 'static,
{
    let stats = mails.stats();
    let left = [
        ("lanes", stats.lanes),
        ("in flight", stats.in_flight),
        ("ready", stats.ready),
        ("backing off", stats.backing_off),
        ("halted", stats.halted),
        ("full lanes", stats.full_lanes),
        ("stalled", stats.stalled),
    ];
    assert!(left.iter().all(|(_, count)| *count == 0), "left: {left:?}");
}

/// The panics of the engine itself so far.
///
/// A task that panics is caught by the runtime and the engine lives on as if it had been aborted,
/// so nobody else would notice. Scripted panics do not call the hook; others stand elsewhere.
static ENGINE_PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn watch_for_engine_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let place = panic
                .location()
                .map(ToString::to_string)
                .unwrap_or_default();
            if place.contains("crates/keylane/") {
                ENGINE_PANICS.lock().unwrap().push(panic.to_string());
            }
            usual(panic);
        }));
    });
}

/// No task of any engine in this process has panicked.
#[track_caller]
pub(crate) fn assert_no_engine_panics() {
    let panics = ENGINE_PANICS.lock().unwrap().join("\n");
    assert!(panics.is_empty(), "{panics}");
}

/// The report adds up, and agrees with the counters.
#[track_caller]
pub(crate) fn assert_honest<K, M>(report: &Report<K, M>) {
    let settled = report.done + report.dead_lettered + report.discarded + report.handed_back;
    assert_eq!(settled, report.accepted, "{report:?}");
}

/// A message that never comes is a failure and not a test that hangs. Far more than any machine
/// needs; with paused time it is over at once.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work)
        .await
        .expect("it ends")
}

/// With paused time: until nothing moves any more without time.
pub(crate) async fn quiet() {
    tokio::time::sleep(MS).await;
}

/// Until something has become true; without the clock, so for threads.
pub(crate) async fn until(mut is_true: impl FnMut() -> bool) {
    within(async {
        while !is_true() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// How often a test is repeated: by an environment variable, for the soak.
pub(crate) fn repeats(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(count) => count.parse().expect("a number of repetitions"),
        Err(_) => otherwise,
    }
}

/// One thread and paused time.
pub(crate) fn paused() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

/// Two threads and real time.
pub(crate) fn threads() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
}

/// Runs a test on both flavours of the runtime.
pub(crate) fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    paused().block_on(test());
    threads().block_on(test());
}

/// Random enough, and the same each time for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % n
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
