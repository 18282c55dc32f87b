//! The calls of the store and of the source, except accepts and turns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keylane_inbox::{Accepted, Letter, LetterKind, Stats, StoredMessage};
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::script::Script;
use super::{BEGIN, MESSAGE, MOST, MySql, message_of, millis};
use crate::error::SqlError;
use crate::inbox::backend::{Backend, Dead};
use crate::inbox::backlog::{Backlog, LOOKED_AT};
use crate::inbox::lane::LaneId;
use crate::inbox::nonce;
use crate::inbox::record::Items;
use crate::inbox::turn::{Answer, Claimed, Found, MessageRef, RoundTrip, WorkerState};
use crate::link::Lent;
use crate::literals::{hex, joined, table};
use crate::times::{self, micros};

/// The columns that a letter keeps of its message.
const KEPT: &str =
    "sequence, lane, `key`, payload, payload_bytes, id, version, headers, accepted_at";

impl MySql {
    /// Runs statements that are one transaction, or one statement. Returns the rows of all results.
    pub(super) async fn rows<T: AsRef<str>>(
        &self,
        statements: impl IntoIterator<Item = T>,
    ) -> Result<Vec<MySqlRow>, SqlError> {
        let statements = Vec::from_iter(statements);
        let mut connection = Lent::from(&self.connections).await?;
        let rows = async {
            let mut script = Script::new(connection.get(), &self.tables);
            for statement in &statements {
                script.add(statement.as_ref()).await?;
            }
            script.run().await
        };
        let rows = rows.await;
        connection.end_or_close(rows)
    }

    /// Returns the next number of `messages`, which the server never reports out of date.
    async fn next_sequence(&self) -> Result<u64, SqlError> {
        let rows = self.rows(["show create table {messages}"]).await?;
        let text: &str = rows.first().ok_or_else(|| SqlError::damaged(0))?.get(1);
        let next = text.rsplit_once(" AUTO_INCREMENT=").map(|(_, next)| {
            let end = next.find(|c: char| !c.is_ascii_digit());
            next[..end.unwrap_or(next.len())].parse()
        });
        // The server does not show it before the first row.
        next.unwrap_or(Ok(1)).map_err(|_| SqlError::damaged(0))
    }

    /// Returns how many messages the planner expects. What the server lists may be a day old.
    async fn estimated(&self) -> Result<u64, SqlError> {
        let explain = "explain format=traditional select 1 from {messages}";
        let rows = self.rows([explain]).await?;
        let row = rows.first().ok_or_else(|| SqlError::damaged(0))?;
        // With or without a sign, as the server likes.
        Ok(row.try_get_unchecked("rows").unwrap_or_default())
    }
}

#[async_trait]
impl Backend for MySql {
    async fn accept(&self, items: &Items<'_>) -> Result<Vec<Accepted>, SqlError> {
        self.accept_all(items).await
    }

