//! Databases that go on from an older state: a standby that was behind, a backup, a copy without its
//! sequences. What is lost is lost; what is accepted afterwards is handled, once and in its order.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use keylane::source::{Deliveries, Delivery, Outcome, RawMessage, Received, Settlement, Source};
use keylane_sql::error::CommitError;
use keylane_sql::{Claim, Committed, SourceSettings, SqlPosition, SqlSource};
use testkit_servers::proxy::Proxy;
use tokio::time::{Instant, sleep};

use crate::rig::{Log, Own, TTL, What, Work, Worker, message, until};
use crate::support::pair::Pair;
use crate::support::{Kind, Place};

/// Messages that are lost with the lag, and as many that are accepted after it.
const MESSAGES: u64 = 100;
const KEYS: u64 = 10;

/// The first ones, by which each key is claimed.
const FIRST: u64 = 10_000;

const LIMIT: Duration = Duration::from_secs(180);

/// The primary dies, and the standby has its place.
async fn fail_over(pair: &Pair, proxy: &Proxy) {
    pair.kill_primary().await;
    pair.promote().await;
    let (_, port) = pair.ports();
    proxy.point_to(local(port));
    proxy.reset();
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A pair, a proxy that leads to the primary, and the tables by the proxy.
async fn pair(kind: Kind) -> (Pair, Proxy, Place) {
    let pair = Pair::start(kind).await;
    let (port, _) = pair.ports();
    let proxy = Proxy::to(local(port)).await.unwrap();
    let direct = Place::at(kind, pair.create_database().await).await;
    let direct = direct.migrated().await;
    let place = Place::at(kind, direct.address_by(proxy.port())).await;
    (pair, proxy, place)
}

/// Repeats a call until a server answers it.
async fn accept(inbox: &keylane_inbox::Inbox, key: u64, id: u64) {
    let began = Instant::now();
    while let Err(error) = inbox.accept_message(message(key, id)).await {
        assert!(began.elapsed() < LIMIT, "{error}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Of each key, the messages from `first` to before `end` that were handled, in their order. A message is
/// handled again only after its claims have been lost: that is not counted.
fn handled(log: &Log, first: u64, end: u64) -> BTreeMap<u64, Vec<u64>> {
    let mut handled = BTreeMap::<u64, Vec<u64>>::new();
    // When each message was handled last, in losses.
    let mut handled_at = BTreeMap::<u64, usize>::new();
    let mut losses = 0;
    for entry in log.entries() {
        match entry.what {
            What::Lost => losses += 1,
            What::End(true) if (first..end).contains(&entry.id) => {
                let before = handled_at.insert(entry.id, losses);
                if before.is_none_or(|before| before == losses) {
                    handled.entry(entry.key).or_default().push(entry.id);
                }
            }
            _ => {}
        }
    }
    handled
}

fn in_order(first: u64, last: u64) -> BTreeMap<u64, Vec<u64>> {
    let mut ids = BTreeMap::<u64, Vec<u64>>::new();
    for id in first..=last {
        ids.entry(id % KEYS).or_default().push(id);
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_promoted_postgres_accepts_is_handled() {
    promoted(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_promoted_mariadb_accepts_is_handled() {
    promoted(Kind::MariaDb).await;
}

/// The messages of the lag are in hand when the primary dies, and end when the promoted standby has given
/// their sequences to others.
async fn promoted(kind: Kind) {
    let (pair, proxy, place) = pair(kind).await;
    let log = Log::default();
    let mut work = Work::new();
    work.source = work.source.lease(TTL * 2).poll(Duration::from_millis(50));
    work.takes = |id| match id {
        1..=MESSAGES => Duration::from_secs(1),
        FIRST.. => Duration::from_secs(2),
        _ => Duration::ZERO,
    };
    let worker = Worker::start(&place.address, 0, &log, work).await;
    let inbox = place.inbox().await.inbox();
    // The claims of all keys are known to both servers.
    for key in 0..KEYS {
        accept(&inbox, key, FIRST + key).await;
    }
    let claimed = "select count(*) from keylane_lanes where worker > 0";
    while place.number(claimed).await < KEYS as i64 {
        sleep(Duration::from_millis(20)).await;
    }
    pair.until_same(&place.address, claimed).await;
    if kind == Kind::Postgres {
        // A standby can be looked at, as long as it only follows.
        let (_, port) = pair.ports();
        let standby = Place::at(kind, place.address_by(port)).await;
        standby.inbox().await.inbox().stats().await.unwrap();
    }
    pair.fall_behind().await;
    for id in 1..=MESSAGES {
        accept(&inbox, id % KEYS, id).await;
    }
    // All of the first ones have ended, and the others are in hand.
    until(LIMIT, || log.succeeded() >= KEYS as usize).await;
    fail_over(&pair, &proxy).await;
    for id in MESSAGES + 1..=2 * MESSAGES {
        accept(&inbox, id % KEYS, id).await;
    }
    let expected = in_order(MESSAGES + 1, 2 * MESSAGES);
    let later = || handled(&log, MESSAGES + 1, FIRST);
    let began = Instant::now();
    while later().values().map(Vec::len).sum::<usize>() < MESSAGES as usize
        && began.elapsed() < LIMIT
    {
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(later(), expected);
    place.is_empty_within(LIMIT).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_postgres_that_is_brought_back_goes_on() {
    restored(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_mariadb_that_is_brought_back_goes_on() {
    restored(Kind::MariaDb).await;
}

/// A dump is read in again under a worker, by the databases' own programs. The messages that were accepted
/// since are in hand, and end when others have their sequences.
async fn restored(kind: Kind) {
    let server = Own::start(kind).await;
    let place = server.place().await.migrated().await;
    let log = Log::default();
    let mut work = Work::new();
    work.source = work.source.poll(Duration::from_millis(50));
    work.takes = |id| match id {
        1..=MESSAGES => Duration::from_secs(1),
        _ => Duration::ZERO,
    };
    let worker = Worker::start(&place.address, 0, &log, work).await;
    let inbox = place.inbox().await.inbox();
    for key in 0..KEYS {
        accept(&inbox, key, FIRST + key).await;
    }
    place.is_empty_within(LIMIT).await;
    let backup = server.dump(&place).await;
    for id in 1..=MESSAGES {
        accept(&inbox, id % KEYS, id).await;
    }
    until(LIMIT, || {
        let entries = log.entries();
        let started = entries
            .iter()
            .filter(|one| one.what == What::Start && one.id < FIRST);
        started.count() >= KEYS as usize
    })
    .await;
    server.bring_back(&place, &backup).await;
    for id in MESSAGES + 1..=2 * MESSAGES {
        accept(&inbox, id % KEYS, id).await;
    }
    let later = || handled(&log, MESSAGES + 1, FIRST);
    let count = || later().values().map(Vec::len).sum::<usize>();
    let began = Instant::now();
    while count() < MESSAGES as usize && began.elapsed() < LIMIT {
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(later(), in_order(MESSAGES + 1, 2 * MESSAGES));
    place.is_empty_within(LIMIT).await;
    worker.stop().await;
}

fn long() -> SourceSettings {
    SourceSettings::new()
        .lease(Duration::from_secs(60))
        .poll(Duration::from_millis(20))
}

type Handed = Delivery<RawMessage, SqlPosition>;

/// Receives until there are so many; `None`: the claims have ended.
async fn receive(source: &mut SqlSource, count: usize) -> Option<Vec<Handed>> {
    let mut handed = Vec::new();
    let began = Instant::now();
    while handed.len() < count {
        assert!(began.elapsed() < LIMIT, "{} of {count}", handed.len());
        let mut into = Deliveries::new(1_000, Instant::now() + Duration::from_millis(500));
        match source.receive(&mut into).await {
            Ok(Received::Lost(_)) => return None,
            Ok(_) => handed.extend(into.take()),
            Err(_) => source.open().await.unwrap(),
        }
    }
    Some(handed)
}

async fn lost(source: &mut SqlSource) {
    assert!(receive(source, usize::MAX).await.is_none());
}

fn id_of(handed: &Handed) -> u64 {
    u64::from_be_bytes(handed.message.payload[..8].try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_message_commits_for_no_new_one_in_postgres() {
    commits_nothing(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_message_commits_for_no_new_one_in_mariadb() {
    commits_nothing(Kind::MariaDb).await;
}

/// A handler has a message of the lag; its number, its key, its claim and the token of that are another
/// message's on the promoted standby.
async fn commits_nothing(kind: Kind) {
    let (pair, proxy, place) = pair(kind).await;
    let store = place.inbox().await;
    let inbox = store.inbox();
    let mut source = store.source_with(long());
    source.open().await.unwrap();
    // PostgreSQL logs 32 numbers ahead: those after them come again.
    for id in 1..=40 {
        accept(&inbox, 1, id).await;
    }
    let common = receive(&mut source, 40).await.unwrap();
    let mut done: Vec<_> = (common.into_iter())
        .map(|handed| Settlement::new(handed.position, Outcome::Done))
        .collect();
    let last = done.pop().unwrap();
    source.settle(&done).await.unwrap();
    while place.number("select count(*) from keylane_messages").await > 1 {
        let mut into = Deliveries::new(10, Instant::now() + Duration::from_millis(20));
        source.receive(&mut into).await.unwrap();
    }
    pair.until_same(&place.address, "select count(*) from keylane_messages")
        .await;
    pair.fall_behind().await;
    for id in 101..=200 {
        accept(&inbox, 1, id).await;
    }
    // Its claim goes on, and the standby knows it.
    source.settle(&[last]).await.unwrap();
    let old = receive(&mut source, 100).await.unwrap();
    fail_over(&pair, &proxy).await;
    for id in 201..=300 {
        accept(&inbox, 1, id).await;
    }
    for old in &old {
        let claim = Claim::of(&old.message).unwrap();
        let mut transaction = loop {
            match store.begin(claim).await {
                Ok(transaction) => break transaction,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        };
        match kind {
            Kind::Postgres => drop(transaction.postgres()),
            Kind::MariaDb => drop(transaction.mysql()),
        }
        let committed: Result<Committed, _> = transaction.commit().await;
        assert!(matches!(committed, Err(CommitError::Lost)), "{committed:?}");
    }
    assert_eq!(
        place.number("select count(*) from keylane_messages").await,
        101
    );
    // They settle as done all the same, and remove nothing.
    let done: Vec<_> = (old.into_iter())
        .map(|handed| Settlement::new(handed.position, Outcome::Done))
        .collect();
    source.settle(&done).await.unwrap();
    lost(&mut source).await;
    let count = "select count(*) from keylane_messages";
    assert_eq!(place.number(count).await, 101);
    // The claims of before end.
    place
        .execute("update keylane_workers set runs_out = '2001-01-01'")
        .await;
    // As those of a dead worker do: its messages are handed over one by one.
    let mut new = Vec::new();
    while new.len() < 101 {
        for handed in receive(&mut source, 1).await.unwrap() {
            new.push(id_of(&handed));
            let done = Settlement::new(handed.position, Outcome::Done);
            source.settle(&[done]).await.unwrap();
        }
    }
    assert_eq!(new, Vec::from_iter(std::iter::once(40).chain(201..=300)));
    source.close().await.unwrap();
    assert_eq!(place.number(count).await, 0);
}

/// Rows that were copied into another database without its sequences, as a logical replica has them,
/// and in which a key has no lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_without_its_sequences_goes_on_in_order() {
    let place = Place::new(Kind::Postgres).await;
    let inbox = place.inbox().await.inbox();
    for id in 1..=60 {
        accept(&inbox, id % KEYS, id).await;
    }
    place
        .execute(
            "update keylane_history set id = 'another/00000001';
             alter sequence keylane_sequence restart;
             alter sequence keylane_tokens restart;
             delete from keylane_lanes where lane in (select lane from keylane_keys limit 3);
             delete from keylane_keys where lane in (
                select lane from keylane_keys keys where not exists (
                    select from keylane_lanes lanes where lanes.lane = keys.lane
                ) limit 2
             )",
        )
        .await;
    goes_on(&place, 60).await;
}

/// The same in MariaDB, which draws above what is there by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_in_which_lanes_are_missing_goes_on_in_mariadb() {
    let place = Place::new(Kind::MariaDb).await;
    let inbox = place.inbox().await.inbox();
    for id in 1..=60 {
        accept(&inbox, id % KEYS, id).await;
    }
    place
        .execute(
            "update keylane_history set id = 'another';
             update keylane_counters set value = 0;
             delete from keylane_lanes limit 3;
             delete `keys` from keylane_keys `keys` left join keylane_lanes lanes
                on lanes.lane = `keys`.lane
             where lanes.lane is null and ascii(`keys`.lane) % 2 = 0",
        )
        .await;
    goes_on(&place, 60).await;
}

async fn goes_on(place: &Place, before: u64) {
    let store = place.inbox().await;
    let inbox = store.inbox();
    for id in before + 1..=2 * before {
        // At once: a number that is there already would be drawn anew until one is free.
        inbox.accept_message(message(id % KEYS, id)).await.unwrap();
    }
    let log = Log::default();
    let worker = Worker::start(&place.address, 0, &log, Work::new()).await;
    until(LIMIT, || log.succeeded() >= 2 * before as usize).await;
    assert_eq!(handled(&log, 1, FIRST), in_order(1, 2 * before));
    place.is_empty_within(LIMIT).await;
    worker.stop().await;
}

/// It would compare no histories. What it accepts is as good as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_an_older_version_joins_no_more() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        let join = match kind {
            Kind::Postgres => {
                "insert into keylane_workers (name, runs_out)
                 values ('old', clock_timestamp()) returning id"
            }
            Kind::MariaDb => {
                "insert into keylane_workers (name, runs_out) values (x'6f6c64', utc_timestamp(6))"
            }
        };
        let refused = place.bytes(join).await.unwrap_err().to_string();
        assert!(refused.contains("version_too_old"), "{kind:?}: {refused}");
        let accept = match kind {
            Kind::Postgres => {
                "insert into keylane_messages (sequence, lane, key, payload)
                 select nextval('keylane_sequence'), 'l', 'k', 'p' from generate_series(1, 2)"
            }
            Kind::MariaDb => {
                "insert into keylane_messages (lane, `key`, payload, payload_bytes, accepted_at)
                 select 'l', 'k', 'p', 1, utc_timestamp(6) from seq_1_to_2"
            }
        };
        place.execute(accept).await;
        let nonces = "select count(distinct nonce) from keylane_messages where nonce > 0";
        assert_eq!(place.number(nonces).await, 2);
    }
}
