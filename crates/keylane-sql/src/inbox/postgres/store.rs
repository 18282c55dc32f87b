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
use crate::inbox::item::Items;
use crate::inbox::lane::LaneId;
use crate::inbox::nonce;
use crate::inbox::turn::{Answer, Claimed, Found, MessageRef, RoundTrip, WorkerState};
use crate::lent::Lent;
use crate::times::{self, micros};

type Bound<'q> = Query<'q, Db, PgArguments>;

/// The columns that a letter keeps of its message.
const KEPT: &str = "sequence, lane, key, payload, id, version, headers, accepted_at";

/// A page by a running total of the bytes before each row.
const SCAN: &str = "
    select {columns} from (
        select *, sum(bytes) over (order by sequence) - bytes as before
        from (
            select *, octet_length(payload) + octet_length(key) + 30 as bytes
            from {messages} where sequence >= $1 order by sequence limit $2
        ) as page
    ) as page
    where before < $3 or before = 0
    order by sequence
";

const READ: &str = "select {columns} from {messages} where sequence = any($1)";

const REMOVE: &str = "delete from {messages} where sequence = any($1)";

const BURY: &str = "
    with dead as (
        select * from unnest($1::bigint[], $2::integer[], $3::smallint[], $4::bytea[])
            as d (sequence, attempts, kind, error)
    ), moved as (
        delete from {messages} messages using dead
        where messages.sequence = dead.sequence
        returning messages.*, dead.attempts as tried, dead.kind, dead.error
    )
    insert into {letters} ({kept}, attempts, kind, error)
    select {kept}, tried, kind, error from moved
";

const DEAD_LETTER: &str = "
    with ours as (
        select lane from {lanes} where lane = $2 and token = $3 and worker = $1
          and not exists (select from {workers} where id = $1 and history <> {here})
        for share
    ), moved as (
        delete from {messages} messages using ours
        where messages.sequence = $4 and messages.lane = ours.lane and messages.nonce = $8
        returning messages.*
    ), kept as (
        insert into {letters} ({kept}, attempts, kind, error)
        select {kept}, $5, $6, $7 from moved
    )
    select count(*) as ours from ours
";

const LETTERS: &str = "
    select {columns}, attempts, kind, error,
        date_part('epoch', dead_lettered_at) as dead_lettered_at
    from {letters} where sequence > $1 order by sequence limit $2
";

const PURGE: &str = "delete from {letters} where sequence = any($1) returning sequence";

/// The key is locked, as by producers; the worker that has its lane sees `redriven` change.
const REDRIVE: &str = "
    with letter as (
        delete from {letters} where sequence = any($1) returning *
    ), locked as (
        insert into {keys} as known (lane, last, redriven)
        select distinct lane, 1, 1 from letter order by lane
        on conflict (lane) do update set last = known.last + 1, redriven = known.last + 1
        returning lane, last, known.ctid as of_key
    ), stored as (
        insert into {messages} ({kept}) select {kept} from letter join locked using (lane)
        returning sequence
    ), woken as (
        insert into {lanes} (lane, of_key, ready_at)
        select lane, of_key, clock_timestamp() from locked where last = 1
    )
    select sequence, (select pg_notify($2, '')::text) as told from stored
";

const RECORD_VERSION: &str = "
    insert into {versions} as kept (lane, version) values ($1, $2::text::numeric)
    on conflict (lane) do update set version = greatest(kept.version, excluded.version)
";

