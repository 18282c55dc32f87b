//! Accepting at the same time, and in transactions of the user's.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keylane::source::{Deliveries, Outcome, Settlement, Source};
use keylane_inbox::{Accepted, InboxStore, NewMessage};
use keylane_sql::{SourceSettings, SqlInbox, sqlx};
use sqlx::{Connection, MySqlConnection, PgConnection};
use tokio::time::Instant;

use crate::support::{Kind, Place};

macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(crate::support::Kind::Postgres).await;
            })*
        }

        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(crate::support::Kind::MariaDb).await;
            })*
        }
    };
}

on_both![
    the_same_ids_are_stored_once,
    what_is_not_committed_was_never_there,
    several_calls_of_one_transaction,
    an_open_transaction_delays_no_consumer,
];

/// As a process of its own has it.
async fn process(place: &Place) -> SqlInbox {
    let place = Place::at(place.kind, place.address.clone()).await;
    place.inbox().await
}

/// A transaction of the user's, of the level that its database begins with.
enum Transaction {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Transaction {
    async fn begin(place: &Place) -> Self {
        let mut begun = match place.kind {
            Kind::Postgres => Self::Postgres(PgConnection::connect(&place.address).await.unwrap()),
            Kind::MariaDb => Self::MySql(MySqlConnection::connect(&place.address).await.unwrap()),
        };
        begun.execute("start transaction").await;
        // A snapshot, if it has one.
        begun.execute("select count(*) from keylane_messages").await;
        begun
    }

    async fn execute(&mut self, text: &'static str) {
        match self {
            Self::Postgres(connection) => {
                sqlx::raw_sql(text).execute(connection).await.unwrap();
            }
            Self::MySql(connection) => {
                sqlx::raw_sql(text).execute(connection).await.unwrap();
            }
        }
    }

