//! Elections in MySQL and MariaDB, in statements that both databases know: each call goes to the
//! server at once, as one text of several statements, like those of leases.

use std::time::Duration;

use bytes::Bytes;
use keylane_leader::store::{
    CandidateId, Election, Entry, Recorded, Stage, TermRecord, after, matters,
};
use keylane_leases::Token;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row};
use tokio::time::sleep;

use super::fence::Recent;
use super::row::{ElectionRow, TermRow, chosen_in, damaged, number_of};
use crate::again::again;
use crate::connections::Connections;
use crate::error::SqlError;
use crate::history::History;
use crate::leases::{id_of, start_of};
use crate::link::Lent;
use crate::literals::hex;
use crate::tables::{Quote, Tables};
use crate::times::micros;

/// Each statement sees all earlier commits, and no missing row is locked.
const BEGIN: &str = "set transaction isolation level read committed; start transaction";

/// The names of servers may be longer than the longest name of a history.
const LONGEST_HISTORY: usize = 100;

/// How many times less often the others look than the next candidate.
const RARELY: u32 = 20;

pub(super) struct Elections {
    pub(super) connections: Connections<MySql>,
    tables: Tables,
    /// The history of the server, an expression.
    here: String,
}

impl Elections {
    pub(super) async fn open(
        connections: Connections<MySql>,
        tables: &Tables,
    ) -> Result<Self, SqlError> {
        let history = History::of(&connections).await?;
        let here = history.here();
        Ok(Self {
            connections,
            tables: tables.clone(),
            here: format!("if(char_length({here}) > {LONGEST_HISTORY}, sha2({here}, 256), {here})"),
        })
    }

    pub(super) async fn enter(
        &self,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, SqlError> {
        let (id, ttl) = (hex(id_of(key)), micros(ttl));
        let (candidate, rank) = (hex(entry.id.as_str()), entry.rank);
        // Only the row of the candidate is locked. One that has run out loses its place.
        let text = format!(
            "{BEGIN};
             delete from {{candidates}}
             where id = {id} and candidate = {candidate} and runs_out <= utc_timestamp(6);
             insert into {{candidates}} (id, candidate, `rank`, runs_out)
             values ({id}, {candidate}, {rank}, utc_timestamp(6) + interval {ttl} microsecond)
             on duplicate key update runs_out = values(runs_out);
             {};
             commit",
            state(&id),
        );
        let rows = self.rows(&text).await?;
        let row = rows.first().ok_or_else(damaged)?;
        if row.get::<i64, _>("old") > 0 {
            // It has entered all the same. What stays is not seen, and is removed with a later
            // call.
            let _ = self.remove_old(&id).await;
        }
        seen(row)
    }

    /// Removes the candidates that have run out, in a transaction of its own: one that holds the
    /// row of a candidate must not wait for others.
    async fn remove_old(&self, id: &str) -> Result<(), SqlError> {
        let text = format!(
            "{BEGIN};
             delete from {{candidates}} where id = {id} and runs_out <= utc_timestamp(6)
             order by candidate;
             commit"
        );
        self.rows(&text).await.map(drop)
    }

    pub(super) async fn look(&self, key: &Bytes) -> Result<Election, SqlError> {
        let rows = self.rows(&state(&hex(id_of(key)))).await?;
        seen(rows.first().ok_or_else(damaged)?)
    }

    pub(super) async fn withdraw(
        &self,
        key: &Bytes,
        candidate: &CandidateId,
    ) -> Result<(), SqlError> {
        let (id, candidate) = (hex(id_of(key)), hex(candidate.as_str()));
        let text = format!(
            "{BEGIN};
             delete from {{candidates}} where id = {id} and candidate = {candidate};
             commit"
        );
        self.rows(&text).await.map(drop)
    }

    pub(super) async fn record(
        &self,
        key: &Bytes,
        term: &TermRecord,
    ) -> Result<Recorded, SqlError> {
        let (id, start, here) = (hex(id_of(key)), hex(start_of(key)), &self.here);
        let (stage, chosen) = (number_of(term.stage), chosen_in(term));
        let chosen = chosen.map_or("null".to_owned(), hex);
        let (token, leader) = (term.token, hex(term.leader.as_str()));
        let freed = match term.stage {
            Stage::Ended => freed(&id, term.token),
            Stage::Began | Stage::Leaving => String::new(),
        };
        // The row of the term is locked first, then that of the candidate, then that of the lease.
        let text = format!(
            "{BEGIN};
             insert into {{terms}} (id, key_start, token, leader, stage, history)
             values ({id}, {start}, 0, '', 0, '') on duplicate key update id = values(id);
             select token, leader, stage, chosen from {{terms}} where id = {id};
             update {{terms}}
             set token = {token}, leader = {leader}, stage = {stage}, chosen = {chosen},
                history = {here}
             where id = {id} and (token < {token} or token = {token} and stage <= {stage});
             delete from {{candidates}} where id = {id} and candidate = {leader} and exists (
                select 1 from {{terms}} where id = {id} and token = {token} and stage = {stage}
             );
             {freed}
             commit"
        );
        let rows = self.rows(&text).await?;
        let was = term_of(rows.first().ok_or_else(damaged)?);
        Ok(after(was.map(TermRow::term).transpose()?.as_ref(), term))
    }

    pub(super) async fn history(&self) -> Result<String, SqlError> {
        let rows = self.rows(&format!("select {} as here", self.here)).await?;
        Ok(rows.first().ok_or_else(damaged)?.get("here"))
    }

    /// Nothing announces a change: it looks.
    pub(super) async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
        poll: Duration,
    ) -> Result<(), SqlError> {
        loop {
            let now = self.look(key).await?;
            if matters(candidate, seen, &now) {
                return Ok(());
            }
            let is_next = candidate.is_some() && now.next.as_ref() == candidate;
            sleep(if is_next {
                poll
            } else {
                poll.saturating_mul(RARELY)
            })
            .await;
        }
    }