const STATS: &str = "
    select
        (select count(*) from {messages}) as waiting,
        (select coalesce(sum(octet_length(payload) + octet_length(key)
            + coalesce(octet_length(id), 0) + coalesce(octet_length(headers), 0) + 30), 0)::bigint
            from {messages}) as waiting_bytes,
        (select min(sequence) from {messages}) as oldest,
        (select count(*) from {letters}) as letters,
        (select coalesce(sum(octet_length(payload) + octet_length(key)
            + coalesce(octet_length(id), 0) + coalesce(octet_length(headers), 0)
            + octet_length(error) + 50), 0)::bigint from {letters}) as letters_bytes,
        (select count(*) from {known}) as known,
        (select count(*) from {versions}) as versions,
        (select case when is_called then last_value else 0 end from {sequence}) as tail,
        (select sum(pg_total_relation_size(name::regclass))::bigint
            from unnest(array['{messages}', '{letters}', '{keys}', '{lanes}', '{known}', '{versions}'])
            as t (name)) as file_bytes
";

const FORGET: &str = "
    delete from {known} where mark in (
        select mark from {known} where seen_at < clock_timestamp() - $1 * interval '1 microsecond'
        order by seen_at limit $2 for update skip locked
    )
";

const JOIN: &str = "
    insert into {workers} (id, name, runs_out, history)
    values ($3, $1, clock_timestamp() + $2 * interval '1 microsecond', {here})
";

const RENEW: &str = "
    update {workers} set runs_out = clock_timestamp() + $2 * interval '1 microsecond',
        renewals = renewals + 1
    where id = $1 and runs_out > clock_timestamp() and history = {here} and renewals >= $3
";

/// The lanes of the workers in `dead`, with one index scan for each: with another join, the planner
/// might read all lanes.
const FREED: &str = "
    update {lanes} lanes
    set worker = null, ready_at = clock_timestamp(), crashes = least(lanes.crashes + 1, 1000)
    from (
        select orphan.ctid as place
        from dead cross join lateral (
            select ctid from {lanes} orphans where orphans.worker = dead.id
            limit $1 for update skip locked
        ) as orphan
        limit $1
    ) as orphaned
    where lanes.ctid = orphaned.place
    returning lanes.lane
";

/// A worker whose claims have run out can no longer renew or claim, so its lanes may be freed in
/// parts. Its row stays for a minute: a turn that began in time may add more lanes.
const FREE_DEAD: &str = "
    with dead as materialized (
        select id from {workers} where runs_out <= clock_timestamp()
    ), freed as ({freed}), gone as (
        delete from {workers} workers using dead
        where workers.id = dead.id
          and workers.runs_out < clock_timestamp() - interval '1 minute'
          and not exists (select from {lanes} lanes where lanes.worker = workers.id)
    )
    select count(*) as freed from freed
";

/// A turn that takes longer than that minute leaves lanes of a worker that does not exist any more.
/// Each step in the index goes from one worker with lanes to the next one.
const FREE_ORPHANS: &str = "
    with recursive holders (id) as (
        select min(worker) from {lanes}
        union all
        select (select min(worker) from {lanes} lanes where lanes.worker > holders.id)
        from holders where holders.id is not null
    ), dead as materialized (
        select id from holders
        where id is not null
          and not exists (select from {workers} workers where workers.id = holders.id)
    ), freed as ({freed})
    select count(*) as freed from freed
";

const LEAVE: &str = "
    with freed as (
        update {lanes} set worker = null, ready_at = clock_timestamp() where worker = $1
    )
    delete from {workers} where id = $1
";

const LANES_OF: &str = "
    select lanes.lane, lanes.crashes, lanes.token, keys.last, keys.redriven,
        tidsend(lanes.ctid) as place, tidsend(keys.ctid) as of_key
    from {lanes} lanes join {keys} keys using (lane)
    where lanes.worker = $1
";

impl Postgres {
    pub(super) async fn rows<'q>(&self, query: Bound<'q>) -> Result<Vec<PgRow>, SqlError> {
        let mut connection = Lent::from(&self.pool).await?;
        let rows = query.fetch_all(connection.get()).await;
        connection.end(rows)
    }

    async fn execute<'q>(&self, query: Bound<'q>) -> Result<u64, SqlError> {
        let mut connection = Lent::from(&self.pool).await?;
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
        Some(super::listen::listen(
            self.pool.clone(),
            self.tables.channel(),
            wake,
        ))
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
