//! Elections in PostgreSQL: each call is one statement, and its own transaction. What a call
//! changes it announces in the same transaction.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane_connector::lock;
use keylane_leader::store::{
    CandidateId, Election, Entry, Recorded, TermRecord, after, decode, matters,
};
use keylane_leases::Token;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::fence::Recent;
use super::row::{ElectionRow, TermRow, chosen_in, damaged, number_of};
use super::waiters::{Turn, Waiters, Waits};
use crate::again::again;
use crate::connections::Connections;
use crate::error::SqlError;
use crate::history::OF_POSTGRES;
use crate::leases::{id_of, start_of};
use crate::link::Lent;
use crate::listening::listen;
use crate::literals::digits;
use crate::tables::{Quote, Tables};
use crate::times::micros;

/// Locks the row of the candidate first. It removes others that have run out, but waits for none.
const ENTER: &str = include_str!("sql/enter.sql");

const LOOK: &str = include_str!("sql/look.sql");

/// The rest of both: the state of the election.
const STATE: &str = include_str!("sql/state.sql");

const WITHDRAW: &str = include_str!("sql/withdraw.sql");

/// Returns the record that was there, also one that another transaction wrote while this one waited
/// for the row: `on conflict` sees it, and no other part of a statement does.
const RECORD: &str = include_str!("sql/record.sql");

const HISTORY: &str = include_str!("sql/history.sql");

/// A successor's record waits until the transaction has ended.
const FENCE: &str = include_str!("sql/fence.sql");

/// A copy made without its sequences would draw the tokens of earlier terms again. A standby has
/// the sequences of its primary.
const RAISE: &str = include_str!("sql/raise.sql");

/// How often a waiter looks by itself, as a multiple of how often the next candidate looks in
/// MySQL: while it hears what is announced, and while it does not.
const LOOKS: (u32, u32) = (100, 10);

pub(super) struct Elections {
    pub(super) connections: Connections<Postgres>,
    channel: String,
    texts: Texts,
    waiters: Arc<Waiters>,
    /// Begins with the first waiter.
    listens: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct Texts {
    enter: Arc<str>,
    look: Arc<str>,
    withdraw: Arc<str>,
    record: Arc<str>,
    history: Arc<str>,
    fence: Arc<str>,
    raise: Arc<str>,
}

impl Elections {
    pub(super) fn new(connections: Connections<Postgres>, tables: &Tables) -> Self {
        let text = |template: &str| {
            let template = template.replace("{here}", OF_POSTGRES);
            Arc::from(tables.statement(&template, Quote::Postgres))
        };
        Self {
            connections,
            channel: tables.election_channel(),
            texts: Texts {
                enter: text(&[ENTER, STATE].concat()),
                look: text(&[LOOK, STATE].concat()),
                withdraw: text(WITHDRAW),
                record: text(RECORD),
                history: text(HISTORY),
                fence: text(FENCE),
                raise: text(RAISE),
            },
            waiters: Arc::default(),
            listens: Mutex::default(),
        }
    }

    /// Raises the counter of tokens above those of all terms and leases.
    pub(super) async fn raise(&self) -> Result<(), SqlError> {
        let rows = self.rows(|| sqlx::query(sql(&self.texts.raise))).await;
        rows.map(drop)
    }

