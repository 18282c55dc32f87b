//! Connections that are cut, reset, slow or killed, and calls that are dropped halfway.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use keylane_leases::error::{AcquireError, LeaseLost};
use keylane_leases::store::{LeaseStore, Wish};
use keylane_leases::{Leases, Owner, Settings};
use keylane_sql::{Database, SqlLeases, Tables, sqlx};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use testkit_servers::proxy::{Direction, Proxy};
use testkit_servers::{MariaDb, Postgres};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Kind, Place};

/// Machines stand still for a second or two, and a lease ends here after nine tenths of it.
const TTL: Duration = Duration::from_secs(10);

/// Longer than anything here takes, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(180);

/// Leases by way of a proxy, and the place itself.
async fn by_proxy(kind: Kind) -> (Place, Proxy, Leases) {
    let place = Place::new(kind).await;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, place.port()));
    let proxy = Proxy::to(server).await.unwrap();
    let database = Database::connect(&place.address_by(proxy.port()))
        .await
        .unwrap();
    let store = SqlLeases::open(&database, &Tables::new()).await.unwrap();
    let settings = Settings::new().call_limit(Duration::from_secs(1));
    let leases = Leases::open_with(Arc::new(store), settings).unwrap();
    (place, proxy, leases)
}

/// Runs a test with both servers, at the same time.
async fn each_kind<F: Future>(test: impl Fn(Kind) -> F) {
    join_all([Kind::Postgres, Kind::MariaDb].map(test)).await;
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    Both,
    ToServer,
    ToClient,
}

#[tokio::test]
async fn a_holder_that_is_cut_off_knows_it_before_another_can_have_the_key() {
    let cuts = [Cut::Both, Cut::ToServer, Cut::ToClient];
    each_kind(|kind| join_all(cuts.map(|cut| cut_off(kind, cut)))).await;
}

async fn cut_off(kind: Kind, cut: Cut) {
    let (place, proxy, here) = by_proxy(kind).await;
    let there = place.leases().await;
    let lease = here.acquire("key", TTL).await.unwrap();
    sleep(TTL).await;
    lease.check().unwrap();
    match cut {
        Cut::Both => proxy.cut(),
        Cut::ToServer => proxy.cut_to_server(),
        Cut::ToClient => proxy.cut_to_client(),
    }
    let taken = tokio::spawn({
        let there = there.clone();
        async move {
            let lease = there.acquire("key", TTL).await.unwrap();
            (Instant::now(), lease)
        }
    });
    let lost = lease.lost().await;
    let lost_at = Instant::now();
    assert_eq!(lost, LeaseLost::RanOut, "{kind:?}, {cut:?}");
    let (taken_at, taken) = timeout(PATIENCE, taken).await.unwrap().unwrap();
    assert!(lost_at < taken_at, "{kind:?}, {cut:?}");
    assert!(taken.token() > lease.token());
    // And when all is well again, so is the one that was cut off.
    proxy.heal();
    drop(taken);
    let healed = Instant::now();
    let again = async {
        loop {
            if let Ok(lease) = here.acquire("key", TTL).await {
                return lease;
            }
        }
    };
    let again = timeout(PATIENCE, again).await.expect("it recovers");
    println!(
        "{kind:?}, {cut:?}: acquired again after {:?}",
        healed.elapsed()
    );
    again.check().unwrap();
}

