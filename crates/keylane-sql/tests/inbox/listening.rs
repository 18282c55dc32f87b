//! A connection that only listens, and whose other end is gone without a word.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use keylane::source::{Deliveries, Source};
use keylane_sql::{Database, Settings, SourceSettings, SqlInbox, Tables, sqlx};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit_servers::proxy::Proxy;
use tokio::time::{Instant, sleep, timeout};

use crate::rig::message;
use crate::support::{Kind, Place};

/// It looks by itself this rarely only.
const POLL: Duration = Duration::from_secs(3_600);

const SOON: Duration = Duration::from_secs(60);

/// A fail-over: what was connected to the old server is never answered, and new connections go to the
/// new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_without_an_other_end_listens_again() {
    let place = Place::new(Kind::Postgres).await;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, place.port()));
    let proxy = Proxy::to(server).await.unwrap();
    let before = PgConnectOptions::from_str(&place.address_by(proxy.port())).unwrap();
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(2));
    let pool = pool.connect_with(before).await.unwrap();
    let database = Database::postgres(pool.clone());
    let settings = Settings::new().call_limit(Duration::from_secs(3));
    let inbox = SqlInbox::open(&database, &Tables::new(), settings).await;
    let settings = SourceSettings::new().lease(POLL).poll(POLL);
    let mut source = inbox.unwrap().source_with(settings);
    source.open().await.unwrap();
    listeners(&place, 1).await;
    proxy.cut();
    pool.set_connect_options(PgConnectOptions::from_str(&place.address).unwrap());
    // The server has not heard that the first one is gone, either.
    listeners(&place, 2).await;
    // What was said to the old server is given up, and the source rests until it is told something.
    receive(&mut source, Duration::from_secs(15)).await;
    place
        .inbox()
        .await
        .inbox()
        .accept_message(message(1, 1))
        .await
        .unwrap();
    let received = receive(&mut source, SOON).await;
    assert_eq!(received, 1, "it hears of it");
}

/// Waits until so many connections listen.
async fn listeners(place: &Place, count: i64) {
    let listen = "select count(*) from pg_stat_activity
        where datname = current_database() and query ilike 'listen %'";
    let listens = timeout(SOON, async {
        while place.number(listen).await < count {
            sleep(Duration::from_millis(100)).await;
        }
    });
    listens.await.expect("it listens");
}

/// How many messages are handed over within this time, one at most.
async fn receive(source: &mut impl Source, within: Duration) -> usize {
    let until = Instant::now() + within;
    loop {
        let mut into = Deliveries::new(1, until);
        source.receive(&mut into).await.unwrap();
        let count = into.take().len();
        if count > 0 || Instant::now() >= until {
            return count;
        }
    }
}
