//! Processes that are paused past their leases or killed, and write nothing stale.

use std::time::Duration;

use futures::future::join_all;
use keylane_leases::{Leases, Settings, Token};
use keylane_testkit::{Evidence, History, Rule};
use redis::Script;
use redis::aio::MultiplexedConnection;
use testkit_processes::{Process, end_with_parent, pause_in_turn};
use testkit_servers::{Redis, RedisKind};

use crate::support::{execute, own, store};

const TTL: Duration = Duration::from_millis(400);

const KEYS: usize = 5;

/// What a worker prints when it has acquired the key and written.
const HOLDS: &str = "holds";

/// Stores the token of the last writer, and each write. A fenced sink refuses a lower token.
const WRITE: &str = "
    local last = redis.call('GET', KEYS[1])
    if ARGV[2] == 'fenced' and last and tonumber(last) > tonumber(ARGV[1]) then return 0 end
    redis.call('SET', KEYS[1], ARGV[1])
    return redis.call('RPUSH', KEYS[2], ARGV[1])
";

/// How often a holder is paused, over all keys: 20 by default.
fn pauses() -> usize {
    std::env::var("KEYLANE_LEASE_PAUSES").map_or(20, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_refuses_what_a_paused_holder_writes() {
    paused(RedisKind::Redis8, true, pauses()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_refuses_what_a_paused_holder_writes() {
    paused(RedisKind::Valkey9, true, pauses()).await;
}

/// The same test without tokens: the same pauses, and stale writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_a_paused_holder_overwrites() {
    paused(RedisKind::Redis7, false, 40).await;
}

/// The leases are in one server, and the values that holders write in another.
struct Place {
    leases: Redis,
    sink: Redis,
}

impl Place {
    async fn start(kind: RedisKind) -> Self {
        Self {
            leases: own(kind).await,
            sink: own(kind).await,
        }
    }

    /// Returns the writes of each key in their order, as a history, and their number.
    async fn history(&self) -> (History, usize) {
        let (history, mut count) = (History::new(), 0);
        for key in 0..KEYS {
            let writes = execute(&self.sink, &format!("LRANGE writes-{key} 0 -1")).await;
            for token in writes.lines() {
                history.sink_write(key as u64, token.parse().unwrap(), true);
                count += 1;
            }
        }
        (history, count)
    }
}

/// Two processes for each of some keys. The holder of the key is paused until the other one has it,
/// and then goes on with its interrupted work.
async fn paused(kind: RedisKind, is_fenced: bool, pauses: usize) {
    let place = Place::start(kind).await;
    let rounds = pauses.div_ceil(KEYS);
    let keys = (0..KEYS).map(|key| pause_holders(&place, key, is_fenced, rounds));
    let longest = join_all(keys).await.into_iter().max().unwrap();
    let (history, writes) = place.history().await;
    println!(
        "{kind}: {} pauses, {writes} writes, taken over within {longest:?}",
        rounds * KEYS
    );
    assert!(writes > 0);
    match history.check(&Evidence::new()) {
        Ok(verdict) => {
            verdict.assert_judged(&[Rule::Fencing]);
            assert!(is_fenced, "there are no stale writes");
        }
        Err(violations) => {
            println!("{} stale writes", violations.len());
            assert!(!is_fenced, "{violations:?}");
            assert!(
                violations.iter().all(|one| one.rule == Rule::Fencing),
                "{violations:?}"
            );
        }
    }
}

/// Returns the longest time from a pause to the takeover. A pause mostly falls in the middle of a
/// write.
async fn pause_holders(place: &Place, key: usize, is_fenced: bool, rounds: usize) -> Duration {
    let mut workers = [worker(place, key, is_fenced), worker(place, key, is_fenced)];
    pause_in_turn(&mut workers, HOLDS, rounds).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_followed_by_another() {
    for kind in RedisKind::ALL {
        let place = Place::start(kind).await;
        let mut holder = worker(&place, 0, true);
        for _ in 0..3 {
            holder.wait_for(HOLDS).await;
            // Waits for the key, beside its holder.
            let next = worker(&place, 0, true);
            tokio::time::sleep(TTL).await;
            // It is killed.
            drop(std::mem::replace(&mut holder, next));
        }
        holder.wait_for(HOLDS).await;
        let (history, writes) = place.history().await;
        assert!(writes > 0, "{kind}");
        let verdict = history.check(&Evidence::new()).unwrap();
        verdict.assert_judged(&[Rule::Fencing]);
    }
}

/// A process that waits for a key, writes under its lease until it is lost, and waits again.
fn worker(place: &Place, key: usize, is_fenced: bool) -> Process {
    let variables = [
        ("KEYLANE_LEASES_CHILD", place.leases.url()),
        ("KEYLANE_LEASES_SINK", place.sink.url()),
        ("KEYLANE_LEASES_KEY", key.to_string()),
        (
            "KEYLANE_LEASES_FENCED",
            if is_fenced { "fenced" } else { "" }.to_owned(),
        ),
    ];
    Process::start("fencing::child", variables)
}

/// A worker. It does nothing unless the tests above start it.
#[test]
fn child() {
    let Ok(url) = std::env::var("KEYLANE_LEASES_CHILD") else {
        return;
    };
    let variable = |name| std::env::var(name).unwrap();
    let sink = variable("KEYLANE_LEASES_SINK");
    let (key, fenced) = (
        variable("KEYLANE_LEASES_KEY"),
        variable("KEYLANE_LEASES_FENCED"),
    );
    end_with_parent();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(work(&url, &sink, &key, &fenced));
}

async fn work(url: &str, sink: &str, key: &str, fenced: &str) {
    let settings = Settings::new().look_again(Duration::from_millis(100));
    let leases = Leases::open_with(store(url, "leases"), settings).unwrap();
    let client = redis::Client::open(sink).unwrap();
    let mut sink = client.get_multiplexed_async_connection().await.unwrap();
    loop {
        let Ok(lease) = leases.acquire(format!("key {key}"), TTL).await else {
            continue;
        };
        let (token, mut writes) = (lease.token(), 0);
        while lease
            .run(write(&mut sink, key, token, fenced))
            .await
            .is_ok()
        {
            writes += 1;
            // Not before its first write: the writes of a paused holder are stale then.
            if writes == 1 {
                println!("\n{HOLDS}");
            }
        }
    }
}

/// Works for a while, as a handler that computes, and then writes. A pause mostly falls between the
/// two. Writes are sent at once, so a paused process sends them when it goes on.
async fn write(sink: &mut MultiplexedConnection, key: &str, token: Token, fenced: &str) {
    std::thread::sleep(Duration::from_millis(20));
    let script = Script::new(WRITE);
    let mut write = script.key(format!("sink-{key}"));
    let write = write.key(format!("writes-{key}")).arg(token.0).arg(fenced);
    let _: i64 = write.invoke_async(sink).await.unwrap();
}
