//! The inbox in PostgreSQL.

mod accept;
pub(super) use accept::accept_on;

mod commit;
pub(super) use commit::{begin, commit};

mod store;

mod tid;

mod turn;

mod history;

use std::fmt;

use keylane_inbox::{NewMessage, StoredMessage};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, ColumnIndex, Row};

use super::headers;
use crate::connections::Connections;
use crate::error::SqlError;
use crate::history::OF_POSTGRES;
use crate::tables::{Quote, Tables};
use crate::times;

pub(super) struct Postgres {
    connections: Connections<sqlx::Postgres>,
    tables: Tables,
}

impl Postgres {
    pub(super) fn new(connections: Connections<sqlx::Postgres>, tables: &Tables) -> Self {
        Self {
            connections,
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
    let template = template.replace("{here}", OF_POSTGRES);
    AssertSqlSafe(tables.statement(&template, Quote::Postgres))
}

/// Converts a number to the type of the column. No row has a number above its range.
fn to_column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn count_column(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn columns(numbers: &[u64]) -> Vec<i64> {
    numbers.iter().map(|number| to_column(*number)).collect()
}

fn from_column(row: &PgRow, column: impl ColumnIndex<PgRow>) -> u64 {
    row.get::<i64, _>(column).unsigned_abs()
}

/// The columns of a message. They are the first ones of each statement that reads messages.
const MESSAGE: &str = "sequence, key, payload, id, version::text, headers,
    date_part('epoch', accepted_at)";
const SEQUENCE: usize = 0;
const KEY: usize = 1;
const PAYLOAD: usize = 2;
const ID: usize = 3;
const VERSION: usize = 4;
const HEADERS: usize = 5;
const ACCEPTED_AT: usize = 6;

fn message_of(row: &PgRow) -> Result<StoredMessage, SqlError> {
    let sequence = from_column(row, SEQUENCE);
    let damaged = || SqlError::damaged(sequence);
    let mut message = NewMessage::new(row.get::<Vec<u8>, _>(KEY), row.get::<Vec<u8>, _>(PAYLOAD));
    message.id = row.get::<Option<Vec<u8>>, _>(ID).map(Into::into);
    message.version = match row.get::<Option<&str>, _>(VERSION) {
        None => None,
        Some(version) => Some(version.parse().map_err(|_| damaged())?),
    };
    message.headers = headers::decode(row.get(HEADERS)).ok_or_else(damaged)?;
    let accepted_at = times::from_seconds(row.get(ACCEPTED_AT));
    Ok(StoredMessage::new(sequence, accepted_at, message))
}
