//! What the sessions of a database must be set to, whatever the operator has set for all sessions,
//! and what its server must be set to.

use futures::FutureExt;
use futures::future::BoxFuture;
use keylane_connector::Hazard;
use sqlx::{
    AssertSqlSafe, ColumnIndex, Connection, Database, Decode, Executor, MySql, MySqlConnection,
    PgConnection, Postgres, Row, Type,
};

use crate::error::SettingError;

/// Where a server is, and how to connect.
pub(crate) type Options<DB> = <<DB as Database>::Connection as Connection>::Options;

/// A variable of a server or of its sessions.
pub(crate) struct Variable {
    name: &'static str,
    /// The expression that reads it.
    read: &'static str,
    /// What [`Database::connect`](crate::Database::connect) sets in each session. `None`: only an
    /// operator sets it, and it is warned about.
    set: Option<&'static str>,
    /// What is wrong with a value. `None`: it can be used.
    harm: fn(&str) -> Option<&'static str>,
}

/// A kind of database.
pub(crate) trait Server: Database {
    const KIND: &'static str;

    const VARIABLES: &'static [Variable];

    /// Returns the options without parameters that this crate does not need.
    fn least(options: Options<Self>) -> Options<Self> {
        options
    }

    /// Sets a session.
    fn set(session: &mut Self::Connection) -> BoxFuture<'_, Result<(), sqlx::Error>>;

    /// Reads the variables, in their order, in one query.
    fn read(session: &mut Self::Connection) -> BoxFuture<'_, Result<Vec<String>, sqlx::Error>>;

    /// Returns whether the server takes writes.
    fn takes_writes(session: &mut Self::Connection) -> BoxFuture<'_, Result<bool, sqlx::Error>>;

    /// Returns where a server is, for the log.
    fn place(options: &Options<Self>) -> String {
        let (host, port) = Self::address(options);
        format!("{host}:{port}")
    }

    /// Returns the database as errors name it: its kind, where its server is, and its name.
    fn named(options: &Options<Self>, servers: &str) -> String {
        let database = Self::database(options);
        format!("{} at {servers}/{database}", Self::KIND)
    }

    /// Returns the host and the port of a server.
    fn address(options: &Options<Self>) -> (&str, u16);

    /// Returns the name of the database; empty if there is none.
    fn database(options: &Options<Self>) -> &str;
}

/// Returns the query that reads the variables. `as_text` makes text of one.
fn question<DB: Server>(as_text: &str) -> String {
    let variables = DB::VARIABLES.iter();
    let variables = variables.map(|one| as_text.replace("{}", one.read));
    format!("select {}", Vec::from_iter(variables).join(", "))
}

/// Returns the columns of its answer.
fn values<R: Row>(row: &R) -> Result<Vec<String>, sqlx::Error>
where
    usize: ColumnIndex<R>,
    String: for<'r> Decode<'r, R::Database> + Type<R::Database>,
{
    let columns = 0..row.len();
    columns.map(|column| row.try_get(column)).collect()
}

/// Transactions at the default level of PostgreSQL.
const ISOLATION: &str = "set session characteristics as transaction isolation level read committed";

/// With what a server loses what it has confirmed.
fn is_off(value: &str) -> Option<&'static str> {
    (value == "off").then_some("a crash loses what was confirmed: set it to on")
}

impl Server for Postgres {
    const KIND: &'static str = "PostgreSQL";

    const VARIABLES: &'static [Variable] = &[
        Variable {
            name: "fsync",
            read: "current_setting('fsync')",
            set: None,
            harm: is_off,
        },
        Variable {
            name: "full_page_writes",
            read: "current_setting('full_page_writes')",
            set: None,
            harm: is_off,
        },
        Variable {
            name: "synchronous_commit",
            read: "current_setting('synchronous_commit')",
            set: None,
            harm: is_off,
        },
    ];

    /// PgBouncer refuses this parameter unless it is told to ignore it. It concerns numbers that
    /// are sent as text; sqlx asks for bytes.
    fn least(options: Options<Self>) -> Options<Self> {
        options.extra_float_digits(None)
    }

    fn set(session: &mut PgConnection) -> BoxFuture<'_, Result<(), sqlx::Error>> {
        async move { session.execute(ISOLATION).await.map(drop) }.boxed()
    }

    fn read(session: &mut PgConnection) -> BoxFuture<'_, Result<Vec<String>, sqlx::Error>> {
        let question = sqlx::query(AssertSqlSafe(question::<Self>("{}")));
        let answer = question.fetch_one(session);
        answer.map(|row| values(&row?)).boxed()
    }

    fn takes_writes(session: &mut PgConnection) -> BoxFuture<'_, Result<bool, sqlx::Error>> {
        let read = sqlx::query_scalar("select current_setting('transaction_read_only') = 'off'");
        read.fetch_one(session).boxed()
    }

    fn address(options: &Options<Self>) -> (&str, u16) {
        (options.get_host(), options.get_port())
    }

    /// The server takes the name of the user if there is none.
    fn database(options: &Options<Self>) -> &str {
        let name = options.get_database();
        name.unwrap_or_else(|| options.get_username())
    }
}

