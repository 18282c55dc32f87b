//! Workers that enter another history of the database: all that is in it is looked at.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use keylane::source::{Deliveries, Source};
use keylane_sql::{Database, Settings, SourceSettings, SqlInbox, Tables};
use testkit_servers::proxy::{Direction, Proxy};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{Lock, message};
use crate::support::{Kind, Place};

const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

const SOON: Duration = Duration::from_secs(30);

/// Of a call, and less than it takes to enter in these tests.
const CALL: Duration = Duration::from_secs(3);

async fn inbox_at(address: &str, limit: Duration) -> SqlInbox {
    let database = Database::connect(address).await.unwrap();
    let settings = Settings::new().call_limit(limit);
    let inbox = SqlInbox::open(&database, &Tables::new(), settings).await;
    inbox.unwrap()
}

async fn leave_history(place: &Place) {
    place
        .execute("update keylane_history set id = 'another'")
        .await;
}

/// Whether the history of the database is known.
async fn is_entered(place: &Place) -> bool {
    let others = "select count(*) from keylane_history where id = 'another'";
    place.number(others).await == 0
}

/// What takes so long is a table that is locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_may_take_longer_than_a_call() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let inbox = inbox_at(&place.address, CALL).await;
        let mut source = inbox.source_with(SourceSettings::new());
        leave_history(&place).await;
        let lock = Lock::of(&place, "messages").await;
        let entered = tokio::spawn(async move { source.open().await });
        sleep(CALL * 2).await;
        lock.end().await;
        entered.await.unwrap().unwrap();
        assert!(is_entered(&place).await);
    }
}

/// A dispatcher drops `receive` often while an attempt of before cannot be dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_that_is_dropped_joins_all_the_same() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let proxy = Proxy::to(SocketAddr::from((Ipv4Addr::LOCALHOST, place.port())));
        let proxy = proxy.await.unwrap();
        let inbox = inbox_at(&place.address_by(proxy.port()), SOON).await;
        inbox.inbox().accept_message(message(1, 1)).await.unwrap();
        proxy.delay(Direction::ToClient, Duration::from_millis(20));
        let mut source = inbox.source_with(SourceSettings::new());
        let began = Instant::now();
        loop {
            let mut into = Deliveries::new(1, Instant::now() + SOON);
            let received = timeout(Duration::from_millis(10), source.receive(&mut into)).await;
            if !into.take().is_empty() {
                break;
            }
            assert!(began.elapsed() < SOON, "{received:?}");
        }
    }
}

/// It has locked the only row of `history`, and its server hears nothing more of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_vanishes_while_it_enters_keeps_none_from_it_for_long() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let proxy = Proxy::to(SocketAddr::from((Ipv4Addr::LOCALHOST, place.port())));
        let proxy = proxy.await.unwrap();
        let inbox = inbox_at(&place.address_by(proxy.port()), SOON).await;
        let mut source = inbox.source_with(SourceSettings::new());
        leave_history(&place).await;
        let row = "begin; update keylane_history set one = one";
        let lock = Lock::by(&place, row.to_owned()).await;
        let enters = tokio::spawn(async move { source.open().await });
        // It is in its transaction, and waits for the row.
        sleep(Duration::from_secs(1)).await;
        proxy.cut();
        lock.end().await;
        // It has the row, and is idle.
        sleep(Duration::from_secs(1)).await;
        assert!(!is_entered(&place).await, "{kind:?}");
        let other = timeout(SOON, inbox_at(&place.address, SOON)).await;
        other.expect("its transaction has ended");
        assert!(is_entered(&place).await);
        enters.abort();
    }
}
