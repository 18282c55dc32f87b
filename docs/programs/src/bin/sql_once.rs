//! Payments in PostgreSQL: each is booked once, whichever process dies, because the handler's
//! writes and the done-mark of the message commit together.

use std::env::var;

use keylane::error::BoxError;
use keylane::source::{RawMessage, Source};
use keylane::{Dispatcher, OnExhausted};
use keylane_sql::{Claim, Database, Settings, SqlInbox, Tables, sqlx};

// ANCHOR: decode
#[derive(Clone)]
struct Payment {
    claim: Claim,
    account: String,
    cents: i64,
}

fn payment(raw: &RawMessage) -> Result<Payment, BoxError> {
    Ok(Payment {
        claim: Claim::of(raw).ok_or("it is not from an inbox in tables")?,
        account: String::from_utf8(raw.key.as_ref().ok_or("a payment needs a key")?.to_vec())?,
        cents: std::str::from_utf8(&raw.payload)?.parse()?,
    })
}
// ANCHOR_END: decode

// ANCHOR: book
async fn book(inbox: SqlInbox, payment: Payment) -> Result<(), BoxError> {
    let mut transaction = inbox.begin(payment.claim).await?;
    sqlx::query("update accounts set cents = cents + $2 where name = $1")
        .bind(&payment.account)
        .bind(payment.cents)
        .execute(transaction.postgres())
        .await?;
    let _ = transaction.commit().await?; // now, or by an earlier attempt: both are fine
    println!("{} cents for {}", payment.cents, payment.account);
    Ok(())
}
// ANCHOR_END: book

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().init();
    let local = || "postgres://postgres:secret@localhost/postgres".to_owned();
    let address = var("DATABASE_URL").unwrap_or_else(|_| local());
    let database = Database::connect(&address).await?;
    database.migrate(&Tables::new()).await?;
    let inbox = SqlInbox::open(&database, &Tables::new(), Settings::new()).await?;
    let pool = sqlx::PgPool::connect(&address).await?;
    for statement in [
        "create table if not exists accounts (name text primary key, cents bigint not null)",
        "insert into accounts values ('ada', 0), ('bob', 0) on conflict do nothing",
    ] {
        sqlx::query(statement).execute(&pool).await?;
    }

    let handler = inbox.clone();
    let payments = Dispatcher::builder(|payment: &Payment| payment.account.clone())
        .on_exhausted(OnExhausted::AtSource) // dead letters go into a table
        .spawn(move |payment: Payment| book(handler.clone(), payment))?;
    let intake = payments.consume(inbox.source().decode(payment))?;

    for (account, cents) in [("ada", "250"), ("bob", "99"), ("ada", "-50")] {
        inbox.inbox().accept(account, cents).await?; // committed when this returns
    }
    println!("the payments are accepted");

    tokio::signal::ctrl_c().await?;
    println!("{}", intake.stop().await);
    println!("{}", payments.drain().await);
    Ok(())
}
