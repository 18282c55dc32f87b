//! A database of its own for each test, on servers that the tests of this binary share.

pub(crate) mod pair;

use std::collections::HashMap;
use std::sync::Arc;

use keylane_leases::{Leases, Settings};
use keylane_sql::{Database, SqlLeases, Tables, sqlx};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use testkit_servers::{MariaDb, Postgres};
use tokio::sync::OnceCell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    MariaDb,
}

impl Kind {
    /// The name that errors give it.
    pub(crate) fn system(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::MariaDb => "MySQL",
        }
    }
}

static POSTGRES: OnceCell<Postgres> = OnceCell::const_new();
static MARIADB: OnceCell<MariaDb> = OnceCell::const_new();

/// A database, and the way to it.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) address: String,
    pub(crate) database: Database,
}

impl Place {
    /// Without tables.
    pub(crate) async fn empty(kind: Kind) -> Self {
        Self::at(kind, Self::address(kind).await).await
    }

    async fn address(kind: Kind) -> String {
        match kind {
            Kind::Postgres => {
                let server = POSTGRES.get_or_init(async || Postgres::start().await.unwrap());
                server.await.create_database().await.unwrap()
            }
            Kind::MariaDb => {
                let server = MARIADB.get_or_init(async || MariaDb::start().await.unwrap());
                server.await.create_database().await.unwrap()
            }
        }
    }

    /// Where a database is.
    pub(crate) async fn at(kind: Kind, address: String) -> Self {
        let database = Database::connect(&address).await.unwrap();
        Self {
            kind,
            address,
            database,
        }
    }

    pub(crate) async fn new(kind: Kind) -> Self {
        Self::empty(kind).await.migrated().await
    }

    pub(crate) async fn migrated(self) -> Self {
        self.database.migrate(&Tables::new()).await.unwrap();
        self
    }

    pub(crate) async fn store(&self) -> SqlLeases {
        SqlLeases::open(&self.database, &Tables::new())
            .await
            .unwrap()
    }

    /// An owner of its own.
    pub(crate) async fn leases(&self) -> Leases {
        Leases::open_with(Arc::new(self.store().await), Settings::new()).unwrap()
    }

    /// One statement on a connection of its own.
    pub(crate) async fn execute(&self, statement: impl Into<String>) {
        let statement = AssertSqlSafe(statement.into());
        match self.kind {
            Kind::Postgres => {
                let mut connection = PgConnection::connect(&self.address).await.unwrap();
                sqlx::raw_sql(statement)
                    .execute(&mut connection)
                    .await
                    .unwrap();
                connection.close().await.unwrap();
            }
            Kind::MariaDb => {
                let mut connection = MySqlConnection::connect(&self.address).await.unwrap();
                sqlx::raw_sql(statement)
                    .execute(&mut connection)
                    .await
                    .unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// All leases that have ended did so two days ago.
    pub(crate) async fn age_leases(&self) {
        let days = match self.kind {
            Kind::Postgres => "interval '2 days'",
            Kind::MariaDb => "interval 2 day",
        };
        let statement =
            format!("update keylane_leases set runs_out = runs_out - {days} where owner = ''");
        self.execute(statement).await;
    }

    pub(crate) async fn set_version(&self, version: u32) {
        let statement = format!("update keylane_schema set version = {version}");
        self.execute(statement).await;
    }

    pub(crate) fn password(&self) -> &str {
        let (_, rest) = self.address.split_once("://").unwrap();
        let (user, _) = rest.split_once('@').unwrap();
        user.split_once(':').unwrap().1
    }

    pub(crate) fn address_with_password(&self, password: &str) -> String {
        let wrong = format!(":{password}@");
        self.address
            .replacen(&format!(":{}@", self.password()), &wrong, 1)
    }

    /// The same database by another port.
    pub(crate) fn address_by(&self, port: u16) -> String {
        let (before, after) = self.address.rsplit_once(':').unwrap();
        let (_, database) = after.split_once('/').unwrap();
        format!("{before}:{port}/{database}")
    }

    pub(crate) fn port(&self) -> u16 {
        let (_, after) = self.address.rsplit_once(':').unwrap();
        after.split_once('/').unwrap().0.parse().unwrap()
    }

    /// Ends the connections of all others to this database.
    pub(crate) async fn kill_connections(&self) {
        match self.kind {
            Kind::Postgres => {
                self.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity
                     where datname = current_database() and pid <> pg_backend_pid()",
                )
                .await;
            }
            Kind::MariaDb => {
                for id in self.numbers(OTHERS).await {
                    // It may be gone by now.
                    let statement = AssertSqlSafe(format!("kill connection {id}"));
                    let mut connection = MySqlConnection::connect(&self.address).await.unwrap();
                    let _ = sqlx::raw_sql(statement).execute(&mut connection).await;
                }
            }
        }
    }

    /// Connections to this database that are in a transaction, and idle.
    pub(crate) async fn open_transactions(&self) -> usize {
        // InnoDB shows an old list of transactions while its readers, all together, read it more
        // often than every 100 ms.
        static READS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _alone = READS.lock().await;
        if self.kind == Kind::MariaDb {
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        }
        let statement = match self.kind {
            Kind::Postgres => {
                "select pid::bigint from pg_stat_activity
                 where datname = current_database() and state like 'idle in transaction%'"
            }
            Kind::MariaDb => {
                "select cast(p.id as signed) from information_schema.innodb_trx
                 join information_schema.processlist p on p.id = trx_mysql_thread_id
                 where p.db = database() and p.command = 'Sleep'"
            }
        };
        self.numbers(statement).await.len()
    }

    pub(crate) async fn number(&self, statement: &str) -> i64 {
        self.numbers(statement).await[0]
    }

    /// The rows of two numbers that a query returns.
    pub(crate) async fn pairs(&self, query: &'static str) -> Vec<(i64, i64)> {
        match self.kind {
            Kind::Postgres => {
                let mut connection = PgConnection::connect(&self.address).await.unwrap();
                let rows = sqlx::query_as(query).fetch_all(&mut connection);
                rows.await.unwrap()
            }
            Kind::MariaDb => {
                let mut connection = MySqlConnection::connect(&self.address).await.unwrap();
                let rows = sqlx::query_as(query).fetch_all(&mut connection);
                rows.await.unwrap()
            }
        }
    }

    async fn numbers(&self, statement: &str) -> Vec<i64> {
        let statement = AssertSqlSafe(statement.to_owned());
        match self.kind {
            Kind::Postgres => {
                let mut connection = PgConnection::connect(&self.address).await.unwrap();
                let query = sqlx::query_scalar(statement);
                query.fetch_all(&mut connection).await.unwrap()
            }
            Kind::MariaDb => {
                let mut connection = MySqlConnection::connect(&self.address).await.unwrap();
                let query = sqlx::query_scalar(statement);
                query.fetch_all(&mut connection).await.unwrap()
            }
        }
    }
}

/// How many writes, each a key and a token in their order, have a lower token than one before them
/// of their key.
pub(crate) fn stale(writes: impl IntoIterator<Item = (i64, i64)>) -> usize {
    let mut highest = HashMap::new();
    let stale = writes.into_iter().filter(|(key, token)| {
        let highest = highest.entry(*key).or_insert(*token);
        let is_stale = *token < *highest;
        *highest = (*highest).max(*token);
        is_stale
    });
    stale.count()
}

const OTHERS: &str = "select cast(id as signed) from information_schema.processlist
    where db = database() and id <> connection_id()";
