//! The inbox in a database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::NewMessage;
use keylane_otel::{Destination, Relation};
use keylane_sql::{Database, Settings, SqlInbox, Tables};
use keylane_testkit::scenario::until;
use testkit_servers::{MariaDb, Postgres};

use crate::support::{KEY, Spans, assert_kept, fails_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_its_letter_and_its_redrive_keep_the_context() {
    let server = Postgres::start().await.unwrap();
    keeps_the_context(server.create_database().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_mariadb_its_letter_and_its_redrive_keep_the_context() {
    let server = MariaDb::start().await.unwrap();
    keeps_the_context(server.create_database().await.unwrap()).await;
}

async fn keeps_the_context(url: String) {
    let spans = Spans::new();
    let database = Database::connect(&url).await.unwrap();
    let tables = Tables::new();
    database.migrate(&tables).await.unwrap();
    let inbox = SqlInbox::open(&database, &tables, Settings::new());
    let inbox = inbox.await.unwrap();

    let orders = Destination::keylane("orders")
        .relation(Relation::Parent)
        .tracer(spans.tracer());
    let is_well = Arc::new(AtomicBool::new(false));
    let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(orders.process(fails_until(&is_well)))
        .unwrap();
    let intake = dispatcher.consume(inbox.source()).unwrap();
    let rows = inbox.inbox().clone();
    let accept = |message| {
        let rows = rows.clone();
        async move { rows.accept_message(message).await.map(drop) }
    };
    let order = NewMessage::new(KEY, "250");
    orders.send(order, accept).await.unwrap();
    until(|| dispatcher.stats().dead_lettered == 1).await;
    is_well.store(true, Ordering::SeqCst);
    let letters = rows.letters();
    let letter = letters.list(0, 10).await.unwrap().remove(0);
    let back = letters.redrive([letter.message.sequence]).await.unwrap();
    assert_eq!(back.len(), 1);
    until(|| spans.ended().len() == 3).await;
    intake.stop().await;
    assert_kept(&spans.begun());
}
