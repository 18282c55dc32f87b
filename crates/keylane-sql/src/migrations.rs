//! The tables and their migrations.
//!
//! Each migration brings the tables from one version to the next and is never changed again.

use sqlx::mysql::MySqlDatabaseError;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};

use crate::database::{Database, Pool};
use crate::error::{ErrorKind, OpenError, SqlError};
use crate::link::Lent;
use crate::pooler;
use crate::tables::{Quote, Tables};

/// The statements of one migration. They can be repeated: MySQL commits after each of them.
struct Migration {
    postgres: &'static str,
    mysql: &'static str,
}

/// Returns the statements of a text, each of which ends with a semicolon at the end of a line.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    let statements = text.split(";\n").map(str::trim);
    statements.filter(|statement| !statement.is_empty())
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        postgres: include_str!("sql/1_postgres.sql"),
        mysql: include_str!("sql/1_mysql.sql"),
    },
    Migration {
        postgres: include_str!("sql/2_postgres.sql"),
        mysql: include_str!("sql/2_mysql.sql"),
    },
    // Histories: their names, and a random part that no two share. Workers of an older version know
    // no history, and can no longer join: their claims end here. They still have a number by
    // default, so that the constraint refuses them; it has a name.
    Migration {
        postgres: include_str!("sql/3_postgres.sql"),
        mysql: include_str!("sql/3_mysql.sql"),
    },
    Migration {
        postgres: include_str!("sql/4_postgres.sql"),
        mysql: include_str!("sql/4_mysql.sql"),
    },
];

/// Returns the version that this program needs.
fn needed() -> u32 {
    MIGRATIONS.len() as u32
}

impl Database {
    /// Creates the tables, or brings them to the version of this program. If several processes call
    /// this at a time, one does it, and the others wait.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::Newer`] if a newer program has migrated the tables, and
    /// [`OpenError::SharedSessions`] behind a pooler in which statements do not stay prepared; it
    /// changes nothing then.
    pub async fn migrate(&self, tables: &Tables) -> Result<(), OpenError> {
        if let Pool::Postgres(pool) = &self.0 {
            pooler::check(pool).await?;
        }
        // A worker may have no right to create tables, and needs none.
        if self.version(tables).await? == needed() {
            return Ok(());
        }
        match &self.0 {
            Pool::Postgres(pool) => {
                let mut connection = Lent::from(pool).await?;
                let migrated = migrate_postgres(connection.get(), tables).await;
                is_known(connection.end(migrated)?)
            }
            Pool::MySql(pool) => {
                self.check_session().await?;
                let mut connection = Lent::from(pool).await?;
                let migrated = migrate_mysql(connection.get(), tables).await;
                // After an error the connection still has the lock.
                is_known(connection.end_or_close(migrated)?)
            }
        }
    }

    /// Checks that the tables have the version of this program, and that the sessions of the pool
    /// can be used.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::Older`] or [`OpenError::Newer`] if the tables have another version, and
    /// [`OpenError::Setting`] if a variable of a session has a value with which nothing works.
    /// [`OpenError::SharedSessions`] behind a pooler in which statements do not stay prepared.
    pub async fn check(&self, tables: &Tables) -> Result<(), OpenError> {
        self.check_session().await?;
        let found = self.version(tables).await?;
        is_known(found)?;
        match found < needed() {
            true => Err(OpenError::Older {
                found,
                needed: needed(),
            }),
            false => Ok(()),
        }
    }

    /// Checks a session, and warns of settings with which the database loses data.
    async fn check_session(&self) -> Result<(), OpenError> {
        match &self.0 {
            Pool::Postgres(pool) => {
                pooler::check(pool).await?;
                Lent::check(pool).await
            }
            Pool::MySql(pool) => Lent::check(pool).await,
        }
    }