    /// Locks the row of the term until the end of the transaction.
    pub(super) async fn fence(
        &self,
        transaction: &mut MySqlConnection,
        key: &[u8],
    ) -> Result<Option<Recent>, SqlError> {
        let text = format!(
            "select token, stage, history, {} as here from {{terms}}
             where id = {} and leader <> '' lock in share mode",
            self.here,
            hex(id_of(key)),
        );
        let rows = sqlx::raw_sql(self.text(&text)).fetch_all(transaction);
        Ok(rows.await?.first().map(|row| Recent {
            token: Token(row.get("token")),
            stage: row.get("stage"),
            history: row.get("history"),
            here: row.get("here"),
        }))
    }

    /// Returns the rows of the answers.
    async fn rows(&self, text: &str) -> Result<Vec<MySqlRow>, SqlError> {
        again(|| async {
            let mut lent = Lent::from(&self.connections).await?;
            let rows = sqlx::raw_sql(self.text(text)).fetch_all(lent.get()).await;
            // After an error the connection may be in the middle of the transaction.
            lent.end_or_close(rows)
        })
        .await
    }

    fn text(&self, template: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.tables.statement(template, Quote::MySql))
    }
}

impl std::fmt::Debug for Elections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MySQL")
    }
}

/// Returns the statement that releases the lease of a term if its end is recorded.
fn freed(id: &str, token: Token) -> String {
    let ended = number_of(Stage::Ended);
    format!(
        "update {{leases}} set owner = '', runs_out = utc_timestamp(6)
         where id = {id} and token = {token} and owner <> '' and exists (
            select 1 from {{terms}} where id = {id} and token = {token} and stage = {ended}
         );"
    )
}

/// Returns the statement that reads an election, all of it at one moment.
fn state(id: &str) -> String {
    format!(
        "select leases.token as held,
            timestampdiff(microsecond, utc_timestamp(6), leases.runs_out) as remaining,
            terms.token, terms.leader, terms.stage, terms.chosen,
            (
                select candidate from {{candidates}}
                where id = {id} and runs_out > utc_timestamp(6)
                order by coalesce(candidate = terms.chosen, 0) desc, `rank`, place limit 1
            ) as next,
            (
                select count(*) from {{candidates}}
                where id = {id} and runs_out <= utc_timestamp(6)
            ) as old
         from (select 1) one
         left join {{leases}} leases
            on leases.id = {id} and leases.owner <> '' and leases.runs_out > utc_timestamp(6)
         left join {{terms}} terms on terms.id = {id} and terms.leader <> ''"
    )
}

fn seen(row: &MySqlRow) -> Result<Election, SqlError> {
    let election = ElectionRow {
        held: row.get("held"),
        remaining: row.get("remaining"),
        term: term_of(row),
        next: row.get("next"),
    };
    election.election()
}

/// Returns the term of a row. Without a leader there was none.
fn term_of(row: &MySqlRow) -> Option<TermRow> {
    let leader: Option<String> = row.get("leader");
    let leader = leader.filter(|leader| !leader.is_empty())?;
    Some(TermRow {
        token: row.get("token"),
        leader,
        stage: row.get("stage"),
        chosen: row.get("chosen"),
    })
}
