//! Databases whose clock is set while leases are held.

use std::time::Duration;

use keylane_leases::Owner;
use keylane_leases::store::{Answer, Claim, LeaseStore, Token, Wish};
use keylane_sql::SqlLeases;
use testkit_servers::{Clock, MariaDb, Postgres};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Kind, Place};

const TTL: Duration = Duration::from_secs(2);

/// Much less than the clock is set by.
const SOON: Duration = Duration::from_secs(60);

const HOUR: i64 = 3_600;

#[tokio::test]
async fn a_postgres_whose_clock_is_set_keeps_no_lease_for_an_hour() {
    let (server, clock) = Postgres::start_with_clock().await.unwrap();
    let address = server.create_database().await.unwrap();
    clock_is_set(Kind::Postgres, address, &clock).await;
}

#[tokio::test]
async fn a_mariadb_whose_clock_is_set_keeps_no_lease_for_an_hour() {
    let (server, clock) = MariaDb::start_with_clock().await.unwrap();
    let address = server.create_database().await.unwrap();
    clock_is_set(Kind::MariaDb, address, &clock).await;
}

async fn clock_is_set(kind: Kind, address: String, clock: &Clock) {
    let place = Place::at(kind, address).await.migrated().await;
    let store = place.store().await;
    for step in [HOUR, -HOUR] {
        clock.set(0).unwrap();
        let key = |name: &str| format!("{name}, {kind:?}, {step}");
        let (here, there) = (Owner::random(), Owner::random());
        let released = granted(&store, &here, &key("released")).await.unwrap();
        let released = Claim::new(key("released"), released, TTL);
        store.release(&here, &[released]).await.unwrap();
        granted(&store, &here, &key("left")).await.unwrap();
        let renewed = granted(&store, &here, &key("renewed")).await.unwrap();
        let renewed = Claim::new(key("renewed"), renewed, TTL);
        clock.set(step).unwrap();

        // One that is renewed is there, or was lost to the jump; and it runs out in its time.
        let held = store.renew(&here, &[renewed]).await.unwrap();
        assert_eq!(held, [true], "none has taken it");
        // One that was granted after the step lasts as long as any.
        granted(&store, &here, &key("released")).await.unwrap();
        granted(&store, &here, &key("new")).await.unwrap();
        for name in ["renewed", "released", "new"] {
            is_free_in_time(&store, &there, &key(name)).await;
        }
        // That of its holder alone is late by the step: it was granted before, and not renewed.
        if step > 0 {
            is_free_in_time(&store, &there, &key("left")).await;
        }
    }
}

async fn granted(store: &SqlLeases, owner: &Owner, key: &str) -> Option<Token> {
    let wish = Wish::new(key.to_owned(), TTL);
    let answers = store.acquire(owner, &[wish]).await.unwrap();
    match answers[..] {
        [Answer::Granted(token)] => Some(token),
        _ => None,
    }
}

async fn is_free_in_time(store: &SqlLeases, owner: &Owner, key: &str) {
    let began = Instant::now();
    let free = timeout(SOON, async {
        while granted(store, owner, key).await.is_none() {
            sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(free.await.is_ok(), "{key} is not free");
    println!("{key}: free after {:?}", began.elapsed());
}