    async fn version(&self, tables: &Tables) -> Result<u32, SqlError> {
        let read = "select version from {schema}";
        let version = match &self.0 {
            Pool::Postgres(pool) => {
                let text = tables.statement(read, Quote::Postgres);
                let mut connection = Lent::from(pool).await?;
                let query = sqlx::query_scalar::<_, i32>(AssertSqlSafe(text));
                let version = query.fetch_optional(connection.get()).await;
                connection.end(version)
            }
            Pool::MySql(pool) => {
                let text = tables.statement(read, Quote::MySql);
                let mut connection = Lent::from(pool).await?;
                let query = sqlx::query_scalar::<_, i32>(AssertSqlSafe(text));
                let version = query.fetch_optional(connection.get()).await;
                connection.end(version)
            }
        };
        match version {
            // There is no row if a migration has just begun, or did not finish.
            Ok(version) => Ok(version.unwrap_or(0).unsigned_abs()),
            Err(error) if error.kind() == ErrorKind::Missing => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn is_known(found: u32) -> Result<(), OpenError> {
    match found > needed() {
        true => Err(OpenError::Newer {
            found,
            known: needed(),
        }),
        false => Ok(()),
    }
}

/// Migrates, and returns the version that the tables have in the end.
async fn migrate_postgres(
    connection: &mut PgConnection,
    tables: &Tables,
) -> Result<u32, sqlx::Error> {
    let text = |template: &str| AssertSqlSafe(tables.statement(template, Quote::Postgres));
    let mut transaction = connection.begin().await?;
    // The transaction must see what was committed while it waited for the lock.
    sqlx::query("set transaction isolation level read committed")
        .execute(&mut *transaction)
        .await?;
    // Holds the lock until the end of the transaction. Without it, two processes that create a
    // table at the same time get an error.
    sqlx::query("select pg_advisory_xact_lock(hashtextextended($1, 0))")
        .bind(tables.lock_name())
        .execute(&mut *transaction)
        .await?;
    for statement in [
        "create table if not exists {schema} (one smallint primary key, version integer not null)",
        "insert into {schema} (one, version) values (1, 0) on conflict do nothing",
    ] {
        sqlx::query(text(statement))
            .execute(&mut *transaction)
            .await?;
    }
    let version = sqlx::query(text("select version from {schema}"))
        .fetch_one(&mut *transaction)
        .await?;
    let found = version.get::<i32, _>(0).unsigned_abs();
    for migration in MIGRATIONS.iter().skip(found as usize) {
        for statement in statements(migration.postgres) {
            sqlx::query(text(statement))
                .execute(&mut *transaction)
                .await?;
        }
    }
    let reached = found.max(needed());
    sqlx::query(text("update {schema} set version = $1"))
        .bind(reached as i32)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(reached)
}

async fn migrate_mysql(
    connection: &mut MySqlConnection,
    tables: &Tables,
) -> Result<u32, sqlx::Error> {
    let text = |template: &str| AssertSqlSafe(tables.statement(template, Quote::MySql));
    // Names of locks have at most 64 bytes. If the future does not finish, the connection is
    // closed.
    let lock = format!("keylane:{:.56}", tables.lock_name());
    let locked = sqlx::query_scalar::<_, Option<i64>>("select get_lock(?, 60)")
        .bind(&lock)
        .fetch_one(&mut *connection)
        .await?;
    if locked != Some(1) {
        let why = "another process has been migrating the tables for more than a minute";
        return Err(sqlx::Error::Protocol(why.to_owned()));
    }
    for statement in [
        "create table if not exists {schema} (one tinyint primary key, version int not null) engine = InnoDB",
        "insert ignore into {schema} (one, version) values (1, 0)",
    ] {
        sqlx::query(text(statement))
            .execute(&mut *connection)
            .await?;
    }
    let version = sqlx::query(text("select version from {schema}"))
        .fetch_one(&mut *connection)
        .await?;
    let found = version.get::<i32, _>(0).unsigned_abs();
    for (number, migration) in (1..).zip(MIGRATIONS).skip(found as usize) {
        for statement in statements(migration.mysql) {
            let done = sqlx::query(text(statement)).execute(&mut *connection).await;
            if !done.as_ref().is_err_and(is_there) {
                done?;
            }
        }
        sqlx::query(text("update {schema} set version = ?"))
            .bind(number)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("select release_lock(?)")
        .bind(&lock)
        .execute(&mut *connection)
        .await?;
    Ok(found.max(needed()))
}

/// Returns whether a column exists already: MySQL has no `add column if not exists`.
fn is_there(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    error.is_some_and(|error| error.number() == 1060)
}
