//! Leases in PostgreSQL: each call is one statement, and its own transaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use keylane_leases::store::{Answer, Claim, Holder, Owner, Token, Wish};
use sqlx::{AssertSqlSafe, Postgres, Row};

use super::row::{id_of, lasts, start_of, taken};
use crate::connections::Connections;
use crate::error::SqlError;
use crate::link::Lent;
use crate::tables::{Quote, Tables};
use crate::times::micros;

/// `do update` draws a token when the row is locked. `not exists` avoids the lock on rows of other
/// owners; `where` checks what changes between that test and the lock.
const ACQUIRE: &str = include_str!("sql/acquire.sql");

const RENEW: &str = include_str!("sql/renew.sql");

const RELEASE: &str = include_str!("sql/release.sql");

const HELD_BY: &str = include_str!("sql/held_by.sql");

/// Starts at an id. Returns the last id that it reached, and how many rows it removed.
const REMOVE_OLD: &str = include_str!("sql/remove_old.sql");

pub(super) struct Leases {
    connections: Connections<Postgres>,
    acquire: Arc<str>,
    renew: Arc<str>,
    release: Arc<str>,
    held_by: Arc<str>,
    remove_old: Arc<str>,
}

impl Leases {
    pub(super) fn new(connections: Connections<Postgres>, tables: &Tables) -> Self {
        let text = |template| Arc::from(tables.statement(template, Quote::Postgres));
        Self {
            connections,
            acquire: text(ACQUIRE),
            renew: text(RENEW),
            release: text(RELEASE),
            held_by: text(HELD_BY),
            remove_old: text(REMOVE_OLD),
        }
    }

    /// Announces each lease that is released, in the same statement.
    pub(super) fn announcing(connections: Connections<Postgres>, tables: &Tables) -> Self {
        let (release, channel) = (RELEASE.trim_end(), tables.election_channel());
        let release = format!(
            "with released as ({release} returning leases.id)
             select pg_notify('{channel}', encode(id, 'hex') || '/free') from released"
        );
        Self {
            release: Arc::from(tables.statement(&release, Quote::Postgres)),
            ..Self::new(connections, tables)
        }
    }

    pub(super) async fn acquire(
        &self,
        owner: &Owner,
        wishes: &[Wish],
    ) -> Result<Vec<Answer>, SqlError> {
        let ids: Vec<Vec<u8>> = wishes.iter().map(|wish| id_of(&wish.key)).collect();
        let starts: Vec<Vec<u8>> = wishes.iter().map(|wish| start_of(&wish.key)).collect();
        let ttls: Vec<i64> = wishes.iter().map(|wish| micros(wish.ttl)).collect();
        let mut connection = Lent::from(&self.connections).await?;
        let rows = sqlx::query(AssertSqlSafe(Arc::clone(&self.acquire)))
            .bind(owner.as_str())
            .bind(&ids)
            .bind(starts)
            .bind(ttls)
            .fetch_all(connection.get())
            .await;
        let mut answers = HashMap::with_capacity(wishes.len());
        for row in connection.end(rows)? {
            let token: Option<i64> = row.get("token");
            let remaining: Option<i64> = row.get("remaining");
            answers.insert(row.get::<Vec<u8>, _>("id"), (token, remaining));
        }
        let answers = ids.iter().zip(wishes).map(|(id, wish)| {
            let (token, remaining) = answers.get(id).copied().unwrap_or_default();
            match token {
                Some(token) => Answer::Granted(Token(token.unsigned_abs())),
                None => taken(remaining, wish),
            }
        });
        Ok(answers.collect())
    }

    pub(super) async fn renew(
        &self,
        owner: &Owner,
        claims: &[Claim],
    ) -> Result<Vec<bool>, SqlError> {
        let ids: Vec<Vec<u8>> = claims.iter().map(|claim| id_of(&claim.key)).collect();
        let ttls: Vec<i64> = claims.iter().map(|claim| micros(claim.ttl)).collect();
        let mut connection = Lent::from(&self.connections).await?;
        let rows = sqlx::query(AssertSqlSafe(Arc::clone(&self.renew)))
            .bind(owner.as_str())
            .bind(&ids)
            .bind(tokens(claims))
            .bind(ttls)
            .fetch_all(connection.get())
            .await;
        let rows = connection.end(rows)?;
        let held: HashSet<Vec<u8>> = rows.iter().map(|row| row.get("id")).collect();
        Ok(ids.iter().map(|id| held.contains(id)).collect())
    }

    pub(super) async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), SqlError> {
        let ids: Vec<Vec<u8>> = claims.iter().map(|claim| id_of(&claim.key)).collect();
        let mut connection = Lent::from(&self.connections).await?;
        let released = sqlx::query(AssertSqlSafe(Arc::clone(&self.release)))
            .bind(owner.as_str())
            .bind(ids)
            .bind(tokens(claims))
            .execute(connection.get())
            .await;
        connection.end(released).map(drop)
    }

    pub(super) async fn held_by(&self, key: &[u8]) -> Result<Option<Holder>, SqlError> {
        let mut connection = Lent::from(&self.connections).await?;
        let row = sqlx::query(AssertSqlSafe(Arc::clone(&self.held_by)))
            .bind(id_of(key))
            .fetch_optional(connection.get())
            .await;
        let holder = connection.end(row)?.map(|row| {
            let token = Token(row.get::<i64, _>("token").unsigned_abs());
            let remaining = Some(lasts(row.get("remaining")));
            Holder::new(row.get::<String, _>("owner"), token, remaining)
        });
        Ok(holder)
    }

    pub(super) async fn remove_old(&self) -> Result<u64, SqlError> {
        let (mut after, mut removed) = (Some(Vec::new()), 0);
        while let Some(last) = after.take() {
            let mut connection = Lent::from(&self.connections).await?;
            let row = sqlx::query(AssertSqlSafe(Arc::clone(&self.remove_old)))
                .bind::<Vec<u8>>(last)
                .fetch_one(connection.get())
                .await;
            let row = connection.end(row)?;
            after = row.get("last");
            removed += row.get::<i64, _>("removed").unsigned_abs();
        }
        Ok(removed)
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgreSQL")
    }
}

fn tokens(claims: &[Claim]) -> Vec<i64> {
    let tokens = claims.iter().map(|claim| claim.token.0);
    // A token that does not fit was not drawn here, and matches no row.
    tokens
        .map(|token| i64::try_from(token).unwrap_or(-1))
        .collect()
}
