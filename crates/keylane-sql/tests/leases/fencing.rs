//! Processes that are paused past their leases or killed, and write nothing that is stale.

use std::sync::Arc;
use std::time::Duration;

use keylane_leases::{Leases, Settings, Token};
use keylane_sql::{Database, SqlLeases, Tables, sqlx};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use testkit_processes::{Process, end_with_parent, pause_in_turn};

use crate::support::{Kind, Place, stale};

const TTL: Duration = Duration::from_millis(400);

/// What a worker prints when it has acquired the key and written.
const HOLDS: &str = "holds";

/// How often a holder is paused, over all keys: 30 unless set.
fn pauses() -> usize {
    std::env::var("KEYLANE_LEASE_PAUSES").map_or(30, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_refuses_what_a_paused_holder_writes() {
    paused(Kind::Postgres, true, pauses()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_refuses_what_a_paused_holder_writes() {
    paused(Kind::MariaDb, true, pauses()).await;
}

/// The twin without tokens: the same pauses, and stale writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_a_paused_holder_overwrites() {
    paused(Kind::Postgres, false, 40).await;
}

/// Two processes for each of some keys. The one that holds the key is paused until the other one
/// has it, and goes on in the middle of what it was doing.
async fn paused(kind: Kind, fenced: bool, pauses: usize) {
    const KEYS: usize = 5;
    let place = Arc::new(Place::new(kind).await);
    make_sink(&place).await;
    let rounds = pauses.div_ceil(KEYS);
    let keys = (0..KEYS).map(|key| {
        let place = Arc::clone(&place);
        tokio::spawn(async move { pause_holders(&place, key, fenced, rounds).await })
    });
    let mut longest = Duration::ZERO;
    for key in Vec::from_iter(keys) {
        longest = longest.max(key.await.unwrap());
    }
    let (writes, stale) = judge(&place).await;
    println!(
        "{kind:?}: {} pauses, {writes} writes, {stale} of them stale, taken over within {longest:?}",
        rounds * KEYS
    );
    assert!(writes > 0);
    assert_eq!(stale == 0, fenced, "{stale} stale writes");
}

/// Returns the longest time from a pause to the takeover. A pause mostly falls in the middle of a
/// write.
async fn pause_holders(place: &Place, key: usize, fenced: bool, rounds: usize) -> Duration {
    let mut workers = [worker(place, key, fenced), worker(place, key, fenced)];
    pause_in_turn(&mut workers, HOLDS, rounds).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_followed_by_another() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        make_sink(&place).await;
        let mut holder = worker(&place, 0, true);
        for _ in 0..5 {
            holder.wait_for(HOLDS).await;
            // Waits for the key, beside the one that has it.
            let next = worker(&place, 0, true);
            tokio::time::sleep(TTL).await;
            // It is killed.
            drop(std::mem::replace(&mut holder, next));
        }
        holder.wait_for(HOLDS).await;
        let (writes, stale) = judge(&place).await;
        assert!(writes > 0 && stale == 0, "{writes} writes, {stale} stale");
    }
}

/// A process that waits for a key, writes under its lease until it is lost, and waits again. It says
/// when it has acquired the key and written.
fn worker(place: &Place, key: usize, fenced: bool) -> Process {
    let variables = [
        ("KEYLANE_LEASES_CHILD", place.address.as_str()),
        ("KEYLANE_LEASES_KEY", &key.to_string()),
        ("KEYLANE_LEASES_FENCED", if fenced { "1" } else { "0" }),
    ];
    Process::start("fencing::child", variables)
}

/// A worker. Nothing, unless it is started by the tests above.
#[test]
fn child() {
    let Ok(address) = std::env::var("KEYLANE_LEASES_CHILD") else {
        return;
    };
    let kind = match address.starts_with("postgres") {
        true => Kind::Postgres,
        false => Kind::MariaDb,
    };
    let key: i32 = std::env::var("KEYLANE_LEASES_KEY")
        .unwrap()
        .parse()
        .unwrap();
    let fenced = std::env::var("KEYLANE_LEASES_FENCED").unwrap() == "1";
    end_with_parent();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(work(kind, &address, key, fenced));
}

async fn work(kind: Kind, address: &str, key: i32, fenced: bool) {
    let database = Database::connect(address).await.unwrap();
    let store = SqlLeases::open(&database, &Tables::new()).await.unwrap();
    let settings = Settings::new().look_again(Duration::from_millis(100));
    let leases = Leases::open_with(Arc::new(store), settings).unwrap();
    let sink = Sink { kind, fenced, key };
    let mut connection = sink.connect(address).await;
    loop {
        let Ok(lease) = leases.acquire(format!("key {key}"), TTL).await else {
            continue;
        };
        let (token, mut writes) = (lease.token(), 0);
        while lease.run(sink.write(&mut connection, token)).await.is_ok() {
            writes += 1;
            // Not before it has written: what a paused holder writes then is stale.
            if writes == 1 {
                println!("\n{HOLDS}");
            }
        }
        // What was dropped in the middle of a write has left the connection there.
        connection = sink.connect(address).await;
    }
}

/// A table that remembers, for each key, the token of its last writer, and each write.
struct Sink {
    kind: Kind,
    fenced: bool,
    key: i32,
}

enum Either {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Sink {
    async fn connect(&self, address: &str) -> Either {
        match self.kind {
            Kind::Postgres => Either::Postgres(PgConnection::connect(address).await.unwrap()),
            Kind::MariaDb => Either::MySql(MySqlConnection::connect(address).await.unwrap()),
        }
    }

    /// Works for a while, as a handler does that computes, and then writes. A pause falls between
    /// the two most of the time. What is written is sent at once, so that a paused process sends it
    /// when it goes on.
    async fn write(&self, connection: &mut Either, token: Token) {
        std::thread::sleep(Duration::from_millis(20));
        let (key, is_newest) = (self.key, if self.fenced { "token <= " } else { "0 <> " });
        match connection {
            Either::Postgres(connection) => {
                let text = format!(
                    "with written as (
                        update sink set token = {token} where id = {key} and {is_newest} {token}
                        returning id
                    )
                    insert into writes (id, token) select id, {token} from written"
                );
                let written = sqlx::raw_sql(AssertSqlSafe(text)).execute(connection);
                written.await.unwrap();
            }
            Either::MySql(connection) => {
                let text = format!(
                    "begin;
                    update sink set token = {token} where id = {key} and {is_newest} {token};
                    insert into writes (id, token)
                    select id, {token} from sink where id = {key} and token = {token};
                    commit"
                );
                let written = sqlx::raw_sql(AssertSqlSafe(text)).execute(connection);
                written.await.unwrap();
            }
        }
    }
}

async fn make_sink(place: &Place) {
    place
        .execute("create table sink (id bigint primary key, token bigint not null)")
        .await;
    let number = match place.kind {
        Kind::Postgres => "bigserial",
        Kind::MariaDb => "bigint auto_increment",
    };
    let writes = format!(
        "create table writes (n {number} primary key, id bigint not null, token bigint not null)"
    );
    place.execute(writes).await;
    let keys = Vec::from_iter((0..5).map(|key| format!("({key}, 0)")));
    let keys = format!("insert into sink (id, token) values {}", keys.join(", "));
    place.execute(keys).await;
}

/// How many writes there were, and how many of them were stale.
async fn judge(place: &Place) -> (usize, usize) {
    let writes = place.pairs("select id, token from writes order by n").await;
    (writes.len(), stale(writes.iter().copied()))
}
