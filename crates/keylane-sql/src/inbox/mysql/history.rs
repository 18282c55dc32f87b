//! The steps to enter another history.

use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::script::Script;
use super::{BEGIN, MySql};
use crate::again::again;
use crate::error::SqlError;
use crate::inbox::turn::WorkerState;
use crate::link::Lent;

/// What a row of a result means, in its column `what`: the worker has joined in another history.
pub(super) const ELSEWHERE: i64 = 4;

/// Locks the only row.
const ALONE: &str =
    "insert into {history} (one, id) values (1, '') on duplicate key update one = 1";

/// A process that vanishes in the middle would keep all others from entering until the server finds
/// out: by default, for eight hours. MariaDB, which alone reads such a comment, ends the
/// transaction after these seconds; MySQL has no time limit for idle transactions.
const IDLE: &str = "set @keylane_idle = 0 /*M!100300 + @@session.idle_transaction_timeout,
    session idle_transaction_timeout = 5 */";

const IDLE_AS_BEFORE: &str = "set @keylane_idle = 0 /*M!100300 + @keylane_idle,
    session idle_transaction_timeout = @keylane_idle */";

/// A row of `lanes` exists exactly if a row of `keys` does, and that exactly if messages of the key
/// do. Turns lock lanes in this order, and keys after them; producers lock keys in this order.
const FIND: [&str; 3] = [
    "delete lanes from {lanes} lanes force index (primary)
     left join {keys} `keys` force index (primary) on `keys`.lane = lanes.lane
     where `keys`.lane is null",
    "insert ignore into {keys} (lane, last, redriven)
     select distinct messages.lane, 1, 0 from {messages} messages
     left join {keys} `keys` on `keys`.lane = messages.lane where `keys`.lane is null
     order by messages.lane",
    "insert ignore into {lanes} (lane, ready_at)
     select `keys`.lane, utc_timestamp(6) from {keys} `keys`
     left join {lanes} lanes on lanes.lane = `keys`.lane where lanes.lane is null
     order by `keys`.lane",
];

/// Runs after the statements for lanes: turns have locked their lanes when they draw a token.
const RAISE: &str = "update {counters} set value = greatest(value,
    (select coalesce(max(token), 0) from {lanes}),
    (select coalesce(max(token), 0) from {leases})) where name = 'tokens'";

impl MySql {
    /// Enters the history. The numbers of messages need no step: they are drawn above all existing
    /// ones. A token is raised above those of all lanes.
    pub(super) async fn enter_history(&self) -> Result<(), SqlError> {
        match self.knows_history().await? {
            true => Ok(()),
            false => again(|| self.enter_once()).await,
        }
    }

    pub(super) async fn knows_history(&self) -> Result<bool, SqlError> {
        Ok(!self.rows([&self.is_known()]).await?.is_empty())
    }

    fn is_known(&self) -> String {
        let here = self.history.here();
        format!("select 1 from {{history}} where id = {here}")
    }

    async fn enter_once(&self) -> Result<(), SqlError> {
        let here = self.history.here();
        let note = format!("update {{history}} set id = {here} where one = 1");
        let mut connection = Lent::from(&self.connections).await?;
        let entered = async {
            let mut script = Script::new(connection.get(), &self.tables);
            script.add(IDLE).await?;
            script.add(BEGIN).await?;
            // If several processes enter at a time, the others wait for the first one, and find it
            // done.
            script.add(ALONE).await?;
            script.add(&self.is_known()).await?;
            if script.run().await?.is_empty() {
                for statement in FIND {
                    script.add(statement).await?;
                }
                script.add(RAISE).await?;
                script.add(&note).await?;
            }
            script.add("commit").await?;
            script.add(IDLE_AS_BEFORE).await?;
            script.run().await.map(drop)
        };
        let entered = entered.await;
        connection.end_or_close(entered)
    }

    /// Returns the state of a worker that cannot renew.
    pub(super) async fn standing(&self, worker: u64) -> Result<WorkerState, SqlError> {
        let rows = self.rows([self.elsewhere(worker)]).await?;
        Ok(rows.first().map_or(WorkerState::RunOut, standing_of))
    }

    /// Finds whether a worker has joined in another history.
    pub(super) fn elsewhere(&self, worker: u64) -> String {
        let here = self.history.here();
        format!(
            "select {ELSEWHERE} as what, x'' as lane, history, {here} as here from {{workers}}
             where id = {worker} and history <> {here}"
        )
    }
}

pub(super) fn standing_of(row: &MySqlRow) -> WorkerState {
    WorkerState::Elsewhere {
        joined: row.get("history"),
        now: row.get("here"),
    }
}
