//! The begin and the end of a handler's transaction.

use sqlx::{MySql, Row};

use super::script::Script;
use crate::connections::Connections;
use crate::error::SqlError;
use crate::history::History;
use crate::inbox::claim::{Claim, Finish};
use crate::link::Lent;
use crate::literals::hex;
use crate::tables::Tables;

/// The variable has one name in MySQL and another one in MariaDB; each database reads the other's
/// name as a comment.
const START: &str = "start transaction;
    select cast(/*!50720 @@transaction_read_only + */ /*M! @@tx_read_only + */ 0 as signed)
        as is_read_only";

/// Begins a transaction. The answer of the server shows whether the session can write: one that
/// cannot write is useless to a handler, and would cost it an attempt.
pub(in super::super) async fn begin(pool: &Connections<MySql>) -> Result<Lent<MySql>, SqlError> {
    let mut lent = Lent::from(pool).await?;
    let begun = sqlx::raw_sql(START).fetch_one(lent.get()).await;
    match begun {
        Ok(row) if row.get::<i64, _>("is_read_only") == 1 => Err(lent.close_read_only()),
        Ok(_) => Ok(lent),
        Err(error) => lent.end_or_close(Err(error)),
    }
}

/// Commits, if the lane is ours. That is read with a lock, and so not from the snapshot of the
/// transaction. The lane stays locked until the commit: no worker can claim it in between.
pub(in super::super) async fn commit(
    mut lent: Lent<sqlx::MySql>,
    tables: &Tables,
    history: &History,
    claim: Claim,
) -> Result<Finish, SqlError> {
    let ours = format!(
        "{{lanes}} lanes force index (primary)
         where lanes.lane = {} and lanes.token = {} and lanes.worker = {worker}
            and not exists (select 1 from {{workers}} where id = {worker} and history <> {})",
        hex(claim.claimed.lane),
        claim.claimed.token,
        history.here(),
        worker = claim.worker,
    );
    let statements = [
        format!("select 1 as is_ours from {ours} lock in share mode"),
        format!(
            "delete messages from {{messages}} messages force index (primary)
             where messages.sequence = {} and messages.lane = {} and messages.nonce = {}
                and exists (select 1 from {ours})",
            claim.message.sequence,
            hex(claim.claimed.lane),
            claim.message.nonce,
        ),
        "select 0 as is_ours, row_count() as removed".to_owned(),
    ];
    let finished = async {
        let mut script = Script::new(lent.get(), tables);
        for statement in &statements {
            script.add(statement).await?;
        }
        let rows = script.run().await?;
        let finish = Finish {
            is_ours: rows.iter().any(|row| row.get::<i64, _>("is_ours") == 1),
            was_here: (rows.last()).is_some_and(|row| row.get::<i64, _>("removed") > 0),
        };
        let end = match finish.is_ours && finish.was_here {
            true => "commit",
            false => "rollback",
        };
        script.add(end).await?;
        script.run().await?;
        Ok(finish)
    };
    let finished = finished.await;
    lent.end_or_close(finished)
}
