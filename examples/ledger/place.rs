//! Where the books are: a schema of their own in a PostgreSQL.

use std::str::FromStr;
use std::time::Duration;

use keylane_sql::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use keylane_sql::sqlx::{self, AssertSqlSafe, PgPool};
use keylane_sql::{Database, Settings, SqlInbox, Tables};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::plan::Plan;

/// A process that is paused in the middle of a transaction keeps its rows locked, and all others
/// wait for it. So the server ends a transaction in which nothing is said for as long as this.
const IDLE: &str = "1s";

/// `bookings` has no unique key: what is booked twice is to be seen.
const TABLES: [&str; 3] = [
    "create table accounts (
        id integer primary key,
        opening bigint not null,
        spent bigint not null default 0,
        received bigint not null default 0
    )",
    "create table transfers (
        number integer primary key,
        debtor integer not null references accounts,
        creditor integer not null references accounts,
        cents bigint not null
    )",
    "create table bookings (
        place bigserial primary key,
        transfer integer not null,
        kind text not null,
        account integer not null,
        worker text not null
    )",
];

/// Not `Debug`: an address has a password in it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    url: String,
    schema: String,
}

impl Place {
    pub(crate) fn new(url: String) -> Self {
        let schema = format!("ledger_{}", std::process::id());
        Self { url, schema }
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Connections whose tables are those of the schema. The server knows them by the name.
    pub(crate) async fn connect(&self, name: &str, connections: u32) -> Result<PgPool, Failure> {
        let is_postgres = ["postgres://", "postgresql://"];
        let is_postgres = is_postgres.iter().any(|start| self.url.starts_with(start));
        let options = PgConnectOptions::from_str(&self.url).ok();
        let options = options
            .filter(|_| is_postgres)
            .ok_or("--url is not of the form postgres://user:password@host:port/database")?;
        let options = options
            .application_name(&format!("{} {name}", self.schema))
            .options([
                ("search_path", self.schema.as_str()),
                ("idle_in_transaction_session_timeout", IDLE),
                // Nothing to say about what is there already.
                ("client_min_messages", "warning"),
            ]);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(5));
        let pool = pool.connect_with(options).await;
        pool.map_err(|error| format!("PostgreSQL cannot be reached: {error}").into())
    }

    fn tables(&self) -> Result<Tables, Failure> {
        Ok(Tables::new().schema(self.schema.as_str())?)
    }

    pub(crate) async fn inbox(&self, pool: &PgPool) -> Result<SqlInbox, Failure> {
        let database = Database::postgres(pool.clone());
        Ok(SqlInbox::open(&database, &self.tables()?, Settings::new()).await?)
    }

    /// Makes the schema, the tables of the inbox and those of the books, and opens the accounts.
    pub(crate) async fn create(&self, pool: &PgPool, plan: &Plan) -> Result<(), Failure> {
        let schema = AssertSqlSafe(format!("create schema {}", self.schema));
        sqlx::query(schema).execute(pool).await?;
        let database = Database::postgres(pool.clone());
        database.migrate(&self.tables()?).await?;
        for table in TABLES {
            sqlx::query(table).execute(pool).await?;
        }
        let opened = "insert into accounts (id, opening)
            select place - 1, opening from unnest($1::bigint[]) with ordinality as a (opening, place)";
        let opened = sqlx::query(opened).bind(&plan.openings);
        opened.execute(pool).await?;
        Ok(())
    }

    /// Removes all of it.
    pub(crate) async fn remove(&self) -> Result<(), Failure> {
        let pool = self.connect("end", 1).await?;
        let schema = AssertSqlSafe(format!("drop schema if exists {} cascade", self.schema));
        sqlx::query(schema).execute(&pool).await?;
        pool.close().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_address_is_not_repeated() {
        for url in [
            "",
            "secret",
            "mysql://me:secret@localhost/x",
            "postgres://me:secret@:x:/",
        ] {
            let error = Place::new(url.to_owned())
                .connect("test", 1)
                .await
                .unwrap_err();
            let text = error.to_string();
            assert!(text.contains("--url") && !text.contains("secret"), "{text}");
        }
    }
}