    pub(super) async fn enter(
        &self,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, SqlError> {
        let id = id_of(key);
        let rows = self.rows(|| {
            sqlx::query(sql(&self.texts.enter))
                .bind(id.clone())
                .bind(entry.id.as_str())
                .bind(i32::from(entry.rank))
                .bind(micros(ttl))
                .bind(&self.channel)
                .bind(digits(&id))
        });
        Ok(seen(&rows.await?)?.0)
    }

    pub(super) async fn look(&self, key: &Bytes) -> Result<Election, SqlError> {
        Ok(self.look_as(key, None).await?.0)
    }

    /// Returns the election, and which candidate is right before this one.
    async fn look_as(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
    ) -> Result<(Election, Option<String>), SqlError> {
        let rows = self.rows(|| {
            sqlx::query(sql(&self.texts.look))
                .bind(id_of(key))
                .bind(candidate.map(CandidateId::as_str))
        });
        seen(&rows.await?)
    }

    pub(super) async fn withdraw(
        &self,
        key: &Bytes,
        candidate: &CandidateId,
    ) -> Result<(), SqlError> {
        let id = id_of(key);
        let rows = self.rows(|| {
            sqlx::query(sql(&self.texts.withdraw))
                .bind(id.clone())
                .bind(candidate.as_str())
                .bind(&self.channel)
                .bind(digits(&id))
        });
        rows.await.map(drop)
    }

    pub(super) async fn record(
        &self,
        key: &Bytes,
        term: &TermRecord,
    ) -> Result<Recorded, SqlError> {
        let id = id_of(key);
        let token = i64::try_from(term.token.0);
        let token = token.map_err(|_| SqlError::other("no lease has a token above 2^63"))?;
        let (stage, chosen) = (number_of(term.stage), chosen_in(term));
        let rows = self.rows(|| {
            sqlx::query(sql(&self.texts.record))
                .bind(id.clone())
                .bind(start_of(key))
                .bind(token)
                .bind(term.leader.as_str())
                .bind(i16::from(stage))
                .bind(chosen)
                .bind(&self.channel)
                .bind(digits(&id))
        });
        let rows = rows.await?;
        let replaced: Option<&str> = rows.first().and_then(|row| row.get("replaced"));
        let replaced = replaced.map(|text| decode(text).ok_or_else(damaged));
        Ok(after(replaced.transpose()?.as_ref(), term))
    }

    pub(super) async fn history(&self) -> Result<String, SqlError> {
        let rows = self.rows(|| sqlx::query(sql(&self.texts.history))).await?;
        let here: Option<String> = rows.first().and_then(|row| row.get("here"));
        here.ok_or_else(|| SqlError::read_only("a standby has no history of its own"))
    }

    pub(super) async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
        poll: Duration,
    ) -> Result<(), SqlError> {
        // First it can be woken, then it looks, then it waits: it misses nothing.
        self.listen();
        let waiting = self.waiters.add(digits(id_of(key)));
        loop {
            waiting.waits(Waits::All);
            let (now, ahead) = self.look_as(key, candidate).await?;
            if matters(candidate, seen, &now) {
                return Ok(());
            }
            waiting.waits(waits(candidate, &now, ahead));
            let looks = match self.waiters.hears() {
                true => LOOKS.0,
                false => LOOKS.1,
            };
            let _ = timeout(poll.saturating_mul(looks), waiting.woken()).await;
        }
    }

    /// Listens, unless it does already, or shares sessions with other clients of a pooler: those
    /// would get what is announced.
    fn listen(&self) {
        if self.connections.shares_sessions() {
            return;
        }
        let mut listens = lock(&self.listens);
        // The runtime of an earlier caller may have ended.
        if listens.as_ref().is_none_or(|task| task.is_finished()) {
            let (pool, waiters) = (self.connections.pool.clone(), Arc::clone(&self.waiters));
            let task = listen(pool, self.channel.clone(), move |heard| {
                waiters.tell(heard);
            });
            *listens = Some(AbortOnDropHandle::new(task));
        }
    }

    /// Locks the row of the term until the end of the transaction.
    pub(super) async fn fence(
        &self,
        transaction: &mut PgConnection,
        key: &[u8],
    ) -> Result<Option<Recent>, SqlError> {
        let query = sqlx::query(sql(&self.texts.fence)).bind(id_of(key));
        let row = query.fetch_optional(transaction).await?;
        Ok(row.map(|row| Recent {
            token: Token(row.get::<i64, _>("token").unsigned_abs()),
            stage: stage_of(&row),
            history: row.get("history"),
            here: row.get("here"),
        }))
    }

    async fn rows<'q, F>(&self, query: F) -> Result<Vec<PgRow>, SqlError>
    where
        F: Fn() -> Query<'q>,
    {
        again(|| async {
            let mut lent = Lent::from(&self.connections).await?;
            let rows = query().fetch_all(lent.get()).await;
            lent.end(rows)
        })
        .await
    }
}

type Query<'q> = sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments>;

impl std::fmt::Debug for Elections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgreSQL")
    }
}

fn sql(text: &Arc<str>) -> AssertSqlSafe<Arc<str>> {
    AssertSqlSafe(Arc::clone(text))
}

/// Returns what wakes a waiter that has seen this.
fn waits(candidate: Option<&CandidateId>, now: &Election, ahead: Option<String>) -> Waits {
    let Some(candidate) = candidate else {
        return Waits::Terms;
    };
    let chosen = now.term.as_ref().and_then(chosen_in);
    Waits::Turn(Turn {
        candidate: candidate.as_str().to_owned(),
        is_chosen: ahead.is_some() && ahead.as_deref() == chosen,
        ahead,
    })
}

fn seen(rows: &[PgRow]) -> Result<(Election, Option<String>), SqlError> {
    let row = rows.first().ok_or_else(damaged)?;
    let number = |column| row.get::<Option<i64>, _>(column).map(i64::unsigned_abs);
    let term = number("token").map(|token| TermRow {
        token,
        leader: row.get("leader"),
        stage: stage_of(row),
        chosen: row.get("chosen"),
    });
    let election = ElectionRow {
        held: number("held"),
        remaining: row.get("remaining"),
        term,
        next: row.get("next"),
    };
    Ok((election.election()?, row.get("ahead")))
}

fn stage_of(row: &PgRow) -> u8 {
    u8::try_from(row.get::<i16, _>("stage")).unwrap_or(u8::MAX)
}
