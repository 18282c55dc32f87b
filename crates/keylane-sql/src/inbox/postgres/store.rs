//! The calls of the store and of the source, except accepts and turns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keylane_inbox::{Accepted, Letter, LetterKind, Stats, StoredMessage};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres as Db, Row};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::turn::found;
use super::{MESSAGE, Postgres, columns, count_column, from_column, message_of, to_column};
use crate::error::SqlError;
use crate::inbox::backend::{Backend, Dead};
use crate::inbox::backlog::{Backlog, LOOKED_AT};
use crate::inbox::lane::LaneId;
use crate::inbox::nonce;
use crate::inbox::record::Items;
use crate::inbox::turn::{Answer, Claimed, Found, MessageRef, RoundTrip, WorkerState};
use crate::link::Lent;
use crate::listening::{Heard, listen};
use crate::times::{self, micros};

type Bound<'q> = Query<'q, Db, PgArguments>;

/// The columns that a letter keeps of its message.
const KEPT: &str = "sequence, lane, key, payload, id, version, headers, accepted_at";

/// A page by a running total of the bytes before each row.
const SCAN: &str = include_str!("sql/scan.sql");

const READ: &str = "select {columns} from {messages} where sequence = any($1)";

const REMOVE: &str = "delete from {messages} where sequence = any($1)";

const BURY: &str = include_str!("sql/bury.sql");

const DEAD_LETTER: &str = include_str!("sql/dead_letter.sql");

const LETTERS: &str = include_str!("sql/letters.sql");

const PURGE: &str = "delete from {letters} where sequence = any($1) returning sequence";

/// The key is locked, as by producers; the worker that has its lane sees `redriven` change.
const REDRIVE: &str = include_str!("sql/redrive.sql");

const RECORD_VERSION: &str = include_str!("sql/record_version.sql");

const STATS: &str = include_str!("sql/stats.sql");

const BACKLOG: &str = include_str!("sql/backlog.sql");

const FORGET: &str = include_str!("sql/forget.sql");

const JOIN: &str = include_str!("sql/join.sql");

const RENEW: &str = include_str!("sql/renew.sql");

/// The lanes of the workers in `dead`, with one index scan for each: with another join, the planner
/// might read all lanes.
const FREED: &str = include_str!("sql/freed.sql");

/// A worker whose claims have run out can no longer renew or claim, so its lanes may be freed in
/// parts. Its row stays for a minute: a turn that began in time may add more lanes.
const FREE_DEAD: &str = include_str!("sql/free_dead.sql");

/// A turn that takes longer than that minute leaves lanes of a worker that does not exist any more.
/// Each step in the index goes from one worker with lanes to the next one.
const FREE_ORPHANS: &str = include_str!("sql/free_orphans.sql");

const LEAVE: &str = include_str!("sql/leave.sql");

const LANES_OF: &str = include_str!("sql/lanes_of.sql");

impl Postgres {
    pub(super) async fn rows<'q>(&self, query: Bound<'q>) -> Result<Vec<PgRow>, SqlError> {
        let mut connection = Lent::from(&self.connections).await?;
        let rows = query.fetch_all(connection.get()).await;
        connection.end(rows)
    }

    async fn execute<'q>(&self, query: Bound<'q>) -> Result<u64, SqlError> {
        let mut connection = Lent::from(&self.connections).await?;
        let done = query.execute(connection.get()).await;
        Ok(connection.end(done)?.rows_affected())
    }

    /// Returns a statement that moves messages to the letters, or back.
    fn of_letters(&self, template: &str) -> AssertSqlSafe<String> {
        self.text(&template.replace("{kept}", KEPT))
    }

    /// Returns a statement that reads messages.
    fn of_messages(&self, template: &str) -> AssertSqlSafe<String> {
        self.text(&template.replace("{columns}", MESSAGE))
    }
}

#[async_trait]
impl Backend for Postgres {
    async fn accept(&self, items: &Items<'_>) -> Result<Vec<Accepted>, SqlError> {
        self.accept_all(items).await
    }

    async fn scan(
        &self,
        from: u64,
        count: u64,
        bytes: u64,
    ) -> Result<Vec<StoredMessage>, SqlError> {
        let query = sqlx::query(self.of_messages(SCAN));
        let query = query
            .bind(to_column(from))
            .bind(to_column(count))
            .bind(to_column(bytes));
        self.rows(query).await?.iter().map(message_of).collect()
    }

    async fn read(&self, sequences: &[u64]) -> Result<HashMap<u64, StoredMessage>, SqlError> {
        let query = sqlx::query(self.of_messages(READ)).bind(columns(sequences));
        let rows = self.rows(query).await?;
        let messages = rows.iter().map(|row| {
            let message = message_of(row)?;
            Ok((message.sequence, message))
        });
        messages.collect()
    }

