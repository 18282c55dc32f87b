//! Messages that are accepted in a transaction of the user's, and handlers that finish in one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylane::consume::Intake;
use keylane::error::BoxError;
use keylane::source::{RawMessage, Source};
use keylane::{Builder, Dispatcher, OnExhausted, Retry};
use keylane_inbox::NewMessage;
use keylane_sql::error::CommitError;
use keylane_sql::{
    Claim, Committed, Database, Settings, SourceSettings, SqlInbox, SqlTransaction, Tables, sqlx,
};
use keylane_testkit::scenario::{boxed, until_async};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use tokio::time::sleep;

use crate::support::{Kind, Place};

const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

#[derive(Clone)]
struct Payment {
    claim: Claim,
    number: i64,
}

fn payment(raw: &RawMessage) -> Result<Payment, BoxError> {
    Ok(Payment {
        claim: Claim::of(raw).ok_or("it comes from an inbox in tables")?,
        number: std::str::from_utf8(&raw.payload)?.parse()?,
    })
}

/// The key of all payments that are made one after the other.
const ACCOUNT: i64 = 1;

/// Returns the builder of a dispatcher of payments with these keys.
fn in_order_of(
    key: fn(&Payment) -> i64,
) -> Builder<i64, Payment, BoxError, impl Fn(&Payment) -> Option<i64> + Send + Sync> {
    Dispatcher::builder(key)
}

fn source(inbox: &SqlInbox) -> impl Source<Message = Payment> + use<> {
    source_for(inbox, Duration::from_secs(2))
}

fn source_for(inbox: &SqlInbox, ttl: Duration) -> impl Source<Message = Payment> + use<> {
    let settings = SourceSettings::new()
        .lease(ttl)
        .poll(Duration::from_millis(100));
    inbox.source_with(settings).decode(payment)
}

/// A table for effects, and so many payments of one account.
async fn payments(kind: Kind, count: i64) -> (Place, SqlInbox) {
    let place = Place::new(kind).await;
    place
        .execute("create table effects (number bigint not null, attempt bigint not null)")
        .await;
    let inbox = place.inbox().await;
    let payments = (0..count).map(|number| NewMessage::new("account", number.to_string()));
    inbox.inbox().accept_many(payments).await.unwrap();
    (place, inbox)
}

async fn write(transaction: &mut SqlTransaction, kind: Kind, number: i64) -> Result<(), BoxError> {
    let insert = AssertSqlSafe(format!("insert into effects values ({number}, 1)"));
    match kind {
        Kind::Postgres => {
            sqlx::query(insert).execute(transaction.postgres()).await?;
        }
        Kind::MariaDb => {
            sqlx::query(insert).execute(transaction.mysql()).await?;
        }
    }
    Ok(())
}

async fn until_empty(inbox: &SqlInbox) {
    let inbox = inbox.inbox();
    until_async("nothing waits", async || {
        inbox.stats().await.unwrap().waiting == 0
    })
    .await;
}

async fn stop(intake: Intake) {
    let report = intake.stop().await;
    let settled = report.acked + report.dead_lettered + report.nacked + report.given_back;
    assert_eq!(report.received, settled, "{report}");
}