#[tokio::test]
async fn connections_that_are_reset_cost_no_lease() {
    each_kind(async |kind| {
        let (_place, proxy, leases) = by_proxy(kind).await;
        let lease = leases.acquire("key", TTL).await.unwrap();
        for _ in 0..4 {
            proxy.reset();
            sleep(TTL / 2).await;
            lease.check().unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_network_costs_no_lease() {
    each_kind(async |kind| {
        let (_place, proxy, leases) = by_proxy(kind).await;
        for direction in [Direction::ToServer, Direction::ToClient] {
            proxy.delay(direction, Duration::from_millis(60));
        }
        // A renewal takes several turns on this network.
        let lease = leases.acquire("key", TTL).await.unwrap();
        let ran = lease.run(sleep(TTL * 3 / 2)).await;
        assert_eq!(ran, Ok(()), "{kind:?}");
    })
    .await;
}

/// The server ends connections at random, as an operator does.
#[tokio::test]
async fn connections_that_are_killed_cost_no_lease() {
    each_kind(async |kind| {
        let place = Place::new(kind).await;
        let leases = place.leases().await;
        let lease = leases.acquire("key", TTL).await.unwrap();
        let mut tokens = Vec::new();
        for n in 0..20 {
            place.kill_connections().await;
            lease.check().unwrap();
            // One that fails may be asked for again.
            while tokens.len() == n {
                if let Ok(other) = leases.acquire("other", TTL).await {
                    tokens.push(other.token());
                }
            }
        }
        assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    })
    .await;
}

/// A server of its own.
enum Own {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Own {
    async fn start(kind: Kind) -> Self {
        match kind {
            Kind::Postgres => Self::Postgres(Postgres::start().await.unwrap()),
            Kind::MariaDb => Self::MariaDb(MariaDb::start().await.unwrap()),
        }
    }

    async fn create_database(&self) -> String {
        let created = match self {
            Self::Postgres(server) => server.create_database().await,
            Self::MariaDb(server) => server.create_database().await,
        };
        created.unwrap()
    }

    async fn kill(&self) {
        let killed = match self {
            Self::Postgres(server) => server.kill().await,
            Self::MariaDb(server) => server.kill().await,
        };
        killed.unwrap();
    }

    async fn start_again(&self) {
        let started = match self {
            Self::Postgres(server) => server.start_again().await,
            Self::MariaDb(server) => server.start_again().await,
        };
        started.unwrap();
    }
}

#[tokio::test]
async fn postgres_that_crashes_keeps_leases_and_tokens() {
    crashed(Kind::Postgres).await;
}

#[tokio::test]
async fn mariadb_that_crashes_keeps_leases_and_tokens() {
    crashed(Kind::MariaDb).await;
}

/// The server is killed and started again while a key is held, for longer than that takes.
async fn crashed(kind: Kind) {
    const LONG: Duration = Duration::from_secs(600);
    let server = Own::start(kind).await;
    let place = Place::at(kind, server.create_database().await)
        .await
        .migrated()
        .await;
    let (here, there) = (place.leases().await, place.leases().await);
    let held = here.acquire("held", LONG).await.unwrap();
    let mut last = None;
    for _ in 0..3 {
        let lease = there.acquire("other", LONG).await.unwrap();
        assert!(
            Some(lease.token()) > last,
            "{:?} after {last:?}",
            lease.token()
        );
        last = Some(lease.token());
        lease.release().await;
        server.kill().await;
        let refused = there.try_acquire("other", LONG).await;
        assert!(
            matches!(refused, Err(AcquireError::Store(_))),
            "{refused:?}"
        );
        server.start_again().await;
        held.check().unwrap();
        let taken = timeout(PATIENCE, async {
            loop {
                match there.try_acquire("held", LONG).await {
                    Err(AcquireError::Store(_)) => sleep(Duration::from_millis(50)).await,
                    answer => return answer,
                }
            }
        });
        let taken = taken.await.expect("the server answers again");
        assert!(
            matches!(taken, Err(AcquireError::Taken { .. })),
            "{taken:?}"
        );
    }
}

/// A call that is dropped halfway leaves no connection of the pool inside a transaction.
#[tokio::test]
async fn calls_that_are_dropped_leave_clean_connections() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        // Few connections, so that each is used again and again.
        let database = match kind {
            Kind::Postgres => {
                let pool = PgPoolOptions::new().max_connections(2);
                Database::postgres(pool.connect(&place.address).await.unwrap())
            }
            Kind::MariaDb => {
                let pool = MySqlPoolOptions::new().max_connections(2);
                Database::mysql(pool.connect(&place.address).await.unwrap())
            }
        };
        let store = SqlLeases::open(&database, &Tables::new()).await.unwrap();
        let (owner, tables) = (Owner::random(), Tables::new().prefix("more_").unwrap());
        let wishes = Vec::from_iter((0..20).map(|n| Wish::new(n.to_string(), TTL)));
        // At each await that there is, until the call comes to its end. Several times: sometimes an
        // answer is there at once.
        for _ in 0..5 {
            for polls in 1.. {
                connect(&database).await;
                let call = store.acquire(&owner, &wishes);
                if polled(polls, call).await.is_some() {
                    break;
                }
                no_open_transactions(&place).await;
            }
            // It begins a transaction.
            for polls in 1.. {
                connect(&database).await;
                if polled(polls, database.migrate(&tables)).await.is_some() {
                    break;
                }
                no_open_transactions(&place).await;
            }
        }
        let answers = store.acquire(&owner, &wishes).await.unwrap();
        assert_eq!(answers.len(), wishes.len());
        database.check(&tables).await.unwrap();
    }
}

/// Sees to it that the pool has a connection that is not in use.
async fn connect(database: &Database) {
    database.check(&Tables::new()).await.unwrap();
    // A task of sqlx gives it back.
    sleep(Duration::from_millis(5)).await;
}

/// The server rolls back when it hears that a connection was closed.
async fn no_open_transactions(place: &Place) {
    let clean = async {
        while place.open_transactions().await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let clean = timeout(PATIENCE, clean).await;
    assert!(
        clean.is_ok(),
        "{:?}: a connection is in a transaction",
        place.kind
    );
}

/// Polls a call so many times, and drops it. What it has brought, if it came to its end.
async fn polled<T, E: std::fmt::Debug>(
    mut times: usize,
    call: impl Future<Output = Result<T, E>>,
) -> Option<T> {
    let mut call = std::pin::pin!(call);
    std::future::poll_fn(|cx| {
        times -= 1;
        match call.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer.unwrap())),
            Poll::Pending if times == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
