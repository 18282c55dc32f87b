//! The steps to enter another history.

use sqlx::Row;

use super::{Postgres, to_column};
use crate::again::again;
use crate::error::SqlError;
use crate::inbox::turn::WorkerState;
use crate::link::Lent;

/// Whether a worker has joined in another history.
const ELSEWHERE: &str =
    "select history, {here} as here from {workers} where id = $1 and history <> {here}";

/// A standby has no timeline of its own yet: its history is unknown, and cannot be noted.
const IS_KNOWN: &str = include_str!("sql/is_known.sql");

/// Each statement sees all earlier commits. A process that vanishes between two statements would
/// keep all others from entering until the server finds out: with its defaults, for hours.
const BEGIN: &str = "set transaction isolation level read committed;
    set local idle_in_transaction_session_timeout = '5s'";

/// If several processes enter at a time, the others wait for the first one, and find it done.
const NOTE: &str = include_str!("sql/note.sql");

/// A copy made without its sequences would draw existing numbers.
const RAISE: [&str; 2] = [
    "select setval('{sequence}', highest) from {sequence}, (
        select greatest((select max(sequence) from {messages}), (select max(sequence) from {letters}))
    ) as there (highest)
    where highest > last_value or highest = last_value and not is_called",
    "select setval('{tokens}', highest) from {tokens}, (
        select greatest((select max(token) from {lanes}), (select max(token) from {leases}))
    ) as there (highest)
    where highest > last_value or highest = last_value and not is_called",
];

/// A row of `lanes` exists exactly if a row of `keys` does, and that exactly if messages of the key
/// do. The statement waits for a key that another transaction is about to remove.
const FIND: [&str; 3] = [
    "delete from {lanes} lanes where not exists (select from {keys} keys where keys.lane = lanes.lane)",
    "insert into {keys} (lane, last)
     select distinct lane, 1 from {messages} messages
     where not exists (select from {keys} keys where keys.lane = messages.lane)
     order by lane on conflict (lane) do nothing",
    "insert into {lanes} (lane, of_key, ready_at)
     select lane, of_key, clock_timestamp() from (
        select lane, ctid as of_key from {keys} keys
        where not exists (select from {lanes} lanes where lanes.lane = keys.lane)
        for update
     ) as found",
];

impl Postgres {
    pub(super) async fn knows_history(&self) -> Result<bool, SqlError> {
        let rows = self.rows(sqlx::query(self.text(IS_KNOWN))).await?;
        Ok(!rows.is_empty())
    }

    pub(super) async fn enter_history(&self) -> Result<(), SqlError> {
        match self.knows_history().await? {
            true => Ok(()),
            false => again(|| self.enter_once()).await,
        }
    }

    async fn enter_once(&self) -> Result<(), SqlError> {
        let mut connection = Lent::from(&self.connections).await?;
        let entered = async {
            let mut transaction = sqlx::Connection::begin(connection.get()).await?;
            sqlx::raw_sql(BEGIN).execute(&mut *transaction).await?;
            let noted = sqlx::query(self.text(NOTE));
            if noted.fetch_optional(&mut *transaction).await?.is_some() {
                for statement in RAISE.iter().chain(&FIND) {
                    sqlx::query(self.text(statement))
                        .execute(&mut *transaction)
                        .await?;
                }
            }
            transaction.commit().await
        };
        let entered = entered.await;
        connection.end_or_close(entered)
    }

    /// Returns the state of a worker that cannot renew.
    pub(super) async fn standing(&self, worker: u64) -> Result<WorkerState, SqlError> {
        let query = sqlx::query(self.text(ELSEWHERE)).bind(to_column(worker));
        let rows = self.rows(query).await?;
        Ok(match rows.first() {
            None => WorkerState::RunOut,
            Some(row) => WorkerState::Elsewhere {
                joined: row.get("history"),
                now: row.get("here"),
            },
        })
    }
}