/// Handlers that fail, panic and are cut off after they have written: the effects that are left are
/// those of the attempts that have committed, and each message has one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_happens_once() {
    for kind in KINDS {
        let (place, inbox) = payments(kind, 60).await;
        let attempts = Arc::new(AtomicUsize::new(0));
        let handler = {
            let (inbox, attempts) = (inbox.clone(), Arc::clone(&attempts));
            move |payment: Payment| {
                let (inbox, attempts) = (inbox.clone(), Arc::clone(&attempts));
                async move {
                    let attempt = attempts.fetch_add(1, Ordering::Relaxed);
                    let mut transaction = inbox.begin(payment.claim).await?;
                    write(&mut transaction, kind, payment.number).await?;
                    match attempt % 5 {
                        1 => return Err("it fails after it has written".into()),
                        2 => panic!("after it has written"),
                        _ => {}
                    }
                    let _ = transaction.commit().await?;
                    if attempt % 5 == 3 {
                        return Err("the answer is lost".into());
                    }
                    Ok(())
                }
            }
        };
        let payments = in_order_of(|_| ACCOUNT)
            .retry(Retry::fixed(Duration::from_millis(5)).max_attempts(1_000))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(handler))
            .unwrap();
        let intake = payments.consume(source(&inbox)).unwrap();
        for _ in 0..5 {
            sleep(Duration::from_millis(100)).await;
            place.kill_connections().await;
        }
        until_empty(&inbox).await;
        stop(intake).await;
        assert!(attempts.load(Ordering::Relaxed) > 60, "some were repeated");
        let effects = place.number("select count(*) from effects").await;
        let distinct = place
            .number("select count(distinct number) from effects")
            .await;
        assert_eq!((effects, distinct), (60, 60), "{kind:?}");
        // A task of sqlx rolls back what was dropped.
        place.no_open_transactions().await;
    }
}

/// A claim that has ended commits nothing, whatever was written under it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_has_ended_commits_nothing() {
    for kind in KINDS {
        let (place, inbox) = payments(kind, 1).await;
        let mut here = source_for(&inbox, Duration::from_secs(6));
        let claim = first(&mut here).await;
        // Another worker takes over.
        let mut stale = inbox.begin(claim).await.unwrap();
        write(&mut stale, kind, 0).await.unwrap();
        drop(here);
        let there = place.inbox().await;
        // Its claims last, however slow this machine is.
        let mut other = source_for(&there, Duration::from_secs(60));
        let newer = first(&mut other).await;
        assert!(newer.token() > claim.token());
        let lost = stale.commit().await;
        assert!(matches!(lost, Err(CommitError::Lost)), "{kind:?}, {lost:?}");
        assert_eq!(place.number("select count(*) from effects").await, 0);

        let mut fresh = there.begin(newer).await.unwrap();
        write(&mut fresh, kind, 0).await.unwrap();
        assert_eq!(fresh.commit().await.unwrap(), Committed::Now);
        let mut again = there.begin(newer).await.unwrap();
        write(&mut again, kind, 0).await.unwrap();
        assert_eq!(again.commit().await.unwrap(), Committed::Earlier);
        assert_eq!(place.number("select count(*) from effects").await, 1);
        drop(there.begin(newer).await.unwrap());
        other.close().await.unwrap();
        place.no_open_transactions().await;
    }
}

/// The claim of the first message that the source hands over.
async fn first(source: &mut impl Source<Message = Payment>) -> Claim {
    source.open().await.unwrap();
    loop {
        let until = tokio::time::Instant::now() + Duration::from_secs(10);
        let mut into = keylane::source::Deliveries::new(10, until);
        source.receive(&mut into).await.unwrap();
        if let Some(delivery) = into.take().pop() {
            return delivery.message.claim;
        }
    }
}

