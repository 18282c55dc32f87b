//! The begin and the end of a handler's transaction.

use sqlx::{Postgres, Row};

use super::{from_column, text, to_column};
use crate::connections::Connections;
use crate::error::SqlError;
use crate::inbox::claim::{Claim, Finish};
use crate::link::Lent;
use crate::tables::Tables;

/// The lane stays locked until the commit: no worker can claim it in between.
const DONE: &str = include_str!("sql/done.sql");

/// Begins a transaction. The answer of the server shows whether the session can write: one that
/// cannot write is useless to a handler, and would cost it an attempt.
pub(in super::super) async fn begin(
    pool: &Connections<Postgres>,
) -> Result<Lent<Postgres>, SqlError> {
    let mut lent = Lent::from(pool).await?;
    let begun = sqlx::raw_sql("begin; show transaction_read_only")
        .fetch_one(lent.get())
        .await;
    match begun {
        Ok(row) if row.get::<&str, _>(0) == "on" => Err(lent.close_read_only()),
        Ok(_) => Ok(lent),
        Err(error) => lent.end_or_close(Err(error)),
    }
}

pub(in super::super) async fn commit(
    mut lent: Lent<sqlx::Postgres>,
    tables: &Tables,
    claim: Claim,
) -> Result<Finish, SqlError> {
    let found = sqlx::query(text(tables, DONE))
        .bind(claim.claimed.lane.as_ref())
        .bind(to_column(claim.claimed.token))
        .bind(to_column(claim.worker))
        .bind(to_column(claim.message.sequence))
        .bind(to_column(claim.message.nonce))
        .fetch_one(lent.get())
        .await;
    let found = match found {
        Ok(found) => found,
        Err(error) => return lent.end_or_close(Err(error)),
    };
    let finish = Finish {
        is_ours: from_column(&found, "ours") > 0,
        was_here: from_column(&found, "removed") > 0,
    };
    let end = match finish.is_ours && finish.was_here {
        true => "commit",
        false => "rollback",
    };
    let ended = sqlx::raw_sql(end).execute(lent.get()).await;
    lent.end_or_close(ended)?;
    Ok(finish)
}
