//! Accepts the transfers, each in the transaction that stores it.

use std::time::Duration;

use keylane_sql::sqlx;
use tokio::time::sleep;

use crate::Failure;
use crate::plan::Plan;
use crate::transfer::{Entry, Side, Transfer};
use crate::watch::Watch;

/// How many transfers are accepted in one transaction.
const AT_ONCE: usize = 10;

/// Not much more waits than this for each account, so that the transfers keep coming while workers die.
const BACKLOG: u64 = 10;

/// Accepts all transfers in their order, as fast as they are booked.
pub(crate) async fn feed(plan: &Plan, watch: &Watch) -> Result<(), Failure> {
    let most = plan.openings.len() as u64 * BACKLOG;
    for transfers in plan.transfers.chunks(AT_ONCE) {
        accept(transfers, watch).await?;
        watch.accepted(transfers.len());
        while watch.waiting().await? > most {
            sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

/// Stores transfers and accepts their messages: both, or nothing.
async fn accept(transfers: &[Transfer], watch: &Watch) -> Result<(), Failure> {
    let mut transaction = watch.pool.begin().await?;
    let mut messages = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        sqlx::query("insert into transfers values ($1, $2, $3, $4)")
            .bind(transfer.number)
            .bind(transfer.from)
            .bind(transfer.to)
            .bind(transfer.cents)
            .execute(&mut *transaction)
            .await?;
        let debit = Entry {
            side: Side::Debit,
            transfer: *transfer,
        };
        messages.push(debit.message()?);
    }
    // All in one call: it locks the keys of the messages in one order, so that two that do so at the
    // same time do not wait for each other in a circle.
    watch.inbox.accept_in(&mut *transaction, messages).await?;
    transaction.commit().await?;
    Ok(())
}