    async fn scan(
        &self,
        from: u64,
        count: u64,
        bytes: u64,
    ) -> Result<Vec<StoredMessage>, SqlError> {
        // A page by a running total of the bytes before each row.
        let select = format!(
            "select {MESSAGE} from (
                select sequence, sum(bytes) over (order by sequence) - bytes as so_far from (
                    select sequence, payload_bytes + octet_length(`key`) + 30 as bytes
                    from {{messages}} where sequence >= {from} order by sequence limit {count}
                ) page
             ) sized straight_join {{messages}} messages force index (primary)
                on messages.sequence = sized.sequence
             where so_far < {bytes} or so_far = 0
             order by messages.sequence"
        );
        let rows = self.rows([select]).await?;
        rows.iter().map(message_of).collect()
    }

    async fn read(&self, sequences: &[u64]) -> Result<HashMap<u64, StoredMessage>, SqlError> {
        let select = |sequences: &[u64]| {
            let sequences = joined(sequences);
            format!(
                "select {MESSAGE} from {{messages}} messages force index (primary)
                 where sequence in ({sequences})"
            )
        };
        let rows = self.rows(sequences.chunks(MOST).map(select)).await?;
        let messages = rows.iter().map(|row| {
            let message = message_of(row)?;
            Ok((message.sequence, message))
        });
        messages.collect()
    }

    async fn settle(&self, done: &[u64], dead: &[Dead]) -> Result<(), SqlError> {
        if done.is_empty() && dead.is_empty() {
            return Ok(());
        }
        let mut statements = vec![BEGIN.to_owned()];
        for done in done.chunks(MOST) {
            let delete = "delete messages from {messages} messages force index (primary)
                where messages.sequence in";
            statements.push(format!("{delete} ({})", joined(done)));
        }
        statements.extend(dead.chunks(MOST).map(bury));
        statements.push("commit".to_owned());
        self.rows(statements).await.map(drop)
    }

    async fn letters(&self, after: u64, limit: u64) -> Result<Vec<Letter>, SqlError> {
        let select = format!(
            "select {MESSAGE}, attempts, kind, error,
                timestampdiff(microsecond, '1970-01-01', dead_lettered_at) as dead_lettered_at_us
             from {{letters}} messages where sequence > {after} order by sequence limit {limit}"
        );
        let rows = self.rows([select]).await?;
        rows.iter().map(letter_of).collect()
    }

    async fn redrive(&self, sequences: &[u64]) -> Result<BTreeSet<u64>, SqlError> {
        // The keys are locked, as by producers; a worker that has a lane sees `redriven` change.
        self.with_letters(sequences, |sequences| {
            let lanes =
                format!("select distinct lane from {{letters}} where sequence in ({sequences})");
            format!(
                "insert into {{keys}} (lane, last, redriven)
                 select lane, 1, 1 from ({lanes}) redriven order by lane
                 on duplicate key update last = last + 1, redriven = redriven + 1;
                 insert into {{lanes}} (lane, ready_at)
                 select `keys`.lane, utc_timestamp(6)
                 from ({lanes}) redriven straight_join {{keys}} `keys` force index (primary)
                    on `keys`.lane = redriven.lane and `keys`.last = 1;
                 insert into {{messages}} ({KEPT})
                 select {KEPT} from {{letters}} where sequence in ({sequences})"
            )
        })
        .await
    }

    async fn purge_letters(&self, sequences: &[u64]) -> Result<BTreeSet<u64>, SqlError> {
        self.with_letters(sequences, |_| String::new()).await
    }

    async fn version(&self, key: &[u8]) -> Result<Option<u64>, SqlError> {
        let lane = hex(LaneId::of(key));
        let select = format!("select version from {{versions}} where lane = {lane}");
        let rows = self.rows([select]).await?;
        Ok(rows.first().map(|row| row.get("version")))
    }

    async fn record_version(&self, key: &[u8], version: u64) -> Result<(), SqlError> {
        let lane = hex(LaneId::of(key));
        let insert = format!(
            "insert into {{versions}} (lane, version) values ({lane}, {version})
             on duplicate key update version = greatest(version, values(version))"
        );
        self.rows([BEGIN, &insert, "commit"]).await.map(drop)
    }

    async fn tail(&self) -> Result<u64, SqlError> {
        Ok(self.next_sequence().await? - 1)
    }

    async fn stats(&self) -> Result<Stats, SqlError> {
        let schema = self.tables.listed_schema().map(hex);
        let listed = ["messages", "letters", "keys", "lanes", "known", "versions"];
        let select = format!(
            "select
                (select count(*) from {{messages}}) as waiting,
                (select coalesce(sum(payload_bytes + octet_length(`key`)
                    + coalesce(octet_length(id), 0) + coalesce(octet_length(headers), 0) + 30), 0)
                    from {{messages}}) as waiting_bytes,
                (select min(sequence) from {{messages}}) as oldest,
                (select count(*) from {{letters}}) as letters,
                (select coalesce(sum(payload_bytes + octet_length(`key`)
                    + coalesce(octet_length(id), 0) + coalesce(octet_length(headers), 0)
                    + octet_length(error) + 50), 0) from {{letters}}) as letters_bytes,
                (select count(*) from {{known}}) as known,
                (select count(*) from {{versions}}) as versions,
                (select coalesce(sum(data_length + index_length), 0)
                    from information_schema.tables
                    where table_schema = {} and table_name in ({})) as file_bytes",
            schema.as_deref().unwrap_or("database()"),
            joined(listed.map(|table| hex(self.tables.listed(table)))),
        );
        // The server sends the numbers as decimals, or as integers with or without a sign.
        let parts = [
            "waiting",
            "waiting_bytes",
            "oldest",
            "letters",
            "letters_bytes",
            "known",
            "versions",
            "file_bytes",
        ];
        let columns = parts.map(|part| format!("cast({part} as unsigned) as {part}"));
        let select = format!("select {} from ({select}) stats", joined(columns));
        let rows = self.rows([select]).await?;
        let row = rows.first().ok_or_else(|| SqlError::damaged(0))?;
        let mut stats = Stats::default();
        stats.waiting = row.get("waiting");
        stats.waiting_bytes = row.get("waiting_bytes");
        stats.oldest = row.get("oldest");
        stats.letters = row.get("letters");
        stats.letters_bytes = row.get("letters_bytes");
        stats.known = row.get("known");
        stats.versions = row.get("versions");
        stats.file_bytes = row.get("file_bytes");
        stats.tail = self.tail().await?;
        Ok(stats)
    }

    async fn backlog(&self) -> Result<Backlog, SqlError> {
        let counted = |table: &str| {
            format!(
                "select count(*) from (
                    select 1 from {{{table}}} order by sequence limit {LOOKED_AT}
                 ) counted"
            )
        };
        // The server sends the numbers as decimals, or as integers with or without a sign.
        let select = format!(
            "select cast(({}) as unsigned) as waiting, cast(({}) as unsigned) as letters,
                cast(greatest(0, coalesce((
                    select timestampdiff(microsecond, accepted_at, utc_timestamp(6))
                    from {{messages}} order by sequence limit 1
                ), 0)) as unsigned) as age",
            counted("messages"),
            counted("letters"),
        );
        let rows = self.rows([select]).await?;
        let row = rows.first().ok_or_else(|| SqlError::damaged(0))?;
        let mut backlog = Backlog {
            counted: row.get("waiting"),
            estimated: 0,
            letters: row.get("letters"),
            oldest: Duration::from_micros(row.get("age")),
        };
        if backlog.counted >= LOOKED_AT {
            backlog.estimated = self.estimated().await?;
        }
        Ok(backlog)
    }

    async fn forget(&self, older: Duration, most: u64) -> Result<u64, SqlError> {
        // Marks that a transaction of the user's has just repeated stay until the next time.
        let delete = format!(
            "delete known from (
                select mark from {{known}} force index (seen) where seen_at < utc_timestamp(6) - interval {} microsecond
                order by seen_at limit {most} for update skip locked
             ) old straight_join {{known}} known force index (primary) on known.mark = old.mark",
            micros(older),
        );
        self.changed([BEGIN, &delete, CHANGED, "commit"]).await
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
        let insert = format!(
            "insert into {{workers}} (id, name, runs_out, history)
             values ({worker}, {}, utc_timestamp(6) + interval {} microsecond, {})",
            hex(name),
            micros(ttl),
            self.history.here(),
        );
        self.rows([BEGIN, &insert, "commit"]).await?;
        Ok(worker)
    }

    async fn renew(&self, worker: u64, ttl: Duration, heard: u64) -> Result<WorkerState, SqlError> {
        let update = format!(
            "update {{workers}} set runs_out = utc_timestamp(6) + interval {} microsecond,
                renewals = renewals + 1
             where id = {worker} and runs_out > utc_timestamp(6) and history = {}
                and renewals >= {heard}",
            micros(ttl),
            self.history.here(),
        );
        match self.changed([BEGIN, &update, CHANGED, "commit"]).await? {
            0 => self.standing(worker).await,
            _ => Ok(WorkerState::Alive),
        }
    }

    async fn free_dead(&self, most: u32) -> Result<u64, SqlError> {
        let free = format!(
            "update (
                select lanes.lane from {{workers}} workers
                straight_join {{lanes}} lanes force index (of_worker)
                    on lanes.worker = workers.id
                where workers.runs_out <= utc_timestamp(6)
                limit {most} for update skip locked
             ) dead straight_join {{lanes}} lanes force index (primary) on lanes.lane = dead.lane
             set lanes.worker = 0, lanes.ready_at = utc_timestamp(6),
                lanes.crashes = least(lanes.crashes + 1, 1000)"
        );
        // Runs in a transaction of its own: a turn locks its worker before its lanes. The statement
        // waits for a turn that has locked the worker, and sees the lanes that it claimed.
        let delete = "delete from {workers} where runs_out <= utc_timestamp(6)
            and not exists (select 1 from {lanes} lanes force index (of_worker)
                where lanes.worker = {workers}.id)";
        self.changed([BEGIN, &free, CHANGED, "commit", BEGIN, delete, "commit"])
            .await
    }

    async fn leave(&self, worker: u64) -> Result<(), SqlError> {
        // The worker goes first: a claim for it comes before, or finds no worker.
        let delete = format!("delete from {{workers}} where id = {worker}");
        let free = format!(
            "update {{lanes}} force index (of_worker)
             set worker = 0, ready_at = utc_timestamp(6) where worker = {worker}"
        );
        self.rows([BEGIN, &delete, &free, "commit"]).await.map(drop)
    }

    async fn lanes_of(&self, worker: u64) -> Result<Vec<Found>, SqlError> {
        let select = format!(
            "select lanes.lane, lanes.token, lanes.crashes, `keys`.last, `keys`.redriven
             from {{lanes}} lanes force index (of_worker)
             straight_join {{keys}} `keys` force index (primary) on `keys`.lane = lanes.lane
             where lanes.worker = {worker}"
        );
        let rows = self.rows([select]).await?;
        Ok(rows.iter().map(super::turn::found_of).collect())
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
        let (lane, token) = (hex(claimed.lane), claimed.token);
        let MessageRef { sequence, nonce } = message;
        let ours = format!(
            "lanes.lane = {lane} and lanes.token = {token} and lanes.worker = {worker}
             and not exists (select 1 from {{workers}} where id = {worker} and history <> {})",
            self.history.here(),
        );
        // If another transaction has locked the whole table of letters, this waits before it has
        // locked any row. The lane stays ours until the commit.
        let lock = format!(
            "select 0 as is_ours from {{letters}} where false for update;
             select 1 as is_ours from {{lanes}} lanes where {ours} lock in share mode;
             select 0 as is_ours from {{messages}} where sequence = {sequence} for update"
        );
        let from = format!(
            "from {{lanes}} lanes straight_join {{messages}} messages force index (primary)
                on messages.lane = lanes.lane and messages.sequence = {sequence}
                and messages.nonce = {nonce}
             where {ours}"
        );
        let messages = joined(KEPT.split(", ").map(|column| format!("messages.{column}")));
        let insert = format!(
            "insert into {{letters}} ({KEPT}, attempts, kind, error, dead_lettered_at)
             select {messages}, {}, {}, {}, utc_timestamp(6) {from}",
            dead.attempts,
            dead.kind.code(),
            hex(Letter::cut_error(&dead.error)),
        );
        let delete = format!("delete messages {from}");
        let rows = self
            .rows([BEGIN, &lock, &insert, &delete, "commit"])
            .await?;
        Ok(rows.iter().any(|row| row.get::<i64, _>("is_ours") == 1))
    }

    fn listen(&self, _: Arc<Notify>) -> Option<JoinHandle<()>> {
        None
    }
}