    async fn settle(&self, done: &[u64], dead: &[Dead]) -> Result<(), SqlError> {
        if !done.is_empty() {
            let query = sqlx::query(self.text(REMOVE)).bind(columns(done));
            self.execute(query).await?;
        }
        if !dead.is_empty() {
            let sequences: Vec<u64> = dead.iter().map(|dead| dead.sequence).collect();
            let attempts: Vec<i32> = dead
                .iter()
                .map(|dead| count_column(dead.attempts))
                .collect();
            let kinds: Vec<i16> = dead.iter().map(|dead| dead.kind.code().into()).collect();
            let errors: Vec<&[u8]> = (dead.iter())
                .map(|dead| Letter::cut_error(&dead.error).as_bytes())
                .collect();
            let query = sqlx::query(self.of_letters(BURY))
                .bind(columns(&sequences))
                .bind(attempts)
                .bind(kinds)
                .bind(errors);
            self.execute(query).await?;
        }
        Ok(())
    }

    async fn letters(&self, after: u64, limit: u64) -> Result<Vec<Letter>, SqlError> {
        let query = sqlx::query(self.of_messages(LETTERS));
        let query = query.bind(to_column(after)).bind(to_column(limit));
        self.rows(query).await?.iter().map(letter_of).collect()
    }

    async fn redrive(&self, sequences: &[u64]) -> Result<BTreeSet<u64>, SqlError> {
        let query = sqlx::query(self.of_letters(REDRIVE));
        let query = query.bind(columns(sequences)).bind(self.tables.channel());
        let rows = self.rows(query).await?;
        Ok(rows
            .iter()
            .map(|row| from_column(row, "sequence"))
            .collect())
    }

    async fn purge_letters(&self, sequences: &[u64]) -> Result<BTreeSet<u64>, SqlError> {
        let query = sqlx::query(self.text(PURGE)).bind(columns(sequences));
        let rows = self.rows(query).await?;
        Ok(rows
            .iter()
            .map(|row| from_column(row, "sequence"))
            .collect())
    }

    async fn version(&self, key: &[u8]) -> Result<Option<u64>, SqlError> {
        let query = self.text("select version::text as version from {versions} where lane = $1");
        let lane = LaneId::of(key);
        let rows = self.rows(sqlx::query(query).bind(lane.as_ref())).await?;
        let version = rows
            .first()
            .map(|row| row.get::<&str, _>("version").parse());
        version.transpose().map_err(|_| SqlError::damaged(0))
    }

    async fn record_version(&self, key: &[u8], version: u64) -> Result<(), SqlError> {
        let lane = LaneId::of(key);
        let query = sqlx::query(self.text(RECORD_VERSION));
        let query = query.bind(lane.as_ref()).bind(version.to_string());
        self.execute(query).await.map(drop)
    }

    async fn tail(&self) -> Result<u64, SqlError> {
        let query = "select case when is_called then last_value else 0 end as tail from {sequence}";
        let rows = self.rows(sqlx::query(self.text(query))).await?;
        Ok(rows.first().map_or(0, |row| from_column(row, "tail")))
    }

    async fn stats(&self) -> Result<Stats, SqlError> {
        let rows = self.rows(sqlx::query(self.text(STATS))).await?;
        let row = rows.first().ok_or_else(|| SqlError::damaged(0))?;
        let mut stats = Stats::default();
        stats.waiting = from_column(row, "waiting");
        stats.waiting_bytes = from_column(row, "waiting_bytes");
        stats.oldest = row.get::<Option<i64>, _>("oldest").map(i64::unsigned_abs);
        stats.letters = from_column(row, "letters");
        stats.letters_bytes = from_column(row, "letters_bytes");
        stats.known = from_column(row, "known");
        stats.versions = from_column(row, "versions");
        stats.tail = from_column(row, "tail");
        stats.file_bytes = from_column(row, "file_bytes");
        Ok(stats)
    }

    async fn backlog(&self) -> Result<Backlog, SqlError> {
        let query = sqlx::query(self.text(BACKLOG)).bind(to_column(LOOKED_AT));
        let rows = self.rows(query).await?;
        let row = rows.first().ok_or_else(|| SqlError::damaged(0))?;
        // Negative if the clock went back, or if the table was never analyzed.
        let positive = |column: &str| {
            let number: Option<i64> = row.get(column);
            u64::try_from(number.unwrap_or_default()).unwrap_or_default()
        };
        Ok(Backlog {
            counted: positive("waiting"),
            estimated: positive("estimated"),
            letters: positive("letters"),
            oldest: Duration::from_micros(positive("age")),
        })
    }

