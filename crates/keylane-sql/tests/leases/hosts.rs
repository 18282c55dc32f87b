//! An address that names a primary and its standby: leases follow the one that takes writes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keylane_leases::error::{AcquireError, LeaseLost};
use keylane_leases::{Lease, Leases, Settings, Token};
use keylane_sql::{Database, SqlLeases, Tables};
use tokio::time::{Instant, sleep, timeout};

use crate::support::pair::Pair;
use crate::support::{Kind, Place};

/// Longer than a fail-over takes.
const LONG: Duration = Duration::from_secs(600);

/// Of a holder that asks the new primary when half of it is over, and not before.
const SHORT: Duration = Duration::from_secs(60);

const PATIENCE: Duration = Duration::from_secs(60);

/// PostgreSQL logs 32 tokens at a time, so a standby that is behind may be ahead by as many.
const TOKENS: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_synchronous_postgres_leases_and_tokens_go_on() {
    goes_on(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_synchronous_mariadb_leases_and_tokens_go_on() {
    goes_on(Kind::MariaDb).await;
}

async fn goes_on(kind: Kind) {
    let (pair, _place, address) = pair(kind).await;
    pair.synchronous().await;
    let (here, there) = (leases(&address).await, leases(&address).await);
    let held = here.acquire("held", LONG).await.unwrap();
    let tokens = draw(&here, TOKENS).await;
    pair.kill_primary().await;
    pair.promote().await;
    // A grant that was confirmed is there.
    assert!(answered(&there, "held").await.is_none());
    held.check().unwrap();
    let other = answered(&there, "other").await.unwrap();
    let before = tokens.last().copied().max(Some(held.token()));
    assert!(Some(other.token()) > before, "{other:?} after {before:?}");
    // Its holder follows too: otherwise the key would be taken for ten minutes.
    let token = held.token();
    held.release().await;
    let next = timeout(PATIENCE, there.acquire("held", LONG));
    let next = next.await.expect("the key is free").unwrap();
    assert!(next.token() > token, "{next:?} after {token:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_was_behind_grants_again() {
    grants_again(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_that_was_behind_grants_again() {
    grants_again(Kind::MariaDb).await;
}

/// What the documents say of an asynchronous fail-over: two holders, and tokens a second time.
async fn grants_again(kind: Kind) {
    let (pair, place, address) = pair(kind).await;
    let (here, there) = (leases(&address).await, leases(&address).await);
    let first = here.acquire("first", LONG).await.unwrap();
    pair.until_same(&place.address, "select count(*) from keylane_leases")
        .await;
    let before = timeline(&place).await;
    pair.fall_behind().await;
    let tokens = draw(&here, TOKENS).await;
    let held = here.acquire("held", SHORT).await.unwrap();
    pair.kill_primary().await;
    pair.promote().await;
    let again = answered(&there, "held").await.unwrap();
    held.check().expect("its holder does not know yet");
    assert!(again.token() < held.token(), "{again:?} beside {held:?}");
    // What had come to the standby still stands.
    assert!(answered(&there, "first").await.is_none());
    let repeated = draw(&there, TOKENS).await;
    let repeated = repeated.intersection(&tokens).count();
    println!("{kind:?}: {repeated} of {TOKENS} tokens a second time");
    assert!(repeated > 0, "no token has come a second time");
    // The first holder asks the new primary in time, and hears of it.
    assert_eq!(held.lost().await, LeaseLost::TakenOver);
    first.check().unwrap();
    again.check().unwrap();
    // By this, the store of the writes can tell the two primaries apart.
    let standby = Place::at(kind, place.address_by(pair.ports().1)).await;
    let after = timeline(&standby).await;
    assert!(
        kind == Kind::MariaDb || after > before,
        "{after:?} after {before:?}"
    );
}

/// A pair with tables on both, the place of the primary, and the address of both.
async fn pair(kind: Kind) -> (Pair, Place, String) {
    let pair = Pair::start(kind).await;
    let place = Place::at(kind, pair.create_database().await).await;
    let place = place.migrated().await;
    let tables = "select count(*) from keylane_leases";
    pair.until_same(&place.address, tables).await;
    pair.set_read_only(true).await;
    let address = pair.both(&place.address, "");
    (pair, place, address)
}

async fn leases(address: &str) -> Leases {
    let database = Database::connect(address).await.unwrap();
    let store = SqlLeases::open(&database, &Tables::new()).await.unwrap();
    let settings = Settings::new().call_limit(Duration::from_secs(2));
    Leases::open_with(Arc::new(store), settings).unwrap()
}

/// The tokens of grants, one after the other.
async fn draw(leases: &Leases, count: usize) -> BTreeSet<Token> {
    let mut tokens = BTreeSet::new();
    for n in 0..count {
        let lease = loop {
            match leases.acquire(format!("drawn {n}"), LONG).await {
                Ok(lease) => break lease,
                // On a busy machine.
                Err(AcquireError::Store(_)) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert!(Some(&lease.token()) > tokens.last(), "{lease:?}");
        tokens.insert(lease.token());
    }
    tokens
}

/// Asks for a key until a server answers. `None`: another owner has it.
async fn answered(leases: &Leases, key: &'static str) -> Option<Lease> {
    let began = Instant::now();
    loop {
        match leases.try_acquire(key, LONG).await {
            Ok(lease) => return Some(lease),
            Err(AcquireError::Taken { .. }) => return None,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The timeline of PostgreSQL. `None`: MariaDB has none.
async fn timeline(place: &Place) -> Option<i64> {
    let timeline =
        "select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint";
    match place.kind {
        Kind::Postgres => Some(place.number(timeline).await),
        Kind::MariaDb => None,
    }
}