/// How many rows the previous statement has changed, or found correct already.
const CHANGED: &str = "select row_count() as changed";

impl MySql {
    /// Runs statements, one of which is [`CHANGED`].
    async fn changed<const N: usize>(&self, statements: [&str; N]) -> Result<u64, SqlError> {
        let rows = self.rows(statements).await?;
        let row = rows.first().ok_or_else(|| SqlError::damaged(0))?;
        Ok(row.get::<i64, _>("changed").unsigned_abs())
    }

    /// Locks letters, runs statements on them, and removes them. Returns the letters that existed.
    async fn with_letters(
        &self,
        sequences: &[u64],
        statements: impl Fn(&str) -> String,
    ) -> Result<BTreeSet<u64>, SqlError> {
        if sequences.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut all = vec![BEGIN.to_owned()];
        let sorted = Vec::from_iter(BTreeSet::from_iter(sequences));
        for part in sorted.chunks(MOST) {
            let part = joined(part);
            all.push(format!(
                "select sequence from {{letters}} force index (primary)
                 where sequence in ({part}) for update"
            ));
            all.push(statements(&part));
            all.push(format!(
                "delete letters from {{letters}} letters force index (primary)
                 where letters.sequence in ({part})"
            ));
        }
        all.push("commit".to_owned());
        let rows = self.rows(all).await?;
        Ok(rows.iter().map(|row| row.get("sequence")).collect())
    }
}

