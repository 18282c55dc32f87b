//! The handler: what it books, and that its message is done, is one transaction.
//!
//! An account can spend what it had in the morning; what comes in can be spent tomorrow. So whether a
//! transfer is covered depends on the account's own transfers and on their order, and never on whether
//! a credit of another account, in another process, has come a little sooner or later. With that, the
//! balances can be compared with those of the same transfers applied one by one.

use keylane::error::BoxError;
use keylane_sql::sqlx::{self, PgConnection, PgPool};
use keylane_sql::{Committed, SqlInbox};

use crate::transfer::{Claimed, Entry, Side};

/// Books an entry: all of it and its done-mark, or nothing.
///
/// If the claim has ended meanwhile, the commit is refused with `CommitError::Lost`, and what was
/// written is rolled back. So there is nothing here about being killed, paused or handed over twice.
pub(crate) async fn book(
    inbox: &SqlInbox,
    worker: &str,
    claimed: &Claimed,
) -> Result<Committed, BoxError> {
    let mut transaction = inbox.begin(claimed.claim).await?;
    write(transaction.postgres(), inbox, worker, &claimed.entry).await?;
    Ok(transaction.commit().await?)
}

/// The same without the done-mark, for comparison: the message is done a moment after it is booked, and
/// nothing asks whether the account is still ours.
pub(crate) async fn book_apart(
    pool: &PgPool,
    inbox: &SqlInbox,
    worker: &str,
    claimed: &Claimed,
) -> Result<Committed, BoxError> {
    let mut transaction = pool.begin().await?;
    write(&mut transaction, inbox, worker, &claimed.entry).await?;
    transaction.commit().await?;
    Ok(Committed::Now)
}

async fn write(
    connection: &mut PgConnection,
    inbox: &SqlInbox,
    worker: &str,
    entry: &Entry,
) -> Result<(), BoxError> {
    let Entry { side, transfer } = *entry;
    let kind = match side {
        Side::Debit if spend(connection, transfer.from, transfer.cents).await? => {
            // The credit is a message of the other account. It is accepted if this commits, and only
            // then; the key of the other account is locked until it does.
            let credit = Entry {
                side: Side::Credit,
                transfer,
            };
            inbox.accept_in(connection, vec![credit.message()?]).await?;
            "debit"
        }
        Side::Debit => "refusal",
        Side::Credit => {
            sqlx::query("update accounts set received = received + $2 where id = $1")
                .bind(transfer.to)
                .bind(transfer.cents)
                .execute(&mut *connection)
                .await?;
            "credit"
        }
    };
    sqlx::query("insert into bookings (transfer, kind, account, worker) values ($1, $2, $3, $4)")
        .bind(transfer.number)
        .bind(kind)
        .bind(entry.account())
        .bind(worker)
        .execute(connection)
        .await?;
    Ok(())
}

/// False: it is not covered.
async fn spend(
    connection: &mut PgConnection,
    account: i32,
    cents: i64,
) -> Result<bool, sqlx::Error> {
    let spent = sqlx::query(
        "update accounts set spent = spent + $2 where id = $1 and spent + $2 <= opening",
    )
    .bind(account)
    .bind(cents)
    .execute(connection)
    .await?;
    Ok(spent.rows_affected() == 1)
}
