//! A database of either kind.

use std::fmt;

use keylane_connector::tls::set_provider;
use sqlx::{MySql, MySqlPool, PgPool, Postgres};

use crate::addresses::{check_files, servers};
use crate::connections::Connections;
use crate::error::SqlError;
use crate::session::{Options, Server};

/// A database: PostgreSQL, MySQL or MariaDB. It is cheap to clone.
///
/// It works in every runtime, also after the one that connected has ended. Each connection belongs
/// to the runtime that opened it. When that runtime has ended, a call may find one of its
/// connections and fail with [`ErrorKind::Unreachable`](crate::error::ErrorKind::Unreachable); the
/// next call gets another one.
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
    Postgres(Connections<Postgres>),
    MySql(Connections<MySql>),
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
    /// An address may name several servers:
    /// `postgres://worker:secret@db1:5432,db2:5432/orders`, also with
    /// `target_session_attrs=read-write`. Connections are made to the one that takes writes. If it
    /// cannot be reached any more, or takes no writes, all are asked, and new connections are made
    /// to the one that does. A replica of MySQL or MariaDB must have `read_only` set. With a pool
    /// of your own, use a name or a proxy that leads to the primary instead.
    ///
    /// **TLS** is a part of the address too: `?sslmode=verify-full&ssl-ca=/etc/tls/ca.pem`, or
    /// `ssl-mode=VERIFY_IDENTITY` for MySQL and MariaDB. By default a connection has TLS if the
    /// server has it, and checks nothing. The [README](crate#tls) has all modes.
    ///
    /// # Errors
    ///
    /// Returns [`SqlError`] if the address is not valid, or if nothing answers there within 5
    /// seconds.
    pub async fn connect(address: &str) -> Result<Self, SqlError> {
        if address.contains("verify") || address.contains("VERIFY") {
            set_provider();
        }
        check_files(address)?;
        let scheme = address.split(':').next().unwrap_or_default();
        match scheme {
            "postgres" | "postgresql" => {
                let servers = options::<Postgres>(address)?;
                Ok(Self(Pool::Postgres(Connections::to(servers).await?)))
            }
            "mysql" | "mariadb" => {
                let servers = options::<MySql>(address)?;
                Ok(Self(Pool::MySql(Connections::to(servers).await?)))
            }
            // Without a colon it may be a password.
            _ if !address.contains("://") => Err(SqlError::unreadable_address()),
            scheme => Err(SqlError::address(scheme)),
        }
    }

    /// Uses a pool of your own.
    pub fn postgres(pool: PgPool) -> Self {
        Self(Pool::Postgres(Connections::of(pool)))
    }

    /// Uses a pool of your own, for MySQL or MariaDB. Its sessions must be set as
    /// [`connect`](Self::connect) does it, except the isolation: this is checked when leases or an
    /// inbox are opened.
    pub fn mysql(pool: MySqlPool) -> Self {
        Self(Pool::MySql(Connections::of(pool)))
    }

    /// Returns the most connections that the pool opens.
    pub(crate) fn most(&self) -> u32 {
        match &self.0 {
            Pool::Postgres(of) => of.pool.options().get_max_connections(),
            Pool::MySql(of) => of.pool.options().get_max_connections(),
        }
    }

    /// Returns the database as errors name it.
    pub(crate) fn named(&self) -> String {
        match &self.0 {
            Pool::Postgres(of) => of.named(),
            Pool::MySql(of) => of.named(),
        }
    }

    /// Closes the connections once those in use have come back.
    pub async fn close(&self) {
        match &self.0 {
            Pool::Postgres(of) => of.pool.close().await,
            Pool::MySql(of) => of.pool.close().await,
        }
    }
}

/// Returns how to connect to each server of an address.
fn options<DB: Server>(address: &str) -> Result<Vec<Options<DB>>, SqlError> {
    let servers = servers(address)?;
    let options = servers.iter().map(|address| address.parse());
    let options: Result<Vec<_>, _> = options.map(|one| one.map(DB::least)).collect();
    options.map_err(|_: sqlx::Error| SqlError::unreadable_address())
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
