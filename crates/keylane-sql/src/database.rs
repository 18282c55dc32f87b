//! A database of either kind.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, MySqlPool, PgPool};

use crate::error::SqlError;
use crate::session;

/// How long a call waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(5);

/// How long it takes at most to learn why no connection comes.
const WHY: Duration = Duration::from_secs(1);

/// A database: PostgreSQL, MySQL or MariaDB. It is cheap to clone.
///
/// # Examples
///
/// ```no_run
/// use keylane_sql::Database;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), keylane_sql::error::SqlError> {
/// let database = Database::connect("postgres://worker:secret@db.internal/orders").await?;
/// # let _ = database;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database(pub(crate) Pool);

#[derive(Clone)]
pub(crate) enum Pool {
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Database {
    /// Connects with a pool of up to ten connections.
    ///
    /// Each session is set to what this crate needs, whatever the server has for all sessions.
    /// Transactions are `read committed` in PostgreSQL, and `repeatable read` in MySQL and MariaDB.
    /// There `autocommit` is on, `completion_type` is `NO_CHAIN`, `sql_safe_updates` is off,
    /// `sql_select_limit` is not set, and `sql_mode` is strict. Time limits for statements and
    /// locks, and the `search_path`, stay as they are. What such a limit ends is tried again.
    ///
    /// # Errors
    ///
    /// Returns [`SqlError`] if the address is not valid, or if nothing answers there within 5
    /// seconds.
    pub async fn connect(address: &str) -> Result<Self, SqlError> {
        let scheme = address.split(':').next().unwrap_or_default();
        match scheme {
            "postgres" | "postgresql" => {
                let options = PgConnectOptions::from_str(address);
                let options = options.map_err(|_| SqlError::unreadable_address())?;
                let pool = PgPoolOptions::new()
                    .acquire_timeout(ACQUIRE)
                    .after_connect(|session, _| Box::pin(session::set_postgres(session)));
                match pool.connect_with(options.clone()).await {
                    Err(sqlx::Error::PoolTimedOut) => Err(why(options.connect()).await),
                    pool => Ok(Self::postgres(pool?)),
                }
            }
            "mysql" | "mariadb" => {
                let options = MySqlConnectOptions::from_str(address);
                let options = options.map_err(|_| SqlError::unreadable_address())?;
                let pool = MySqlPoolOptions::new()
                    .acquire_timeout(ACQUIRE)
                    .after_connect(|session, _| Box::pin(session::set_mysql(session)));
                match pool.connect_with(options.clone()).await {
                    Err(sqlx::Error::PoolTimedOut) => Err(why(options.connect()).await),
                    pool => Ok(Self::mysql(pool?)),
                }
            }
            // Without a colon it may be a password.
            _ if !address.contains("://") => Err(SqlError::unreadable_address()),
            scheme => Err(SqlError::address(scheme)),
        }
    }

    /// Uses a pool of your own.
    pub fn postgres(pool: PgPool) -> Self {
        Self(Pool::Postgres(pool))
    }

    /// Uses a pool of your own, for MySQL or MariaDB. Its sessions must be set as
    /// [`connect`](Self::connect) does it, except the isolation: this is checked when leases or an
    /// inbox are opened.
    pub fn mysql(pool: MySqlPool) -> Self {
        Self(Pool::MySql(pool))
    }

    /// Returns the most connections that the pool opens.
    pub(crate) fn most(&self) -> u32 {
        match &self.0 {
            Pool::Postgres(pool) => pool.options().get_max_connections(),
            Pool::MySql(pool) => pool.options().get_max_connections(),
        }
    }

    /// Returns where it is, for the log.
    pub(crate) fn place(&self) -> String {
        match &self.0 {
            Pool::Postgres(pool) => {
                let options = pool.connect_options();
                format!("{}:{}", options.get_host(), options.get_port())
            }
            Pool::MySql(pool) => {
                let options = pool.connect_options();
                format!("{}:{}", options.get_host(), options.get_port())
            }
        }
    }

    /// Closes the connections once those in use have come back.
    pub async fn close(&self) {
        match &self.0 {
            Pool::Postgres(pool) => pool.close().await,
            Pool::MySql(pool) => pool.close().await,
        }
    }
}

/// Returns the reason why a pool could not connect: the pool only says that it could not.
async fn why<C>(connect: impl Future<Output = Result<C, sqlx::Error>>) -> SqlError {
    match tokio::time::timeout(WHY, connect).await {
        Ok(Err(error)) => error.into(),
        Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut.into(),
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The options of a pool have the password in them.
        f.write_str(match &self.0 {
            Pool::Postgres(_) => "Database(PostgreSQL)",
            Pool::MySql(_) => "Database(MySQL)",
        })
    }
}