    async fn accept(&mut self, inbox: &SqlInbox, messages: Vec<NewMessage>) -> Vec<Accepted> {
        match self {
            Self::Postgres(connection) => inbox.accept_in(connection, messages).await.unwrap(),
            Self::MySql(connection) => inbox.accept_in(connection, messages).await.unwrap(),
        }
    }
}

async fn waiting(inbox: &SqlInbox) -> usize {
    let waiting = inbox.scan(0, usize::MAX, usize::MAX).await.unwrap();
    waiting.len()
}

async fn the_same_ids_are_stored_once(kind: Kind) {
    let place = Place::new(kind).await;
    let inboxes = [process(&place).await, process(&place).await];
    let mut tasks = Vec::new();
    for task in 0..8 {
        let inbox = inboxes[task % 2].clone();
        tasks.push(tokio::spawn(async move {
            let mut accepted = Vec::new();
            for n in 0..30_usize {
                let message =
                    |n: usize| NewMessage::new(format!("key {}", n % 3), "").id(format!("id {n}"));
                // Each in another order.
                let mut messages = Vec::from_iter((n..n + 5).map(message));
                messages.rotate_left(task % 5);
                let answers = inbox.accept(messages.clone()).await.unwrap();
                accepted.extend(messages.into_iter().map(|m| m.id.unwrap()).zip(answers));
            }
            accepted
        }));
    }
    let mut by_id = std::collections::HashMap::new();
    let mut stored = 0;
    for task in join_all(tasks).await {
        for (id, accepted) in task.unwrap() {
            let sequence = *by_id.entry(id).or_insert(accepted.sequence());
            assert_eq!(accepted.sequence(), sequence);
            stored += usize::from(!accepted.is_duplicate());
        }
    }
    assert_eq!(
        (by_id.len(), stored, waiting(&inboxes[0]).await),
        (34, 34, 34)
    );
}

async fn what_is_not_committed_was_never_there(kind: Kind) {
    let place = Place::new(kind).await;
    let inbox = place.inbox().await;
    for end in ["rollback", "commit"] {
        let message = move || vec![NewMessage::new("a", end).id(end).version(end.len() as u64)];
        let before = waiting(&inbox).await;
        let mut transaction = Transaction::begin(&place).await;
        let accepted = transaction.accept(&inbox, message()).await;
        assert!(!accepted[0].is_duplicate());
        let again = transaction.accept(&inbox, message()).await;
        assert_eq!(again, [Accepted::Duplicate(accepted[0].sequence())]);
        assert_eq!(waiting(&inbox).await, before);
        // Another process waits for the end, and knows then.
        let other = process(&place).await;
        let other = tokio::spawn(async move { other.accept(message()).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!other.is_finished());
        transaction.execute(end).await;
        let other = other.await.unwrap();
        match end {
            "commit" => assert_eq!(other, again),
            _ => assert!(!other[0].is_duplicate()),
        }
        assert_eq!(waiting(&inbox).await, before + 1);
    }
}

async fn several_calls_of_one_transaction(kind: Kind) {
    let place = Place::new(kind).await;
    let inbox = place.inbox().await;
    let mut transaction = Transaction::begin(&place).await;
    for n in 0..3 {
        let message = |key: &str| NewMessage::new(key.to_owned(), n.to_string());
        let messages = vec![message("a"), message("b"), message("a")];
        transaction.accept(&inbox, messages).await;
    }
    transaction.execute("commit").await;
    let mut source = inbox.source_with(SourceSettings::new());
    source.open().await.unwrap();
    let handed = receive(&mut source, 9).await;
    let of_a = handed
        .iter()
        .filter(|(key, _)| key == "a")
        .map(|handed| &handed.1[..]);
    assert_eq!(Vec::from_iter(of_a), ["0", "0", "1", "1", "2", "2"]);
    source.close().await.unwrap();
}

/// Receives and settles so many. Returns keys and payloads.
async fn receive(source: &mut keylane_sql::SqlSource, count: usize) -> Vec<(String, String)> {
    let until = Instant::now() + Duration::from_secs(120);
    let mut handed = Vec::new();
    while handed.len() < count {
        assert!(Instant::now() < until, "{} of {count}", handed.len());
        let mut into = Deliveries::new(100, Instant::now() + Duration::from_millis(500));
        source.receive(&mut into).await.unwrap();
        let mut done = Vec::new();
        for delivery in into.take() {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let key = delivery.message.key.as_deref().unwrap_or_default();
            handed.push((text(key), text(&delivery.message.payload)));
            done.push(Settlement::new(delivery.position, Outcome::Done));
        }
        source.settle(&done).await.unwrap();
    }
    handed
}

/// Of a key that another transaction accepts messages of, what is committed is handed over, settled
/// and removed before that transaction ends.
async fn an_open_transaction_delays_no_consumer(kind: Kind) {
    let place = Place::new(kind).await;
    let inbox = Arc::new(place.inbox().await);
    let message = |n: usize| NewMessage::new("a", n.to_string()).id(format!("id {n}"));
    inbox.accept((0..3).map(message).collect()).await.unwrap();
    let mut transaction = Transaction::begin(&place).await;
    transaction
        .accept(
            &inbox,
            vec![message(2), message(3), NewMessage::new("b", "")],
        )
        .await;
    let poll = Duration::from_millis(50);
    let mut source = inbox.source_with(SourceSettings::new().poll(poll));
    source.open().await.unwrap();
    let began = Instant::now();
    assert_eq!(receive(&mut source, 3).await.len(), 3);
    while waiting(&inbox).await > 0 {
        let took = began.elapsed();
        assert!(took < Duration::from_secs(60), "{took:?}");
        let mut into = Deliveries::new(100, Instant::now() + poll);
        source.receive(&mut into).await.unwrap();
    }
    transaction.execute("commit").await;
    assert_eq!(receive(&mut source, 2).await.len(), 2);
    source.close().await.unwrap();
}
