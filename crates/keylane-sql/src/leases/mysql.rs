//! Leases in MySQL and MariaDB, in statements that both databases know.
//!
//! A call goes to the server at once, as one text of several statements: prepared, each statement
//! would take two round trips. All values in the text are numbers, or bytes in hexadecimal. Each
//! text begins its transaction and commits it, because the connections of a user's pool may not
//! commit by themselves.

use std::collections::HashMap;

use keylane_leases::store::{Answer, Claim, Holder, Owner, Token, Wish};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySql, Row};

use super::row::{id_of, in_order, lasts, start_of, taken};
use crate::connections::Connections;
use crate::error::SqlError;
use crate::link::Lent;
use crate::literals::{hex, joined};
use crate::tables::{Quote, Tables};
use crate::times::micros;

pub(super) struct Leases {
    connections: Connections<MySql>,
    tables: Tables,
}

impl Leases {
    pub(super) fn new(connections: Connections<MySql>, tables: &Tables) -> Self {
        Self {
            connections,
            tables: tables.clone(),
        }
    }

    pub(super) async fn acquire(
        &self,
        owner: &Owner,
        wishes: &[Wish],
    ) -> Result<Vec<Answer>, SqlError> {
        let sorted = in_order(wishes, |wish| id_of(&wish.key));
        let (count, holder) = (sorted.len(), hex(owner.as_str()));
        let free = sorted.iter().map(|(id, wish)| {
            let (id, start) = (hex(id), hex(start_of(&wish.key)));
            format!("({id}, {start}, '', 0, '1970-01-01')")
        });
        let wished = sorted.iter().enumerate().map(|(at, (id, wish))| {
            let (id, place, ttl) = (hex(id), at + 1, micros(wish.ttl));
            format!("select {id} as id, {place} as place, {ttl} as ttl")
        });
        // A lease that has ended leaves nothing behind: the clock may have gone back since.
        let ends = "utc_timestamp(6) + interval wish.ttl microsecond";
        // First the rows are locked, then tokens are drawn: the tokens of a key grow in the order
        // of its grants.
        let text = format!(
            "start transaction;
             insert into {{leases}} (id, key_start, owner, token, runs_out) values {}
             on duplicate key update id = values(id);
             update {{counters}} set value = last_insert_id(value + {count}) where name = 'tokens';
             set @keylane_token = last_insert_id() - {count};
             update {{leases}} leases join ({}) wish on wish.id = leases.id
             set leases.token = @keylane_token + wish.place,
                leases.runs_out = if(
                    leases.owner = {holder}, greatest(leases.runs_out, {ends}), {ends}
                ),
                leases.owner = {holder}
             where leases.owner in ({holder}, '') or leases.runs_out <= utc_timestamp(6);
             select id, token, owner = {holder} as is_ours,
                timestampdiff(microsecond, utc_timestamp(6), runs_out) as remaining
             from {{leases}} where id in ({});
             commit",
            joined(free),
            Vec::from_iter(wished).join(" union all "),
            joined(sorted.iter().map(|(id, _)| hex(id))),
        );
        let rows = self.rows(&text).await?;
        let answers = wishes.iter().map(|wish| match rows.get(&id_of(&wish.key)) {
            Some(row) if row.get("is_ours") => Answer::Granted(Token(row.get("token"))),
            row => taken(row.map(|row| row.get("remaining")), wish),
        });
        Ok(answers.collect())
    }

    pub(super) async fn renew(
        &self,
        owner: &Owner,
        claims: &[Claim],
    ) -> Result<Vec<bool>, SqlError> {
        let (owner, sorted) = (
            hex(owner.as_str()),
            in_order(claims, |claim| id_of(&claim.key)),
        );
        let text = format!(
            "start transaction;
             update {{leases}} leases join ({}) claim on claim.id = leases.id
             set leases.runs_out = utc_timestamp(6) + interval claim.ttl microsecond
             where leases.owner = {owner} and leases.token = claim.token;
             select id, token from {{leases}} where owner = {owner} and id in ({});
             commit",
            claimed(&sorted),
            joined(sorted.iter().map(|(id, _)| hex(id))),
        );
        let rows = self.rows(&text).await?;
        let is_held = |claim: &Claim| {
            let row = rows.get(&id_of(&claim.key));
            row.is_some_and(|row| row.get::<u64, _>("token") == claim.token.0)
        };
        Ok(claims.iter().map(is_held).collect())
    }

    pub(super) async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), SqlError> {
        let (owner, sorted) = (
            hex(owner.as_str()),
            in_order(claims, |claim| id_of(&claim.key)),
        );
        let text = format!(
            "start transaction;
             update {{leases}} leases join ({}) claim on claim.id = leases.id
             set leases.owner = '', leases.runs_out = utc_timestamp(6)
             where leases.owner = {owner} and leases.token = claim.token;
             commit",
            claimed(&sorted),
        );
        self.rows(&text).await.map(drop)
    }

    pub(super) async fn held_by(&self, key: &[u8]) -> Result<Option<Holder>, SqlError> {
        let text = format!(
            "start transaction;
             select id, owner, token,
                timestampdiff(microsecond, utc_timestamp(6), runs_out) as remaining
             from {{leases}}
             where id = {} and owner <> '' and runs_out > utc_timestamp(6);
             commit",
            hex(id_of(key)),
        );
        let rows = self.rows(&text).await?;
        Ok(rows.values().next().map(|row| {
            let remaining = Some(lasts(row.get("remaining")));
            let (owner, token) = (row.get::<String, _>("owner"), row.get("token"));
            Holder::new(owner, Token(token), remaining)
        }))
    }

    pub(super) async fn remove_old(&self) -> Result<u64, SqlError> {
        let delete = "start transaction;
            delete from {leases} where runs_out < utc_timestamp(6) - interval 1 day
            order by id limit 1000;
            commit";
        let mut removed = 0;
        loop {
            let mut connection = Lent::from(&self.connections).await?;
            let deleted = sqlx::raw_sql(self.text(delete));
            let deleted = deleted.execute(connection.get()).await;
            let rows = connection.end_or_close(deleted)?.rows_affected();
            removed += rows;
            if rows == 0 {
                return Ok(removed);
            }
        }
    }

    /// Returns the rows of the answers by their ids.
    async fn rows(&self, text: &str) -> Result<HashMap<Vec<u8>, MySqlRow>, SqlError> {
        let mut connection = Lent::from(&self.connections).await?;
        let rows = sqlx::raw_sql(self.text(text))
            .fetch_all(connection.get())
            .await;
        // After an error the connection may be in the middle of the transaction.
        let rows = connection.end_or_close(rows)?;
        Ok(rows.into_iter().map(|row| (row.get("id"), row)).collect())
    }

    fn text(&self, template: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.tables.statement(template, Quote::MySql))
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MySQL")
    }
}

/// Returns a table of claims, in the order of their ids.
fn claimed(sorted: &[(Vec<u8>, &Claim)]) -> String {
    let rows = sorted.iter().map(|(id, claim)| {
        let (id, token, ttl) = (hex(id), claim.token, micros(claim.ttl));
        format!("select {id} as id, {token} as token, {ttl} as ttl")
    });
    Vec::from_iter(rows).join(" union all ")
}
