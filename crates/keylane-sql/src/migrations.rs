//! The tables and their migrations.
//!
//! Each migration brings the tables from one version to the next and is never changed again.

use sqlx::mysql::MySqlDatabaseError;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};

use crate::database::{Database, Pool};
use crate::error::{ErrorKind, OpenError, SqlError};
use crate::lent::Lent;
use crate::tables::{Quote, Tables};

/// The statements of one migration. They can be repeated: MySQL commits after each of them.
struct Migration {
    postgres: &'static [&'static str],
    mysql: &'static [&'static str],
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        postgres: &[
            "create sequence if not exists {tokens}",
            // `runs_out` changes with each renewal and has no index, so the row stays on its page.
            "create table if not exists {leases} (
            id bytea primary key,
            key_start bytea not null,
            owner text not null,
            token bigint not null,
            runs_out timestamptz not null
        ) with (fillfactor = 50)",
        ],
        mysql: &[
            "create table if not exists {counters} (
            name varchar(16) character set ascii collate ascii_bin primary key,
            value bigint unsigned not null
        ) engine = InnoDB",
            "insert ignore into {counters} (name, value) values ('tokens', 0)",
            "create table if not exists {leases} (
            id binary(32) primary key,
            key_start varbinary(64) not null,
            owner varchar(64) character set ascii collate ascii_bin not null,
            token bigint unsigned not null,
            runs_out datetime(6) not null
        ) engine = InnoDB",
        ],
    },
    Migration {
        postgres: &[
            "create sequence if not exists {sequence}",
            "create table if not exists {messages} (
            sequence bigint primary key,
            lane bytea not null,
            key bytea not null,
            payload bytea not null,
            id bytea,
            version numeric(20),
            headers bytea,
            attempts integer not null default 0,
            accepted_at timestamptz not null default clock_timestamp()
        )",
            "create index if not exists {.messages_lane} on {messages} (lane, sequence)",
            "create table if not exists {letters} (
            sequence bigint primary key,
            lane bytea not null,
            key bytea not null,
            payload bytea not null,
            id bytea,
            version numeric(20),
            headers bytea,
            accepted_at timestamptz not null,
            attempts integer not null,
            kind smallint not null,
            error bytea not null,
            dead_lettered_at timestamptz not null default clock_timestamp()
        )",
            // Producers lock these rows until they commit. Each accept adds to `last`; it is 1 in
            // the transaction that makes the row.
            "create table if not exists {keys} (
            lane bytea primary key,
            last bigint not null,
            redriven bigint not null default 0
        ) with (fillfactor = 70)",
            // Consumers change these rows. Each key has one, which comes and goes with the key, and
            // no index has to enforce that. `of_key` is the place of the key's row, and
            // `only_message` the place of the message if the key came with one; both may have
            // moved. Half of a page is for claims of the other half.
            "create table if not exists {lanes} (
            lane bytea not null,
            of_key tid,
            only_message tid,
            worker bigint,
            token bigint not null default 0,
            ready_at timestamptz not null,
            crashes smallint not null default 0
        ) with (fillfactor = 50)",
            // Without a primary key, a publication of all tables would stop all claims.
            "alter table {lanes} replica identity full",
            "create index if not exists {.lanes_ready} on {lanes} (ready_at) where worker is null",
            "create index if not exists {.lanes_worker} on {lanes} (worker, token) where worker is not null",
            "create table if not exists {workers} (
            id bigint primary key default nextval('{tokens}'),
            name text not null,
            runs_out timestamptz not null
        )",
            "create table if not exists {known} (
            mark bytea primary key,
            sequence bigint not null,
            seen_at timestamptz not null default clock_timestamp()
        )",
            "create index if not exists {.known_seen} on {known} (seen_at)",
            "create table if not exists {versions} (
            lane bytea primary key,
            version numeric(20) not null
        )",
        ],
        mysql: &[
            // In both databases the counter of sequences outlives its rows and a restart. The size
            // of a payload is in the index, so pages are measured without reading payloads.
            "create table if not exists {messages} (
            sequence bigint unsigned auto_increment primary key,
            lane binary(32) not null,
            `key` mediumblob not null,
            payload longblob not null,
            payload_bytes int unsigned not null,
            id varbinary(256),
            version bigint unsigned,
            headers mediumblob,
            attempts int unsigned not null default 0,
            accepted_at datetime(6) not null,
            index of_lane (lane, sequence, payload_bytes)
        ) engine = InnoDB",
            "create table if not exists {letters} (
            sequence bigint unsigned primary key,
            lane binary(32) not null,
            `key` mediumblob not null,
            payload longblob not null,
            payload_bytes int unsigned not null,
            id varbinary(256),
            version bigint unsigned,
            headers mediumblob,
            accepted_at datetime(6) not null,
            attempts int unsigned not null,
            kind tinyint unsigned not null,
            error blob not null,
            dead_lettered_at datetime(6) not null
        ) engine = InnoDB",
            // Producers lock these rows until they commit. `last` is 1 only in the transaction that
            // makes the row.
            "create table if not exists {keys} (
            lane binary(32) primary key,
            last bigint unsigned not null,
            redriven bigint unsigned not null
        ) engine = InnoDB",
            // Consumers change these rows. `worker` is 0 while no worker has the lane; `ready_at`
            // says since when.
            "create table if not exists {lanes} (
            lane binary(32) primary key,
            worker bigint unsigned not null default 0,
            token bigint unsigned not null default 0,
            ready_at datetime(6) not null,
            crashes smallint unsigned not null default 0,
            index of_worker (worker, ready_at)
        ) engine = InnoDB",
            "create table if not exists {workers} (
            id bigint unsigned auto_increment primary key,
            name blob not null,
            runs_out datetime(6) not null
        ) engine = InnoDB",
            "create table if not exists {known} (
            mark binary(32) primary key,
            sequence bigint unsigned not null,
            seen_at datetime(6) not null,
            index seen (seen_at)
        ) engine = InnoDB",
            "create table if not exists {versions} (
            lane binary(32) primary key,
            version bigint unsigned not null
        ) engine = InnoDB",
        ],
    },
    // Histories: their names, and a random part that no two share. Workers of an older version know
    // no history, and can no longer join: their claims end here. They still have a number by
    // default, so that the constraint refuses them; it has a name.
    Migration {
        postgres: &[
            "create table if not exists {history} (one smallint primary key, id text not null)",
            // Existing rows keep 0: the table is not rewritten.
            "alter table {messages} add column if not exists nonce bigint not null default 0",
            "alter table {messages} alter column nonce set default (random() * 4503599627370496)::bigint",
            "delete from {workers}",
            "update {lanes} set worker = null, ready_at = clock_timestamp() where worker is not null",
            "alter table {workers} add column if not exists history text,
                add column if not exists renewals bigint not null default 0,
                add constraint {.version_too_old} check (history is not null)",
        ],
        mysql: &[
            "create table if not exists {history} (
            one tinyint primary key,
            id varchar(512) character set utf8mb4 collate utf8mb4_bin not null
        ) engine = InnoDB",
            "alter table {messages} add column nonce bigint unsigned not null default 0",
            "alter table {messages} alter column nonce set default (
                cast(rand() * 1073741824 as unsigned) * 1073741824 + cast(rand() * 1073741824 as unsigned)
            )",
            "drop table if exists {workers}",
            "update {lanes} set worker = 0, ready_at = utc_timestamp(6) where worker <> 0",
            "create table if not exists {workers} (
            id bigint unsigned default 0 primary key,
            name blob not null,
            runs_out datetime(6) not null,
            history varchar(512) character set utf8mb4 collate utf8mb4_bin,
            renewals bigint unsigned not null default 0,
            constraint {.version_too_old} check (history is not null)
        ) engine = InnoDB",
        ],
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
    /// Returns [`OpenError::Newer`] if a newer program has migrated the tables, and changes nothing
    /// then.
    pub async fn migrate(&self, tables: &Tables) -> Result<(), OpenError> {
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
                let mut connection = Lent::from(pool).await?;
                let migrated = migrate_mysql(connection.get(), tables).await;
                // After an error the connection still has the lock.
                is_known(connection.end_or_close(migrated)?)
            }
        }
    }

    /// Checks that the tables have the version of this program.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::Older`] or [`OpenError::Newer`] if they do not.
    pub async fn check(&self, tables: &Tables) -> Result<(), OpenError> {
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
        for statement in migration.postgres {
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
    // A connection of a user's pool may not commit by itself.
    sqlx::query("set autocommit = 1")
        .execute(&mut *connection)
        .await?;
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
        for statement in migration.mysql {
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
