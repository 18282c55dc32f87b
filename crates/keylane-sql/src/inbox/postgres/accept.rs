//! Accepts messages.
//!
//! Producers of messages of one key go one after the other: each locks the row of the key in
//! `keys`, then draws its sequences, and holds the lock until it commits. So the sequences of a key
//! grow in the order of its commits, and a message that commits late is not overtaken by a later
//! one of its key. Rows are locked in the order of their lanes.

use std::collections::{HashMap, HashSet};

use keylane_inbox::Accepted;
use sqlx::{PgConnection, Row};

use super::{Postgres, from_column, text, to_column};
use crate::error::SqlError;
use crate::inbox::nonce;
use crate::inbox::record::{Item, Items};
use crate::link::Lent;
use crate::tables::Tables;

const STORE: &str = include_str!("sql/store.sql");

/// Blocks while another transaction inserts the same mark.
const MARK: &str = include_str!("sql/mark.sql");

const KNOWN: &str = "select mark, sequence from {known} where mark = any($1)";

const NAME_MARKS: &str = include_str!("sql/name_marks.sql");

impl Postgres {
    pub(super) async fn accept_all(&self, items: &Items<'_>) -> Result<Vec<Accepted>, SqlError> {
        let mut connection = Lent::from(&self.connections).await?;
        if items.items.iter().all(|item| item.marks.is_empty()) {
            let stored = store(connection.get(), &self.tables, items).await;
            return Ok(connection
                .end(stored)?
                .into_iter()
                .map(Accepted::Stored)
                .collect());
        }
        let accepted = async {
            let mut transaction = sqlx::Connection::begin(connection.get()).await?;
            let accepted = accept_on(&mut transaction, &self.tables, items).await?;
            transaction.commit().await?;
            Ok(accepted)
        };
        let accepted = accepted.await;
        connection.end_or_close(accepted)
    }
}

/// Accepts messages within the transaction of the connection.
pub(in super::super) async fn accept_on(
    connection: &mut PgConnection,
    tables: &Tables,
    items: &Items<'_>,
) -> Result<Vec<Accepted>, sqlx::Error> {
    let marks: Vec<&[u8]> = (items.items.iter())
        .flat_map(|item| item.marks.iter().map(|mark| &mark[..]))
        .collect();
    let mut known = HashMap::new();
    if !marks.is_empty() {
        let fresh = sqlx::query(text(tables, MARK))
            .bind(&marks)
            .fetch_all(&mut *connection)
            .await?;
        if fresh.len() < marks.len() {
            let fresh: HashSet<&[u8]> = fresh.iter().map(|row| row.get("mark")).collect();
            let older: Vec<&[u8]> = (marks.iter().copied())
                .filter(|mark| !fresh.contains(mark))
                .collect();
            let rows = sqlx::query(text(tables, KNOWN))
                .bind(&older)
                .fetch_all(&mut *connection)
                .await?;
            for row in rows {
                known.insert(row.get::<Vec<u8>, _>("mark"), from_column(&row, "sequence"));
            }
            if known.len() < older.len() {
                // The mark was forgotten between the two statements.
                return Err(sqlx::Error::Io(std::io::Error::other(
                    "a mark was forgotten meanwhile",
                )));
            }
        }
    }
    let repeats = |item: &Item<'_>| {
        let mut marks = item.marks.iter();
        marks.find_map(|mark| known.get(&mark[..]).copied())
    };
    let new = Items {
        items: items
            .items
            .iter()
            .filter(|item| repeats(item).is_none())
            .cloned()
            .collect(),
        has_versions: items.has_versions,
    };
    let mut stored = match new.items.is_empty() {
        true => Vec::new(),
        false => store(&mut *connection, tables, &new).await?,
    }
    .into_iter();
    let (mut named, mut sequences) = (Vec::new(), Vec::new());
    let mut accepted = Vec::with_capacity(items.items.len());
    for item in &items.items {
        let one = match repeats(item) {
            Some(sequence) => Accepted::Duplicate(sequence),
            None => Accepted::Stored(stored.next().expect("each message was stored")),
        };
        for mark in item
            .marks
            .iter()
            .filter(|mark| !known.contains_key(&mark[..]))
        {
            named.push(&mark[..]);
            sequences.push(to_column(one.sequence()));
        }
        accepted.push(one);
    }
    if !named.is_empty() {
        sqlx::query(text(tables, NAME_MARKS))
            .bind(named)
            .bind(sequences)
            .execute(&mut *connection)
            .await?;
    }
    Ok(accepted)
}

/// Stores new messages. Returns their sequences, in their order.
async fn store(
    connection: &mut PgConnection,
    tables: &Tables,
    items: &Items<'_>,
) -> Result<Vec<u64>, sqlx::Error> {
    let items_of =
        |part: fn(&Item<'_>) -> Vec<u8>| -> Vec<Vec<u8>> { items.items.iter().map(part).collect() };
    let lanes = items_of(|item| item.lane.0.to_vec());
    let keys = items_of(|item| item.message.key.to_vec());
    let payloads = items_of(|item| item.message.payload.to_vec());
    let ids: Vec<Option<&[u8]>> = (items.items.iter())
        .map(|item| item.message.id.as_ref().map(|id| id.as_bytes()))
        .collect();
    let versions: Vec<Option<String>> = (items.items.iter())
        .map(|item| item.message.version.map(|version| version.to_string()))
        .collect();
    let headers: Vec<Option<&[u8]>> = (items.items.iter())
        .map(|item| item.headers.as_deref())
        .collect();
    let nonces: Vec<i64> = (items.items.iter())
        .map(|_| to_column(nonce::draw()))
        .collect();
    let rows = sqlx::query(text(tables, STORE))
        .bind(lanes)
        .bind(keys)
        .bind(payloads)
        .bind(ids)
        .bind(versions)
        .bind(headers)
        .bind(tables.channel())
        .bind(items.has_versions)
        .bind(nonces)
        .fetch_all(connection)
        .await?;
    let mut sequences: Vec<u64> = rows
        .iter()
        .map(|row| from_column(row, "sequence"))
        .collect();
    sequences.sort_unstable();
    Ok(sequences)
}
