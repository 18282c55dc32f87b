//! Workers whose network fails: everything is handled once it is well again.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use keylane_inbox::error::AcceptError;
use keylane_sql::{Database, Settings, SqlInbox, Tables, sqlx};
use sqlx::{Connection, PgConnection};
use testkit_servers::proxy::{Direction, Proxy};
use tokio::time::{sleep, timeout};

use crate::rig::{Committed, Log, Story, TTL, What, Work, Worker, message, until};
use crate::support::{Kind, Place};

/// How long it may take to handle everything after the network is well again.
const HEALED: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug)]
enum Fault {
    CutBothWays,
    CutToServer,
    CutToClient,
    Reset,
    Refuse,
    Slow,
}

pub(crate) async fn by_proxy(place: &Place) -> (Proxy, String) {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, place.port()));
    let proxy = Proxy::to(server).await.unwrap();
    let address = place.address_by(proxy.port());
    (proxy, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_recovers_from_cuts() {
    let faults = [Fault::CutBothWays, Fault::CutToServer, Fault::CutToClient];
    recovers(Kind::Postgres, &faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_recovers_from_resets_and_slowness() {
    recovers(Kind::Postgres, &[Fault::Reset, Fault::Refuse, Fault::Slow]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_recovers_from_cuts() {
    let faults = [Fault::CutBothWays, Fault::CutToServer, Fault::CutToClient];
    recovers(Kind::MariaDb, &faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_recovers_from_resets_and_slowness() {
    recovers(Kind::MariaDb, &[Fault::Reset, Fault::Refuse, Fault::Slow]).await;
}

/// All at the same time, each with a database of its own.
async fn recovers(kind: Kind, faults: &[Fault]) {
    let tests = Vec::from_iter(
        faults
            .iter()
            .map(|fault| tokio::spawn(recover(kind, *fault))),
    );
    for test in tests {
        test.await.unwrap();
    }
}

/// Two workers, one of which has a network that fails for longer than claims last.
async fn recover(kind: Kind, fault: Fault) {
    const KEYS: u64 = 20;
    const MESSAGES: u64 = 400;
    let place = Arc::new(Place::new(kind).await);
    let (proxy, address) = by_proxy(&place).await;
    let log = Log::default();
    let mut work = Work::new();
    // A call that is lost is given up before the claims end, or long after.
    work.settings = Settings::new().call_limit(Duration::from_secs(8));
    work.source = work.source.keys(KEYS as usize / 2);
    work.takes = |_| Duration::from_millis(5);
    let here = Worker::start(&address, 0, &log, work.clone()).await;
    let there = Worker::start(&place.address, 1, &log, work).await;
    let accepts = tokio::spawn({
        let (place, log) = (Arc::clone(&place), log.clone());
        async move {
            let inbox = place.inbox().await.inbox();
            let mut committed = std::collections::BTreeMap::new();
            for id in 1..=MESSAGES {
                let asked = log.position();
                let key = id % KEYS;
                let accepted = inbox.accept_message(message(key, id)).await.unwrap();
                let one = Committed {
                    key,
                    sequence: accepted.sequence(),
                    asked,
                    answered: log.position(),
                };
                committed.insert(id, one);
                sleep(Duration::from_millis(15)).await;
            }
            committed
        }
    });
    sleep(Duration::from_millis(500)).await;
    match fault {
        Fault::CutBothWays => proxy.cut(),
        Fault::CutToServer => proxy.cut_to_server(),
        Fault::CutToClient => proxy.cut_to_client(),
        Fault::Reset => {
            for _ in 0..50 {
                proxy.reset();
                sleep(Duration::from_millis(90)).await;
            }
        }
        Fault::Refuse => {
            proxy.refuse(true);
            proxy.reset();
        }
        Fault::Slow => {
            for direction in [Direction::ToServer, Direction::ToClient] {
                proxy.delay(direction, Duration::from_millis(200));
                proxy.throttle(direction, NonZeroU64::new(50_000));
            }
        }
    }
    sleep(TTL + Duration::from_millis(1_500)).await;
    proxy.heal();
    proxy.refuse(false);
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.delay(direction, Duration::ZERO);
        proxy.throttle(direction, None);
    }
    let committed = accepts.await.unwrap();
    let healed = timeout(HEALED, async {
        while log.handled().len() < MESSAGES as usize {
            sleep(Duration::from_millis(20)).await;
        }
    });
    let healed = healed.await;
    let story = Story {
        entries: log.entries(),
        committed,
        ..Story::default()
    };
    let verdict = story.judge();
    println!("{kind:?}, {fault:?}: {verdict}");
    assert!(
        healed.is_ok() && verdict.is_good(),
        "{fault:?}: {verdict:#?}"
    );
    place.is_empty_within(HEALED).await;
    there.stop().await;
    here.stop().await;
    place.no_open_transactions().await;
}

/// A worker that is cut off starts nothing any more when another one may have its keys, whatever it
/// waits for, and what it does ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_cut_off_stops_in_time() {
    stops_in_time(Kind::Postgres).await;
}

async fn stops_in_time(kind: Kind) {
    const MESSAGES: u64 = 400;
    let place = Place::new(kind).await;
    let (proxy, address) = by_proxy(&place).await;
    let log = Log::default();
    let inbox = place.inbox().await.inbox();
    // Those of the other key go on to end when the worker is cut off.
    let key = |id| if id <= MESSAGES / 2 { 1 } else { 2 };
    let accepted = inbox.accept_many((1..=MESSAGES).map(|id| message(key(id), id)));
    let accepted = accepted.await.unwrap();
    let committed = (1..=MESSAGES).zip(&accepted).map(|(id, accepted)| {
        let committed = Committed {
            key: key(id),
            sequence: accepted.sequence(),
            asked: 0,
            answered: 0,
        };
        (id, committed)
    });
    // All of them are handed over at once, and a call may take longer than the claims last.
    let mut work = Work::new();
    work.settings = Settings::new().call_limit(TTL * 4);
    work.takes = |_| Duration::from_millis(50);
    let mut busy = work.clone();
    busy.takes = |id| Duration::from_millis(if id == 20 { 600_000 } else { 50 });
    let here = Worker::start(&address, 0, &log, busy).await;
    until(HEALED, || log.handled().contains(&19)).await;
    let there = Worker::start(&place.address, 1, &log, work).await;
    proxy.cut();
    until(HEALED, || log.handled().len() == MESSAGES as usize).await;
    proxy.heal();
    let story = Story {
        entries: log.entries(),
        committed: committed.collect(),
        ..Story::default()
    };
    let verdict = story.judge();
    println!("{kind:?}: {verdict}");
    assert!(verdict.is_good(), "{verdict:#?}");
    there.stop().await;
    here.stop().await;
}

/// A done-mark that comes after another worker has the key removes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_done_mark_removes_nothing() {
    late_done_mark(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_done_mark_removes_nothing_in_mariadb() {
    late_done_mark(Kind::MariaDb).await;
}

async fn late_done_mark(kind: Kind) {
    let place = Place::new(kind).await;
    let (proxy, address) = by_proxy(&place).await;
    let log = Log::default();
    let mut work = Work::new();
    work.settings = Settings::new().call_limit(TTL * 10);
    work.takes = |_| Duration::from_secs(2);
    // It asks for nothing else meanwhile: there is one call at a time.
    work.source = work.source.poll(TTL * 20).lease(TTL * 2);
    let here = Worker::start(&address, 0, &log, work).await;
    let inbox = place.inbox().await.inbox();
    inbox.accept_message(message(1, 1)).await.unwrap();
    let starts_of = |worker: usize| {
        let entries = log.entries();
        let starts = entries
            .iter()
            .filter(|entry| entry.worker == worker && entry.what == What::Start);
        starts.count()
    };
    until(HEALED, || starts_of(0) == 1).await;
    // Its done-mark does not come to the server before the other one is in the middle of it.
    proxy.cut_to_server();
    let mut work = Work::new();
    work.takes = |_| TTL * 2;
    let there = Worker::start(&place.address, 1, &log, work).await;
    until(HEALED, || starts_of(1) == 1).await;
    assert_eq!(log.succeeded(), 1);
    proxy.heal();
    sleep(TTL / 3).await;
    let waiting = "select count(*) from keylane_messages";
    assert_eq!(place.number(waiting).await, 1);
    until(HEALED, || log.succeeded() == 2).await;
    place.is_empty_within(HEALED).await;
    here.stop().await;
    there.stop().await;
}

/// What a worker has asked before it lost its claims, and the server hears afterwards, leaves no key
/// with a worker that is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_claim_keeps_no_key() {
    late_claim(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_claim_keeps_no_key_in_mariadb() {
    late_claim(Kind::MariaDb).await;
}

async fn late_claim(kind: Kind) {
    let place = Place::new(kind).await;
    let (proxy, address) = by_proxy(&place).await;
    let log = Log::default();
    let here = Worker::start(&address, 0, &log, Work::new()).await;
    // The other one looks after the dead, and can have one key, which takes its time.
    let mut slow = Work::new();
    slow.source = slow.source.keys(1);
    slow.takes = |id| match id {
        1 => TTL * 3,
        _ => Duration::ZERO,
    };
    let inbox = place.inbox().await.inbox();
    proxy.cut_to_server();
    let there = Worker::start(&place.address, 1, &log, slow).await;
    inbox.accept_message(message(1, 1)).await.unwrap();
    until(HEALED, || log.position() > 2).await;
    // By now `here` has lost its claims.
    let alive = match kind {
        Kind::Postgres => "select count(*) from keylane_workers where runs_out > now()",
        Kind::MariaDb => "select count(*) from keylane_workers where runs_out > utc_timestamp(6)",
    };
    let until_gone = async {
        while place.number(alive).await > 1 {
            sleep(Duration::from_millis(50)).await;
        }
        sleep(Duration::from_secs(2)).await;
    };
    timeout(HEALED, until_gone).await.unwrap();
    let more = (2..=50).map(|id| message(id, id));
    inbox.accept_many(more).await.unwrap();
    proxy.heal();
    until(HEALED, || log.handled().len() == 50).await;
    place.is_empty_within(HEALED).await;
    here.stop().await;
    there.stop().await;
}

/// A claim that was given up, and is granted when its caller waits for it no more, keeps no key from
/// being handled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_given_up_keeps_no_key() {
    let place = Place::new(Kind::Postgres).await;
    let log = Log::default();
    let mut work = Work::new();
    work.settings = Settings::new().call_limit(Duration::from_millis(700));
    work.source = work.source.lease(Duration::from_secs(5));
    let worker = Worker::start(&place.address, 0, &log, work).await;
    // It has asked before, and the server knows what it asks.
    let inbox = place.inbox().await;
    let accepts = inbox.inbox();
    accepts.accept_message(message(0, 1)).await.unwrap();
    until(HEALED, || log.handled().len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    // Someone has the table for longer than a call may take, and then there are messages.
    let mut connection = PgConnection::connect(&place.address).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let messages = (2..=50).map(|id| message(id, id)).collect();
    inbox.accept_in(&mut *transaction, messages).await.unwrap();
    sqlx::query("lock table keylane_messages in access exclusive mode")
        .execute(&mut *transaction)
        .await
        .unwrap();
    sleep(Duration::from_secs(3)).await;
    transaction.commit().await.unwrap();
    until(HEALED, || log.handled().len() == 50).await;
    place.is_empty_within(HEALED).await;
    worker.stop().await;
}

/// An accept whose answer is lost says so, and is stored once however often it is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accept_that_is_cut_off_may_be_stored() {
    cut_accept(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accept_that_is_cut_off_may_be_stored_in_mariadb() {
    cut_accept(Kind::MariaDb).await;
}

async fn cut_accept(kind: Kind) {
    let place = Place::new(kind).await;
    let (proxy, address) = by_proxy(&place).await;
    let database = Database::connect(&address).await.unwrap();
    let settings = Settings::new().call_limit(Duration::from_secs(3));
    let inbox = SqlInbox::open(&database, &Tables::new(), settings).await;
    let inbox = inbox.unwrap().inbox();
    inbox.accept_message(message(1, 1)).await.unwrap();
    // Its connection is reset after so many bytes: somewhere in the transaction, or behind its end.
    let (mut refused, mut was_stored) = (0, 0);
    for (id, bytes) in (2..).zip((0..2_500).step_by(100)) {
        let direction = match id % 2 {
            0 => Direction::ToClient,
            _ => Direction::ToServer,
        };
        proxy.reset_after(direction, bytes);
        match inbox.accept_message(message(1, id)).await {
            Ok(accepted) => assert!(!accepted.is_duplicate()),
            Err(AcceptError::Store(error, _)) => {
                refused += 1;
                assert!(error.may_be_stored(), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
        proxy.reset_after(Direction::ToClient, u64::MAX);
        proxy.reset_after(Direction::ToServer, u64::MAX);
        let again = async {
            loop {
                if let Ok(accepted) = inbox.accept_message(message(1, id)).await {
                    return accepted;
                }
            }
        };
        let again = timeout(HEALED, again).await.unwrap();
        was_stored += usize::from(again.is_duplicate());
        let count = "select count(*) from keylane_messages";
        assert_eq!(place.number(count).await, id as i64);
    }
    // One that is cut off, with its answer on the way.
    proxy.cut_to_client();
    let cut = inbox.accept_message(message(1, 1_000)).await;
    let Err(AcceptError::Store(error, _)) = cut else {
        panic!("{cut:?}")
    };
    assert!(error.may_be_stored(), "{error}");
    proxy.heal();
    sleep(Duration::from_millis(100)).await;
    println!("{kind:?}: {refused} accepts were cut off, {was_stored} were known when repeated");
    assert!(refused > 0);
    place.no_open_transactions().await;
}
