//! One leader of two consumes a queue, and hands it over without a loss or a repeat.
//!
//! ```text
//! cargo run -p keylane-leader --features consume --example consuming
//! ```
//!
//! The queue is a durable inbox, of which one consumer may be open at a time: the leader. Each
//! leader resigns after a while. It takes no more in, finishes the orders that it has, confirms
//! them, and only then the other one leads. Both candidates are in this process, and their store is
//! in memory. With a store that processes share, and a queue that they can reach, the same code
//! elects one consumer of a fleet.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::Inbox;
use keylane_leader::{Candidate, Elections, MemoryElections, Office, consuming};
use tokio::time::sleep;

const ORDERS: u64 = 400;
const ACCOUNTS: u64 = 10;

/// The orders that were booked, in their order, each with the leader that has booked it.
type Book = Arc<Mutex<Vec<(u64, &'static str)>>>;

fn stand(
    elections: &Elections,
    name: &'static str,
    inbox: &Inbox,
    book: &Book,
) -> Result<Office, Box<dyn Error>> {
    let (inbox, book) = (inbox.clone(), Arc::clone(book));
    let career = consuming(move |term| {
        let (source, book) = (inbox.source(), Arc::clone(&book));
        async move {
            println!("{name} leads, under token {}", term.token());
            let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
                // Handlers are dropped when the term is lost.
                .leased_by(term.lanes())
                .on_exhausted(OnExhausted::Halt)
                .spawn(move |order: RawMessage| {
                    let book = Arc::clone(&book);
                    async move {
                        sleep(Duration::from_millis(5)).await;
                        let number = std::str::from_utf8(&order.payload)?.parse()?;
                        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
                        book.push((number, name));
                        Ok::<_, BoxError>(())
                    }
                })?;
            let intake = orders.consume(source)?;
            Ok::<_, BoxError>((orders, intake))
        }
    });
    let candidate = Candidate::builder(elections, "bookkeeper").id(name);
    Ok(candidate.run(career)?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let inbox = Inbox::open(directory.path()).await?;
    let store = Arc::new(MemoryElections::new());
    // Two handles, as two processes have.
    let (here, there) = (Elections::open(store.clone())?, Elections::open(store)?);
    let book = Book::default();
    let offices = [
        stand(&here, "anna", &inbox, &book)?,
        stand(&there, "bert", &inbox, &book)?,
    ];

    for order in 0..ORDERS {
        let account = format!("account-{}", order % ACCOUNTS);
        inbox.accept(account, order.to_string()).await?;
        sleep(Duration::from_millis(1)).await;
        if order % 100 == 99 {
            for office in &offices {
                // The one that does not lead has nothing to resign.
                let _ = office.resign();
            }
        }
    }
    while inbox.stats().await?.waiting > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    for office in offices {
        office.close().await;
    }

    inbox.close().await?;
    judge(&book.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Each order was booked once, and those of each account in order.
fn judge(book: &[(u64, &str)]) -> Result<(), Box<dyn Error>> {
    let mut last = HashMap::new();
    for (number, _) in book {
        let before = last.insert(number % ACCOUNTS, *number);
        if before >= Some(*number) {
            return Err(format!("order {number} was booked behind {before:?}").into());
        }
    }
    for name in ["anna", "bert"] {
        let booked = book.iter().filter(|(_, by)| *by == name).count();
        println!("{name} has booked {booked} orders");
    }
    match book.len() as u64 {
        ORDERS => {
            println!("all {ORDERS} were booked once, those of each account in order");
            Ok(())
        }
        booked => Err(format!("{booked} of {ORDERS} orders were booked").into()),
    }
}
