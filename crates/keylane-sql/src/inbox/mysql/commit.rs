//! The end of a handler's transaction.

use sqlx::Row;

use super::script::Script;
use crate::error::SqlError;
use crate::inbox::claim::{Claim, Finish};
use crate::lent::Lent;
use crate::literals::hex;
use crate::tables::Tables;

/// Whether the lane is ours is read with a lock, and so not by the snapshot of the transaction. The
/// lane stays locked until the commit: no worker can claim it in between.
pub(in super::super) async fn commit(
    mut lent: Lent<sqlx::MySql>,
    tables: &Tables,
    claim: Claim,
) -> Result<Finish, SqlError> {
    let ours = format!(
        "{{lanes}} lanes force index (primary)
         where lanes.lane = {} and lanes.token = {} and lanes.worker = {}",
        hex(claim.claimed.lane),
        claim.claimed.token,
        claim.worker,
    );
    let statements = [
        format!("select 1 as is_ours from {ours} lock in share mode"),
        format!(
            "delete messages from {{messages}} messages force index (primary)
             where messages.sequence = {} and messages.lane = {}
                and exists (select 1 from {ours})",
            claim.sequence,
            hex(claim.claimed.lane),
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
