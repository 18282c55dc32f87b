//! The inbox in PostgreSQL.

mod accept;
pub(super) use accept::accept_on;

mod commit;
pub(super) use commit::commit;

mod store;

mod turn;

mod listen;

use std::fmt;

use keylane_inbox::{NewMessage, StoredMessage};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgPool, Row};

use super::headers;
use crate::error::SqlError;
use crate::tables::{Quote, Tables};
use crate::times;

pub(super) struct Postgres {
    pool: PgPool,
    tables: Tables,
}

impl Postgres {
    pub(super) fn new(pool: PgPool, tables: &Tables) -> Self {
        Self {
            pool,
            tables: tables.clone(),
        }
    }

    fn text(&self, template: &str) -> AssertSqlSafe<String> {
        text(&self.tables, template)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgreSQL")
    }
}

fn text(tables: &Tables, template: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(tables.statement(template, Quote::Postgres))
}

/// Numbers above what the column takes name nothing.
fn to_column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn count_column(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn columns(numbers: &[u64]) -> Vec<i64> {
    numbers.iter().map(|number| to_column(*number)).collect()
}

fn from_column(row: &PgRow, name: &str) -> u64 {
    row.get::<i64, _>(name).unsigned_abs()
}

/// The columns of a message, with these names.
const MESSAGE: &str = "sequence, key, payload, id, version::text as version, headers,
    (extract(epoch from accepted_at) * 1000)::bigint as accepted_at_ms";

fn message_of(row: &PgRow) -> Result<StoredMessage, SqlError> {
    let sequence = from_column(row, "sequence");
    let damaged = || SqlError::damaged(sequence);
    let mut message = NewMessage::new(
        row.get::<Vec<u8>, _>("key"),
        row.get::<Vec<u8>, _>("payload"),
    );
    message.id = row.get::<Option<Vec<u8>>, _>("id").map(Into::into);
    message.version = match row.get::<Option<&str>, _>("version") {
        None => None,
        Some(version) => Some(version.parse().map_err(|_| damaged())?),
    };
    message.headers = headers::decode(row.get("headers")).ok_or_else(damaged)?;
    let accepted_at = times::from_millis(from_column(row, "accepted_at_ms"));
    Ok(StoredMessage::new(sequence, accepted_at, message))
}
