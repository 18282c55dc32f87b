//! A rate of its own for each test, on servers that the tests of this binary share.

use std::future::Future;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keylane_redis::{Redis, SharedRate, SharedRateBuilder};
use redis::aio::MultiplexedConnection;
use testkit_servers::RedisKind;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

static SHARED: [OnceCell<testkit_servers::Redis>; 3] = [const { OnceCell::const_new() }; 3];

/// The server of this kind that the tests share.
pub(crate) async fn shared(kind: RedisKind) -> &'static testkit_servers::Redis {
    let place = RedisKind::ALL.iter().position(|other| *other == kind);
    let server = SHARED[place.unwrap()].get_or_init(|| own(kind));
    server.await
}

/// A server for one test.
pub(crate) async fn own(kind: RedisKind) -> testkit_servers::Redis {
    testkit_servers::Redis::start(kind).await.unwrap()
}

/// Runs a test with each kind of server, all at the same time.
pub(crate) async fn each_kind<F: Future>(test: impl Fn(RedisKind) -> F) {
    join_all(RedisKind::ALL.map(test)).await;
}

/// A name that no other test of this binary has.
pub(crate) fn new_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("rate-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the builder of a process, with a connection of its own. It keeps permits, and waits for
/// answers, for longer than a machine stands still.
pub(crate) fn builder(server: &testkit_servers::Redis, name: &str) -> SharedRateBuilder {
    let redis = Redis::at(&server.url()).unwrap();
    SharedRate::builder(&redis, name.to_owned()).keep(Duration::from_secs(60))
}

/// Executes a command, given as its words, which the server must accept.
pub(crate) async fn execute(server: &testkit_servers::Redis, command: &str) -> String {
    let words = Vec::from_iter(command.split(' '));
    let answer = server.execute(&words).await;
    answer.unwrap_or_else(|error| panic!("{}: `{command}`: {error}", server.kind()))
}

/// How often scripts were called.
pub(crate) async fn calls(server: &testkit_servers::Redis) -> u64 {
    let stats = execute(server, "INFO commandstats").await;
    let calls = stats.lines().filter_map(|line| {
        let stat = line.strip_prefix("cmdstat_eval")?;
        stat.split(['=', ',']).nth(1)?.parse::<u64>().ok()
    });
    calls.sum()
}

/// Measures how long the machine has let this process run: each pause of it counts for very little.
pub(crate) struct Running {
    micros: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn from_now() -> Self {
        const STEP: Duration = Duration::from_millis(10);
        let micros = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&micros);
        let task = tokio::spawn(async move {
            loop {
                let from = Instant::now();
                sleep(STEP).await;
                let ran = from.elapsed().min(STEP * 3);
                counted.fetch_add(ran.as_micros() as u64, Ordering::Relaxed);
            }
        });
        Self { micros, task }
    }

    pub(crate) fn micros(&self) -> u64 {
        self.micros.load(Ordering::Relaxed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The starts and their times, by the clock of the server.
#[derive(Clone)]
pub(crate) struct Starts {
    connection: MultiplexedConnection,
    all: Arc<Mutex<Vec<(u64, usize)>>>,
}

impl Starts {
    pub(crate) async fn new(server: &testkit_servers::Redis) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        Self {
            connection: client.get_multiplexed_async_connection().await.unwrap(),
            all: Arc::default(),
        }
    }

    /// The time of the server, in microseconds.
    pub(crate) async fn now(&self) -> u64 {
        let mut connection = self.connection.clone();
        let time = redis::cmd("TIME").query_async(&mut connection).await;
        let (seconds, micros): (u64, u64) = time.unwrap();
        seconds * 1_000_000 + micros
    }

    /// Records a start of this key now.
    pub(crate) async fn record(&self, key: usize) {
        let now = self.now().await;
        self.all.lock().unwrap().push((now, key));
    }

    /// Returns the starts of a key, or all, in their order.
    pub(crate) fn of(&self, key: Option<usize>) -> Vec<u64> {
        let all = self.all.lock().unwrap();
        let times = all
            .iter()
            .filter(|(_, of)| key.is_none_or(|key| key == *of));
        let mut times = Vec::from_iter(times.map(|(time, _)| *time));
        times.sort_unstable();
        times
    }
}

/// Checks that each window has at most `burst` starts plus those of its time and of `slack`.
pub(crate) fn assert_within(starts: &[u64], per_second: u64, burst: u64, slack: Duration) {
    let slack = slack.as_micros() as u64;
    for (i, from) in starts.iter().enumerate() {
        for (j, to) in starts.iter().enumerate().skip(i) {
            let most = burst + (to - from + slack) * per_second / 1_000_000;
            let count = (j - i + 1) as u64;
            assert!(count <= most, "{count} in {} us, and not {most}", to - from);
        }
    }
}