/// Turns messages into letters. Locks them first: another process may be about to do the same.
fn bury(dead: &[Dead]) -> String {
    let sequences = joined(dead.iter().map(|dead| dead.sequence));
    let rows = dead.iter().map(|dead| {
        let error = hex(Letter::cut_error(&dead.error));
        let (sequence, attempts, kind) = (dead.sequence, dead.attempts, dead.kind.code());
        format!(
            "select {sequence} as of_message, {attempts} as tried, {kind} as kind, {error} as error"
        )
    });
    format!(
        "select sequence from {{messages}} force index (primary)
         where sequence in ({sequences}) for update;
         insert into {{letters}} ({KEPT}, attempts, kind, error, dead_lettered_at)
         select {KEPT}, dead.tried, dead.kind, dead.error, utc_timestamp(6)
         from ({}) dead straight_join {{messages}} messages force index (primary)
            on messages.sequence = dead.of_message;
         delete messages from {{messages}} messages force index (primary)
         where messages.sequence in ({sequences})",
        table(rows),
    )
}

fn letter_of(row: &MySqlRow) -> Result<Letter, SqlError> {
    let message = message_of(row)?;
    let damaged = || SqlError::damaged(message.sequence);
    let kind = LetterKind::from_code(row.get("kind"));
    let error = String::from_utf8(row.get("error")).map_err(|_| damaged())?;
    let at = times::from_millis(millis(row, "dead_lettered_at_us"));
    Ok(Letter::new(message, row.get("attempts"), kind, error, at))
}
