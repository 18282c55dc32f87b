//! The history of a database, and what another one needs.

use sqlx::Row;

use super::Postgres;
use crate::error::SqlError;
use crate::inbox::again::again;
use crate::inbox::turn::WorkerState;
use crate::lent::Lent;

/// What this history is called: the cluster, and its timeline, which is another one after each
/// promotion. Each role may ask for it.
pub(super) const HERE: &str = "((select system_identifier from pg_control_system()) || '/'
    || left(pg_walfile_name(pg_current_wal_lsn()), 8))";

/// Whether a worker has joined in another history.
const ELSEWHERE: &str =
    "select history, {here} as here from {workers} where id = $1 and history <> {here}";

/// A standby has no timeline of its own yet: there nothing is known, and nothing can be noted.
const IS_KNOWN: &str = "
    select 1 where case when pg_is_in_recovery() then false
        else exists (select from {history} where id = {here}) end
";

/// Each statement sees what was committed before it. A process that vanishes between two of them
/// would keep all others from entering for as long as the server does not find out: with its
/// defaults, for hours.
const BEGIN: &str = "set transaction isolation level read committed;
    set local idle_in_transaction_session_timeout = '5s'";

/// Of several that enter at a time, the others wait for the first one, and find it done.
const NOTE: &str = "
    insert into {history} as known (one, id) values (1, {here})
    on conflict (one) do update set id = excluded.id where known.id <> excluded.id
    returning id
";

/// What was copied without its sequences draws numbers that are there.
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

/// A row of `lanes` is there exactly if one of `keys` is, and that if messages of the key are. A
/// key that another transaction is about to remove is waited for.
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
        let mut connection = Lent::from(&self.pool).await?;
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

    /// Of a worker that cannot renew.
    pub(super) async fn standing(&self, worker: u64) -> Result<WorkerState, SqlError> {
        let query = sqlx::query(self.text(ELSEWHERE)).bind(super::to_column(worker));
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