/// What is accepted in a transaction comes with its commit, in its place, and not without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_commit_with_the_transaction_that_accepts_them() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        place.execute("create table sold (article bigint)").await;
        let inbox = place.inbox().await;
        let messages = |name: &str| {
            let message = |n: usize| NewMessage::new(format!("key {n}"), name.to_owned());
            (0..3).map(message).collect::<Vec<_>>()
        };
        let accept = async |name: &str, commits: bool| match kind {
            Kind::Postgres => {
                let mut connection = PgConnection::connect(&place.address).await.unwrap();
                let mut transaction = connection.begin().await.unwrap();
                let sold = sqlx::query("insert into sold values (1)");
                sold.execute(&mut *transaction).await.unwrap();
                let accepted = inbox.accept_in(&mut *transaction, messages(name)).await;
                assert_eq!(accepted.unwrap().len(), 3);
                match commits {
                    true => transaction.commit().await.unwrap(),
                    false => transaction.rollback().await.unwrap(),
                }
            }
            Kind::MariaDb => {
                let mut connection = MySqlConnection::connect(&place.address).await.unwrap();
                let mut transaction = connection.begin().await.unwrap();
                let sold = sqlx::query("insert into sold values (1)");
                sold.execute(&mut *transaction).await.unwrap();
                let accepted = inbox.accept_in(&mut *transaction, messages(name)).await;
                assert_eq!(accepted.unwrap().len(), 3);
                match commits {
                    true => transaction.commit().await.unwrap(),
                    false => transaction.rollback().await.unwrap(),
                }
            }
        };
        accept("first", true).await;
        accept("never", false).await;
        accept("second", true).await;
        let found = keylane_inbox::InboxStore::scan(&inbox, 0, 100, usize::MAX);
        let found = found.await.unwrap();
        let payloads: Vec<&[u8]> = found.iter().map(|message| &message.payload[..]).collect();
        let expected: [&[u8]; 6] = [
            b"first", b"first", b"first", b"second", b"second", b"second",
        ];
        assert_eq!(payloads, expected, "{kind:?}");
        assert_eq!(place.number("select count(*) from sold").await, 2);
    }
}

/// Connects a pool whose calls do not wait for long: also on a busy machine.
async fn connected<P>(connect: impl AsyncFn() -> Result<P, sqlx::Error>) -> P {
    for _ in 0..20 {
        match connect().await {
            Err(sqlx::Error::PoolTimedOut) => {}
            connected => return connected.unwrap(),
        }
    }
    panic!("the server gives no connections");
}

/// More handlers than connections: they wait for each other, and none fails for want of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_wait_for_connections() {
    for kind in KINDS {
        let (place, other) = payments(kind, 0).await;
        // The connections are there from the start: a busy server takes its time for a new one.
        let wait = Duration::from_secs(1);
        let database = match kind {
            Kind::Postgres => {
                let pool = PgPoolOptions::new()
                    .max_connections(7)
                    .min_connections(7)
                    .acquire_timeout(wait);
                Database::postgres(
                    connected(async || pool.clone().connect(&place.address).await).await,
                )
            }
            Kind::MariaDb => {
                let pool = MySqlPoolOptions::new()
                    .max_connections(7)
                    .min_connections(7)
                    .acquire_timeout(wait);
                Database::mysql(
                    connected(async || pool.clone().connect(&place.address).await).await,
                )
            }
        };
        let inbox = SqlInbox::open(&database, &Tables::new(), Settings::new()).await;
        let inbox = inbox.unwrap();
        let each = (0..8).map(|number| NewMessage::new(format!("{number}"), number.to_string()));
        other.inbox().accept_many(each).await.unwrap();
        let handler = {
            let inbox = inbox.clone();
            move |payment: Payment| {
                let inbox = inbox.clone();
                async move {
                    let mut transaction = inbox.begin(payment.claim).await?;
                    write(&mut transaction, kind, payment.number).await?;
                    // One that asks for a connection meanwhile does not get it in time.
                    sleep(2 * wait).await;
                    let _ = transaction.commit().await?;
                    Ok(())
                }
            }
        };
        let payments = in_order_of(|payment| payment.number)
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(handler))
            .unwrap();
        let intake = payments.consume(source(&inbox)).unwrap();
        // Not with the connections that the handlers have.
        until_empty(&other).await;
        stop(intake).await;
        let effects = place.number("select count(*) from effects").await;
        let letters = place.number("select count(*) from keylane_letters").await;
        assert_eq!((effects, letters), (8, 0), "{kind:?}");
    }
}

