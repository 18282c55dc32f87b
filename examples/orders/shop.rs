//! How an order is handled, and which of its effects may repeat.
//!
//! | effect | how often, if the process is killed in the middle |
//! | --- | --- |
//! | the call to the bank | may repeat: the bank cannot know that it has answered already. Real ones take an idempotency key |
//! | the payment in the ledger | once: its line is also the record that it was made |
//! | the lines `started`, `declined` and `again` | may repeat: they say what happened, and it happened |
//!
//! An order comes again only if it had started, and the inbox did not know yet that it was done.

use std::fmt;
use std::time::Duration;

use keylane::error::BuildError;
use keylane::{Context, Dispatcher, OnExhausted, Overflow, Retry};
use tokio::time::sleep;

use crate::ledger::{Ledger, LedgerError};
use crate::order::Order;

pub(crate) type Lanes = Dispatcher<String, Order, u64, NotPaid>;

/// How often an order is tried before it is a dead letter. Counted on the disk: an order that kills the
/// process is tried no more often.
pub(crate) const MOST_ATTEMPTS: u32 = 3;

/// Why an order was not paid.
#[derive(thiserror::Error)]
pub(crate) enum NotPaid {
    #[error("the bank has declined it, {0} times so far")]
    Declined(u32),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

// What a lane and a dead letter say of a failure is its `Debug`, and people read it on the console.
impl fmt::Debug for NotPaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A lane for each user, and the handler behind them.
pub(crate) fn lanes(ledger: Ledger) -> Result<Lanes, BuildError> {
    Dispatcher::builder(|order: &Order| order.user.clone())
        .name("orders")
        .concurrency(512)
        .capacity(16_384)
        .lane_capacity(256, Overflow::Wait)
        .attempt_timeout(Duration::from_secs(90))
        .stuck_after(Duration::from_millis(200))
        .retry(Retry::exponential(Duration::from_millis(200)).max_attempts(MOST_ATTEMPTS))
        // The inbox keeps the dead letters, with all the rest.
        .on_exhausted(OnExhausted::AtSource)
        .spawn(move |attempt: Context<String>, order: Order| {
            let ledger = ledger.clone();
            async move { handle(&ledger, attempt.attempt(), &order).await }
        })
}

async fn handle(ledger: &Ledger, attempt: u32, order: &Order) -> Result<u64, NotPaid> {
    ledger.started(order, attempt)?;
    // What was paid and not known to be done: the bank is not asked again.
    if ledger.payment(&order.id).is_none() {
        ask_bank(ledger, order).await?;
    }
    Ok(ledger.pay(order).await?)
}

/// Stands for a bank that takes its time, and declines as often as the order says.
async fn ask_bank(ledger: &Ledger, order: &Order) -> Result<(), NotPaid> {
    sleep(Duration::from_millis(order.takes_ms)).await;
    let declines = ledger.declines(order);
    if declines < order.declined {
        ledger.declined(order)?;
        return Err(NotPaid::Declined(declines + 1));
    }
    Ok(())
}
