//! Processes that are paused in the middle of a handler, for longer than their claims last.

use std::sync::Arc;
use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_inbox::NewMessage;
use keylane_sql::{Database, Settings, SourceSettings, SqlInbox, Tables, sqlx};
use keylane_testkit::scenario::{boxed, by_key};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, MySqlPool, PgPool};
use testkit_processes::{Process, end_with_parent};
use tokio::time::{Instant, timeout};

use crate::support::{Kind, Place, stale};

const TTL: Duration = Duration::from_secs(1);

/// What a worker prints in the middle of a handler.
const RUNS: &str = "runs";

/// How often a worker is paused, over all pairs: 24 unless set.
fn pauses() -> usize {
    std::env::var("KEYLANE_INBOX_PAUSES").map_or(24, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_takes_nothing_from_a_paused_worker() {
    paused(Kind::Postgres, true, 8, pauses()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_takes_nothing_from_a_paused_worker() {
    paused(Kind::MariaDb, true, 8, pauses()).await;
}

/// The twin without tokens: the same pauses, and stale effects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_a_paused_worker_has_stale_effects() {
    paused(Kind::Postgres, false, 2, 8).await;
}

/// Pairs of workers, each with an inbox of its own.
async fn paused(kind: Kind, fenced: bool, pairs: usize, pauses: usize) {
    let rounds = pauses.div_ceil(pairs);
    let count = rounds * pairs;
    let pairs = (0..pairs).map(|_| tokio::spawn(pause_workers(kind, fenced, rounds)));
    let (mut longest, mut effects, mut stale) = (Duration::ZERO, 0, 0);
    for pair in Vec::from_iter(pairs) {
        let (takeover, written, late) = pair.await.unwrap();
        longest = longest.max(takeover);
        effects += written;
        stale += late;
    }
    println!(
        "{kind:?}: {} pauses, {effects} effects, {stale} of them stale, taken over within {longest:?}",
        count
    );
    assert_eq!(stale == 0, fenced, "{stale} stale effects");
}

/// Two processes and one key. Returns the longest time from a pause to the takeover, how many effects
/// there were, and how many of them were stale.
async fn pause_workers(kind: Kind, fenced: bool, rounds: usize) -> (Duration, usize, usize) {
    let place = Arc::new(Place::new(kind).await);
    let number = match kind {
        Kind::Postgres => "bigserial",
        Kind::MariaDb => "bigint auto_increment",
    };
    let effects = format!(
        "create table effects (n {number} primary key, id bigint not null, token bigint not null)"
    );
    place.execute(effects).await;
    let inbox = place.inbox().await.inbox();
    let mut accepted = 0;
    let mut workers = [worker(&place, fenced), worker(&place, fenced)];
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        let more = (accepted + 1..=accepted + 20)
            .map(|id: i64| NewMessage::new("key", id.to_be_bytes().to_vec()));
        inbox.accept_many(more).await.unwrap();
        accepted += 20;
        let [one, other] = &mut workers;
        one.skip_lines();
        other.skip_lines();
        let holder = tokio::select! {
            () = one.wait_for(RUNS) => 0,
            () = other.wait_for(RUNS) => 1,
        };
        // In the middle of the handler: it works for longer than this takes.
        let since = Instant::now();
        workers[holder].pause().await;
        let next = 1 - holder;
        workers[next].skip_lines();
        workers[next].wait_for(RUNS).await;
        longest = longest.max(since.elapsed());
        // And has written something.
        workers[next].wait_for(RUNS).await;
        workers[holder].resume();
        let handled = async {
            while place.number("select count(*) from keylane_messages").await > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let handled = timeout(Duration::from_secs(180), handled).await;
        handled.expect("what is left is handled");
    }
    let effects = place
        .pairs("select id, token from effects order by n")
        .await;
    // There is one key.
    let stale = stale(effects.iter().map(|(_, token)| (0, *token)));
    // A message that a stale done-mark has removed would have none.
    let ids: std::collections::BTreeSet<i64> = effects.iter().map(|(id, _)| *id).collect();
    assert_eq!(Vec::from_iter(ids), Vec::from_iter(1..=accepted));
    (longest, effects.len(), stale)
}

/// A process that consumes. It says when a handler is in its middle.
fn worker(place: &Place, fenced: bool) -> Process {
    let variables = [
        ("KEYLANE_INBOX_CHILD", place.address.as_str()),
        ("KEYLANE_INBOX_FENCED", if fenced { "1" } else { "0" }),
    ];
    Process::start("fencing::child", variables)
}

/// A worker. Nothing, unless it is started by the tests above.
#[test]
fn child() {
    let Ok(address) = std::env::var("KEYLANE_INBOX_CHILD") else {
        return;
    };
    let kind = match address.starts_with("postgres") {
        true => Kind::Postgres,
        false => Kind::MariaDb,
    };
    let fenced = std::env::var("KEYLANE_INBOX_FENCED").unwrap() == "1";
    end_with_parent();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(work(kind, address, fenced));
}

async fn work(kind: Kind, address: String, fenced: bool) {
    // Few connections: there are many of these processes.
    let sink = match kind {
        Kind::Postgres => {
            let pool = PgPoolOptions::new().max_connections(4);
            Sink::Postgres(pool.connect(&address).await.unwrap())
        }
        Kind::MariaDb => {
            let pool = MySqlPoolOptions::new().max_connections(4);
            Sink::MySql(pool.connect(&address).await.unwrap())
        }
    };
    let database = match &sink {
        Sink::Postgres(pool) => Database::postgres(pool.clone()),
        Sink::MySql(pool) => Database::mysql(pool.clone()),
    };
    let inbox = SqlInbox::open(&database, &Tables::new(), Settings::new()).await;
    let inbox = inbox.unwrap();
    let handler = move |message: RawMessage| {
        let sink = sink.clone();
        async move {
            let id = i64::from_be_bytes(message.payload[..].try_into().unwrap());
            sink.effect(id, fenced).await.unwrap();
            Ok(())
        }
    };
    // A pause is like a death to the others, and counts as an attempt.
    let dispatcher = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(1_000))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(handler))
        .unwrap();
    let settings = SourceSettings::new()
        .lease(TTL)
        .poll(Duration::from_millis(200));
    let intake = dispatcher.consume(inbox.source_with(settings)).unwrap();
    std::future::pending::<()>().await;
    drop(intake);
}

#[derive(Clone)]
enum Sink {
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Sink {
    /// Reads the token of the lane, computes for a while, and writes under that token: if it is
    /// fenced, only while it is the one of the lane.
    async fn effect(&self, id: i64, fenced: bool) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(pool) => {
                let lane = "lane = sha256('key')";
                let read = format!("select token from keylane_lanes where {lane}");
                let read = sqlx::query_scalar(AssertSqlSafe(read));
                let token: i64 = read.fetch_one(pool).await?;
                compute();
                let only = match fenced {
                    true => {
                        format!("from keylane_lanes where {lane} and token = {token} for share")
                    }
                    false => String::new(),
                };
                let write = format!(
                    "with ours as (select 1 {only})
                     insert into effects (id, token) select {id}, {token} from ours"
                );
                sqlx::raw_sql(AssertSqlSafe(write)).execute(pool).await?;
            }
            Self::MySql(pool) => {
                let lane = "lane = unhex(sha2('key', 256))";
                let read = format!("select cast(token as signed) from keylane_lanes where {lane}");
                let read = sqlx::query_scalar(AssertSqlSafe(read));
                let token: i64 = read.fetch_one(pool).await?;
                compute();
                let only = match fenced {
                    true => format!("from keylane_lanes where {lane} and token = {token}"),
                    false => String::new(),
                };
                let write = format!("insert into effects (id, token) select {id}, {token} {only}");
                sqlx::raw_sql(AssertSqlSafe(write)).execute(pool).await?;
            }
        }
        Ok(())
    }
}

/// The middle of a handler: a pause falls into it, and what is written then is sent at once.
fn compute() {
    println!("\n{RUNS}");
    std::thread::sleep(Duration::from_millis(80));
}
