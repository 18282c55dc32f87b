//! What the tests here stand on: jobs with a number, handlers that do as told and write down when they
//! were called, and a judge of the end.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::{Builder, Context, Dispatcher, Receipt, ReceiptError, Report};
use tokio::time::Instant;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The capacity unless a test sets another.
pub(crate) const CAPACITY: usize = 20_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) key: Option<u64>,
    pub(crate) id: u64,
}

pub(crate) fn job(key: impl Into<Option<u64>>, id: u64) -> Job {
    let key = key.into();
    Job { key, id }
}

/// The handler's error: the number of the job that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) u64);

pub(crate) type Jobs = Dispatcher<u64, Job, u64, Fault>;
pub(crate) type Ticket = Receipt<Job, u64, Fault>;
pub(crate) type Refusal = ReceiptError<Job, Fault>;

/// A dispatcher of jobs.
pub(crate) fn jobs()
-> Builder<u64, Job, Fault, impl Fn(&Job) -> Option<u64> + Send + Sync + 'static> {
    // Looking for handlers that are stuck takes a step each second, and years pass here.
    Dispatcher::key_by_opt(|job: &Job| job.key)
        .capacity(CAPACITY)
        .stuck_after(1_000 * HOUR)
}

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Ok,
    Fail,
    Panic,
    /// Succeeds after so many milliseconds.
    Takes(u64),
    /// Fails after so many milliseconds.
    FailsAfter(u64),
    Never,
}

/// A call of the handler: when, in milliseconds since the start; for which jobs; which attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) at: u64,
    pub(crate) ids: Vec<u64>,
    pub(crate) attempt: u32,
}

/// Writes down every call. Clones are the same bench.
#[derive(Clone)]
pub(crate) struct Bench {
    start: Instant,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    calls: Vec<Call>,
    running: BTreeSet<u64>,
    wrong: Vec<String>,
}

/// A job in its handler.
type Handling = std::pin::Pin<Box<dyn Future<Output = Result<u64, Fault>> + Send>>;

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            seen: Arc::default(),
        }
    }

    /// A handler of single jobs.
    pub(crate) fn handler(
        &self,
        act: impl Fn(u64, u32) -> Act + Send + Sync + 'static,
    ) -> impl Fn(Context<u64>, Job) -> Handling + Send + Sync + 'static {
        let bench = self.clone();
        let act = Arc::new(act);
        move |context, job| {
            let (bench, act) = (bench.clone(), Arc::clone(&act));
            Box::pin(async move {
                let attempt = context.attempt();
                let _running = bench.begin(job.key, vec![job.id], attempt);
                perform(act(job.id, attempt), job.id).await.map(|()| job.id)
            })
        }
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
            bench: self.clone(),
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

    /// When each job started, in the order of the starts.
    pub(crate) fn times(&self) -> Vec<(u64, u64)> {
        let calls = self.calls().into_iter();
        calls.map(|call| (call.at, call.ids[0])).collect()
    }

    /// The jobs in the order of their starts, retries included.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.calls().into_iter().flat_map(|call| call.ids).collect()
    }

    /// The jobs of each call.
    pub(crate) fn batches(&self) -> Vec<Vec<u64>> {
        self.calls().into_iter().map(|call| call.ids).collect()
    }

    /// Drains and judges.
    pub(crate) async fn finish(&self, jobs: Jobs) -> Report<u64, Job> {
        let report = within(async { jobs.drain().await }).await;
        self.judge(&jobs, &report, CAPACITY);
        report
    }

    /// Every message is accounted for, and nothing is left behind.
    #[track_caller]
    pub(crate) fn judge<O: Send + 'static>(
        &self,
        jobs: &Dispatcher<u64, Job, O, Fault>,
        report: &Report<u64, Job>,
        capacity: usize,
    ) {
        let settled = report.done
            + report.dead_lettered
            + report.discarded
            + report.coalesced
            + report.duplicates
            + report.expired
            + report.handed_back;
        assert_eq!(settled, report.accepted, "{report:?}");
        let stats = jobs.stats();
        let left = BTreeMap::from([
            ("lanes", stats.lanes),
            ("in flight", stats.in_flight),
            ("ready", stats.ready),
            ("backing off", stats.backing_off),
            ("halted", stats.halted),
            ("paused", stats.paused),
            ("full lanes", stats.full_lanes),
            ("stalled", stats.stalled),
        ]);
        assert!(left.values().all(|count| *count == 0), "left: {left:?}");
        assert_eq!(stats.capacity_left, capacity, "the room is back");
        let seen = self.seen.lock().unwrap();
        assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
        assert!(seen.running.is_empty(), "{:?} run still", seen.running);
    }
}

/// A handler that runs.
pub(crate) struct Running {
    bench: Bench,
    key: Option<u64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && let Ok(mut seen) = self.bench.seen.lock()
        {
            seen.running.remove(&key);
        }
    }
}

pub(crate) async fn perform(act: Act, id: u64) -> Result<(), Fault> {
    match act {
        Act::Ok => Ok(()),
        Act::Fail => Err(Fault(id)),
        // The hook, which would print it, is not called.
        Act::Panic => std::panic::resume_unwind(Box::new("as told")),
        Act::Takes(ms) => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(())
        }
        Act::FailsAfter(ms) => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Err(Fault(id))
        }
        Act::Never => std::future::pending().await,
    }
}

/// A message that never comes is a failure and not a test that hangs. Paused time: over at once.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    let years = Duration::from_secs(20 * 365 * 24 * 3600);
    tokio::time::timeout(years, work).await.expect("it ends")
}

/// Until nothing moves any more without time.
pub(crate) async fn quiet() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Until so many milliseconds since the start of the bench.
pub(crate) async fn at(bench: &Bench, ms: u64) {
    tokio::time::sleep_until(bench.start + Duration::from_millis(ms)).await;
    quiet().await;
}

/// Sends jobs of one key, in order.
pub(crate) async fn send_all(
    jobs: &Dispatcher<u64, Job, u64, Fault>,
    key: impl Into<Option<u64>>,
    ids: impl IntoIterator<Item = u64>,
) {
    let key = key.into();
    for id in ids {
        jobs.send(job(key, id)).await.unwrap();
    }
}

/// Submits jobs of one key, in order.
pub(crate) async fn submit_all(
    jobs: &Dispatcher<u64, Job, u64, Fault>,
    key: impl Into<Option<u64>>,
    ids: impl IntoIterator<Item = u64>,
) -> Vec<Ticket> {
    let key = key.into();
    let mut receipts = Vec::new();
    for id in ids {
        receipts.push(jobs.submit(job(key, id)).await.unwrap());
    }
    receipts
}

/// What a receipt says, in a word.
pub(crate) fn word(answer: &Result<u64, Refusal>) -> &'static str {
    match answer {
        Ok(_) => "done",
        Err(ReceiptError::Failed(_)) => "failed",
        Err(ReceiptError::DeadLettered(_)) => "dead-lettered",
        Err(ReceiptError::HandedBack { .. }) => "handed back",
        Err(ReceiptError::Dropped(_)) => "dropped",
        Err(ReceiptError::Purged(_)) => "purged",
        Err(ReceiptError::Expired(_)) => "expired",
        Err(ReceiptError::Interrupted(_)) => "interrupted",
        Err(_) => "other",
    }
}

/// A time that may be some nanoseconds short, because no two messages are parked in the same one.
pub(crate) fn rounded(age: Option<Duration>) -> Option<u64> {
    age.map(|age| (age + Duration::from_micros(1)).as_millis() as u64)
}