/// A handler that drops its transaction and returns `Ok`: what it has written is gone, and its message
/// is kept as a letter. With a rollback the message is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_not_done_by_a_transaction_that_was_dropped() {
    for kind in KINDS {
        let (place, inbox) = payments(kind, 4).await;
        let is_mended = Arc::new(AtomicUsize::new(0));
        let handler = {
            // The source is of another handle.
            let (inbox, is_mended) = (place.inbox().await, Arc::clone(&is_mended));
            move |payment: Payment| {
                let (inbox, is_mended) = (inbox.clone(), Arc::clone(&is_mended));
                async move {
                    // An attempt before that fails is no matter.
                    if payment.number == 3 && is_mended.fetch_add(1, Ordering::SeqCst) == 0 {
                        drop(inbox.begin(payment.claim).await?);
                        return Err("only this attempt".into());
                    }
                    if payment.number == 3 {
                        return Ok(());
                    }
                    let mut transaction = inbox.begin(payment.claim).await?;
                    write(&mut transaction, kind, payment.number).await?;
                    match payment.number {
                        1 if is_mended.load(Ordering::SeqCst) == 0 => drop(transaction),
                        2 => transaction.rollback().await?,
                        _ => drop(transaction.commit().await?),
                    }
                    Ok(())
                }
            }
        };
        let payments = in_order_of(|_| ACCOUNT)
            .retry(Retry::fixed(Duration::from_millis(5)).max_attempts(3))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(handler))
            .unwrap();
        let intake = payments.consume(source(&inbox)).unwrap();
        until_empty(&inbox).await;
        let kept = inbox.inbox().letters();
        let letters = kept.list(0, 10).await.unwrap();
        let [letter] = &letters[..] else {
            panic!("{letters:?}")
        };
        assert_eq!(letter.message.payload, "1");
        assert!(letter.error.contains("without a commit"), "{letter:?}");
        assert_eq!(place.number("select count(*) from effects").await, 1);
        let sequence = letter.message.sequence;
        assert_eq!(kept.redrive([sequence]).await.unwrap(), [sequence]);
        until_empty(&inbox).await;
        stop(intake).await;
        for number in [0, 1] {
            let effects = format!("select count(*) from effects where number = {number}");
            assert_eq!(place.number(&effects).await, 1);
        }
        assert_eq!(place.number("select count(*) from effects").await, 2);
        assert!(kept.list(0, 10).await.unwrap().is_empty());
    }
}

/// The letter of such a message cannot be kept for a while: the message waits for that, and does not run
/// again behind those after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_transaction_waits_for_its_letter() {
    let (place, _) = payments(Kind::Postgres, 3).await;
    let call = Duration::from_secs(3);
    let settings = Settings::new().call_limit(call);
    let inbox = SqlInbox::open(&place.database, &Tables::new(), settings)
        .await
        .unwrap();
    let mut other = PgConnection::connect(&place.address).await.unwrap();
    let lock = "begin; lock table keylane_letters in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    let starts = Arc::new(AtomicUsize::new(0));
    let handler = {
        // The source is of another handle.
        let (inbox, starts) = (place.inbox().await, Arc::clone(&starts));
        move |payment: Payment| {
            let (inbox, starts) = (inbox.clone(), Arc::clone(&starts));
            async move {
                starts.fetch_add(1, Ordering::SeqCst);
                let transaction = inbox.begin(payment.claim).await?;
                match payment.number {
                    0 => drop(transaction),
                    _ => drop(transaction.commit().await?),
                }
                Ok(())
            }
        }
    };
    let payments = in_order_of(|_| ACCOUNT)
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(handler))
        .unwrap();
    // Its claims last, however slow this machine is: then messages are handled once.
    let source = source_for(&inbox, Duration::from_secs(60));
    let intake = payments.consume(source).unwrap();
    // Some calls fail.
    sleep(call * 5 / 2).await;
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    until_empty(&place.inbox().await).await;
    stop(intake).await;
    assert_eq!(starts.load(Ordering::SeqCst), 3, "each once");
    let letters = inbox.inbox().letters().list(0, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].message.payload, "0");
}
