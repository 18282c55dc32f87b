//! A source that finds its claims changed leaves, and has its keys again at once.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use keylane::source::{Deliveries, Delivery, Outcome, RawMessage, Received, Settlement, Source};
use keylane_sql::{SourceSettings, SqlPosition, SqlSource};
use testkit_servers::proxy::{Direction, Proxy};
use tokio::time::{Instant, timeout};

use crate::rig::message;
use crate::support::{Kind, Place};

/// How long its claims would go on if it did not leave.
const TTL: Duration = Duration::from_secs(120);

/// How long it may take to have them again.
const SOON: Duration = Duration::from_secs(30);

/// How long a `receive` waits.
const RECEIVES: Duration = Duration::from_secs(1);

const KEYS: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_has_the_keys_of_a_source_whose_claims_were_changed() {
    changed(Kind::Postgres, RECEIVES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_has_the_keys_of_a_source_whose_claims_were_changed() {
    changed(Kind::MariaDb, RECEIVES).await;
}

/// A dispatcher drops `receive` often while an attempt of before cannot be dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_whose_receive_is_dropped_leaves_and_joins_all_the_same() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        changed(kind, Duration::from_millis(10)).await;
    }
}

/// One of its claims is under another number when it says that a message is done. A `receive` is dropped
/// after so long, and each answer takes longer than that if it is short.
async fn changed(kind: Kind, receives: Duration) {
    let place = Place::new(kind).await;
    let proxy = Proxy::to(SocketAddr::from((Ipv4Addr::LOCALHOST, place.port())));
    let proxy = proxy.await.unwrap();
    let by_proxy = Place::at(kind, place.address_by(proxy.port())).await;
    let inbox = by_proxy.inbox().await;
    let messages = (1..=KEYS).map(|key| message(key, key));
    inbox.inbox().accept_many(messages).await.unwrap();
    let mut source = inbox.source_with(SourceSettings::new().lease(TTL));
    source.open().await.unwrap();
    let held = handed_over(&mut source, receives).await;
    let first = held.iter().min_by_key(|one| one.position.sequence).unwrap();
    let sequence = first.position.sequence;
    let change = format!(
        "update keylane_lanes set token = token + 1000000 where lane =
            (select lane from keylane_messages where sequence = {sequence})"
    );
    place.execute(change).await;
    if receives < RECEIVES {
        proxy.delay(Direction::ToClient, 2 * receives);
    }
    let done = Settlement::new(first.position.clone(), Outcome::Done);
    source.settle(&[done]).await.unwrap();
    let lost = timeout(SOON, async {
        while !matches!(receive(&mut source, receives).await.0, Received::Lost(_)) {}
    });
    lost.await.expect("it finds that its claims were changed");
    // What was said under a claim that is not ours any more did nothing.
    let again = timeout(SOON, handed_over(&mut source, receives)).await;
    let again = again.expect("no claim of it goes on");
    assert_eq!(sequences(&again), sequences(&held));
    let workers = "select count(*) from keylane_workers";
    assert_eq!(place.number(workers).await, 1, "the old one has left");
    let crashes = "select cast(sum(crashes) as signed) from keylane_lanes";
    let crashes = match kind {
        Kind::Postgres => crashes.replace("signed", "bigint"),
        Kind::MariaDb => crashes.to_owned(),
    };
    assert_eq!(place.number(&crashes).await, 0, "it has not died");
    source.close().await.unwrap();
}

/// All messages, once each.
async fn handed_over(
    source: &mut SqlSource,
    receives: Duration,
) -> Vec<Delivery<RawMessage, SqlPosition>> {
    let mut held = Vec::new();
    while held.len() < KEYS as usize {
        held.extend(receive(source, receives).await.1);
    }
    held
}

async fn receive(
    source: &mut SqlSource,
    receives: Duration,
) -> (
    Received<SqlPosition>,
    Vec<Delivery<RawMessage, SqlPosition>>,
) {
    let mut into = Deliveries::new(KEYS as usize, Instant::now() + RECEIVES);
    let received = match timeout(receives, source.receive(&mut into)).await {
        Ok(received) => received.unwrap(),
        Err(_) => Received::Idle,
    };
    (received, into.take())
}

fn sequences(held: &[Delivery<RawMessage, SqlPosition>]) -> BTreeSet<u64> {
    held.iter().map(|one| one.position.sequence).collect()
}