    async fn forget(&self, older: Duration, most: u64) -> Result<u64, SqlError> {
        let query = sqlx::query(self.text(FORGET));
        self.execute(query.bind(micros(older)).bind(to_column(most)))
            .await
    }

    async fn is_entered(&self) -> Result<bool, SqlError> {
        self.knows_history().await
    }

    async fn enter(&self) -> Result<(), SqlError> {
        self.enter_history().await
    }

    async fn join(&self, name: &str, ttl: Duration) -> Result<u64, SqlError> {
        // The history is another one if the database has failed over since.
        self.enter_history().await?;
        let worker = nonce::draw();
        let query = sqlx::query(self.text(JOIN)).bind(name).bind(micros(ttl));
        self.execute(query.bind(to_column(worker))).await?;
        Ok(worker)
    }

    async fn renew(&self, worker: u64, ttl: Duration, heard: u64) -> Result<WorkerState, SqlError> {
        let query = sqlx::query(self.text(RENEW))
            .bind(to_column(worker))
            .bind(micros(ttl))
            .bind(to_column(heard));
        match self.execute(query).await? {
            0 => self.standing(worker).await,
            _ => Ok(WorkerState::Alive),
        }
    }

    async fn free_dead(&self, most: u32) -> Result<u64, SqlError> {
        let query =
            sqlx::query(self.text(&FREE_DEAD.replace("{freed}", FREED))).bind(i64::from(most));
        let rows = self.rows(query).await?;
        Ok(rows.first().map_or(0, |row| from_column(row, "freed")))
    }

    async fn free_orphans(&self, most: u32) -> Result<u64, SqlError> {
        let query =
            sqlx::query(self.text(&FREE_ORPHANS.replace("{freed}", FREED))).bind(i64::from(most));
        let rows = self.rows(query).await?;
        Ok(rows.first().map_or(0, |row| from_column(row, "freed")))
    }

    async fn leave(&self, worker: u64) -> Result<(), SqlError> {
        let query = sqlx::query(self.text(LEAVE)).bind(to_column(worker));
        self.execute(query).await.map(drop)
    }

    async fn lanes_of(&self, worker: u64) -> Result<Vec<Found>, SqlError> {
        let query = sqlx::query(self.text(LANES_OF)).bind(to_column(worker));
        let rows = self.rows(query).await?;
        let found = rows
            .iter()
            .map(|row| found(row, LaneId::from_bytes(row.get(0)), 1));
        Ok(found.collect())
    }

    async fn turn(&self, turn: &RoundTrip) -> Result<Answer, SqlError> {
        self.take_turn(turn).await
    }

    async fn dead_letter(
        &self,
        worker: u64,
        claimed: Claimed,
        message: MessageRef,
        dead: &Dead,
    ) -> Result<bool, SqlError> {
        let query = sqlx::query(self.of_letters(DEAD_LETTER))
            .bind(to_column(worker))
            .bind(claimed.lane.as_ref())
            .bind(to_column(claimed.token))
            .bind(to_column(message.sequence))
            .bind(count_column(dead.attempts))
            .bind(i16::from(dead.kind.code()))
            .bind(Letter::cut_error(&dead.error).as_bytes())
            .bind(to_column(message.nonce));
        let rows = self.rows(query).await?;
        Ok(rows.first().is_some_and(|row| from_column(row, "ours") > 0))
    }

    fn listen(&self, wake: Arc<Notify>) -> Option<JoinHandle<()>> {
        // Notifications would go to any client, and sqlx fails at one that it has not asked for.
        (!self.connections.shares_sessions()).then(|| {
            let (pool, channel) = (self.connections.pool.clone(), self.tables.channel());
            listen(pool, channel, move |heard| match heard {
                Heard::Nothing => {}
                Heard::All | Heard::Said(_) => wake.notify_one(),
            })
        })
    }
}

fn letter_of(row: &PgRow) -> Result<Letter, SqlError> {
    let message = message_of(row)?;
    let damaged = || SqlError::damaged(message.sequence);
    let attempts = row.get::<i32, _>("attempts").unsigned_abs();
    let kind =
        u8::try_from(row.get::<i16, _>("kind")).map_or(LetterKind::Other, LetterKind::from_code);
    let error = String::from_utf8(row.get("error")).map_err(|_| damaged())?;
    let at = times::from_seconds(row.get("dead_lettered_at"));
    Ok(Letter::new(message, attempts, kind, error, at))
}