impl Server for MySql {
    const KIND: &'static str = "MySQL";

    const VARIABLES: &'static [Variable] = &[
        Variable {
            name: "autocommit",
            read: "@@session.autocommit",
            set: Some("1"),
            harm: |value| {
                (!is_on(value)).then_some("what is written is not committed: set it to 1")
            },
        },
        Variable {
            name: "completion_type",
            read: "@@session.completion_type",
            set: Some("0"),
            harm: |value| {
                let is_chained = value != "NO_CHAIN" && value != "0";
                is_chained.then_some("a commit begins another transaction: set it to NO_CHAIN")
            },
        },
        Variable {
            name: "sql_safe_updates",
            read: "@@session.sql_safe_updates",
            set: Some("0"),
            harm: |value| is_on(value).then_some("updates of many rows are refused: set it to 0"),
        },
        Variable {
            name: "sql_select_limit",
            read: "@@session.sql_select_limit",
            set: Some("18446744073709551615"),
            harm: |value| {
                let is_limited = value != "18446744073709551615";
                is_limited.then_some("answers are cut off: set it to 18446744073709551615")
            },
        },
        Variable {
            name: "sql_mode",
            read: "@@session.sql_mode",
            set: Some(
                "'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,\
                 PIPES_AS_CONCAT'",
            ),
            harm: |value| {
                let is_strict = value.contains("STRICT_TRANS_TABLES")
                    || value.contains("STRICT_ALL_TABLES")
                    || value.contains("TRADITIONAL");
                match is_strict {
                    true if value.contains("EMPTY_STRING_IS_NULL") => {
                        Some("empty values become null: remove EMPTY_STRING_IS_NULL")
                    }
                    true => None,
                    false => Some("values that are too long are cut off: add STRICT_TRANS_TABLES"),
                }
            },
        },
        Variable {
            name: "innodb_flush_log_at_trx_commit",
            read: "@@global.innodb_flush_log_at_trx_commit",
            set: None,
            harm: is_not_one,
        },
        // The recovery after a crash takes back what the binary log has not. A server without
        // replicas may have none.
        Variable {
            name: "sync_binlog",
            read: "if(@@global.log_bin, @@global.sync_binlog, 1)",
            set: None,
            harm: is_not_one,
        },
    ];

    fn set(session: &mut MySqlConnection) -> BoxFuture<'_, Result<(), sqlx::Error>> {
        let variables = Self::VARIABLES.iter();
        let variables =
            variables.filter_map(|one| Some(format!("session {} = {}", one.name, one.set?)));
        let variables = Vec::from_iter(variables).join(", ");
        let text =
            format!("set {variables}; set session transaction isolation level repeatable read");
        async move { session.execute(AssertSqlSafe(text)).await.map(drop) }.boxed()
    }

    fn read(session: &mut MySqlConnection) -> BoxFuture<'_, Result<Vec<String>, sqlx::Error>> {
        let question = sqlx::query(AssertSqlSafe(question::<Self>("cast({} as char)")));
        let answer = question.fetch_one(session);
        answer.map(|row| values(&row?)).boxed()
    }

    fn takes_writes(session: &mut MySqlConnection) -> BoxFuture<'_, Result<bool, sqlx::Error>> {
        let read = sqlx::query_scalar("select cast(@@global.read_only as char) in ('0', 'OFF')");
        read.fetch_one(session).boxed()
    }

    fn address(options: &Options<Self>) -> (&str, u16) {
        (options.get_host(), options.get_port())
    }

    fn database(options: &Options<Self>) -> &str {
        options.get_database().unwrap_or_default()
    }
}

/// MariaDB shows a switch as a word, and MySQL as a number.
fn is_on(value: &str) -> bool {
    matches!(value, "1" | "ON")
}

fn is_not_one(value: &str) -> Option<&'static str> {
    (value != "1").then_some("a crash loses what was confirmed: set it to 1")
}

/// Judges the values of variables. Returns the settings with which the server loses what it has
/// confirmed. Pure.
///
/// # Errors
///
/// [`SettingError`] if the session cannot be used.
pub(crate) fn judge(
    variables: &[Variable],
    values: Vec<String>,
) -> Result<Vec<Hazard>, SettingError> {
    let mut hazards = Vec::new();
    for (variable, value) in variables.iter().zip(values) {
        match ((variable.harm)(&value), variable.set) {
            (None, _) => {}
            (Some(remedy), None) => hazards.push(Hazard {
                setting: variable.name.to_owned(),
                value,
                remedy,
            }),
            (Some(why), Some(_)) => {
                let variable = variable.name;
                return Err(SettingError {
                    variable,
                    value,
                    why,
                });
            }
        }
    }
    Ok(hazards)
}
