//! What the sessions of a database must be set to, whatever the operator has set for all sessions.

use keylane_connector::Hazard;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, PgConnection};

use crate::error::SettingError;

/// Transactions at the default level of PostgreSQL.
const POSTGRES: &str = "set session characteristics as transaction isolation level read committed";

/// A variable of a session in MySQL and MariaDB.
struct Variable {
    name: &'static str,
    /// What [`Database::connect`](crate::Database::connect) sets.
    value: &'static str,
    /// What is wrong with another value. `None`: it can be used.
    harm: fn(&str) -> Option<&'static str>,
}

const MYSQL: &[Variable] = &[
    Variable {
        name: "autocommit",
        value: "1",
        harm: |value| (!is_on(value)).then_some("what is written is not committed: set it to 1"),
    },
    Variable {
        name: "completion_type",
        value: "0",
        harm: |value| {
            let is_chained = value != "NO_CHAIN" && value != "0";
            is_chained.then_some("a commit begins another transaction: set it to NO_CHAIN")
        },
    },
    Variable {
        name: "sql_safe_updates",
        value: "0",
        harm: |value| is_on(value).then_some("updates of many rows are refused: set it to 0"),
    },
    Variable {
        name: "sql_select_limit",
        value: "18446744073709551615",
        harm: |value| {
            let is_limited = value != "18446744073709551615";
            is_limited.then_some("answers are cut off: set it to 18446744073709551615")
        },
    },
    Variable {
        name: "sql_mode",
        value: "'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,\
                PIPES_AS_CONCAT'",
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
];

/// MariaDB shows a switch as a word, and MySQL as a number.
fn is_on(value: &str) -> bool {
    matches!(value, "1" | "ON")
}

/// Sets a session of PostgreSQL.
pub(crate) async fn set_postgres(session: &mut PgConnection) -> Result<(), sqlx::Error> {
    session.execute(POSTGRES).await.map(drop)
}

/// Sets a session of MySQL or MariaDB.
pub(crate) async fn set_mysql(session: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    let variables = MYSQL.iter();
    let variables = variables.map(|one| format!("{} = {}", one.name, one.value));
    let variables = Vec::from_iter(variables).join(", ");
    let text = format!("set {variables}; set session transaction isolation level repeatable read");
    session.execute(AssertSqlSafe(text)).await.map(drop)
}

/// Checks a session of MySQL or MariaDB.
pub(crate) async fn check_mysql(session: &mut MySqlConnection) -> Result<Checked, sqlx::Error> {
    for Variable { name, harm, .. } in MYSQL {
        let text = format!("select cast(@@session.{name} as char)");
        let value = sqlx::query_scalar::<_, String>(AssertSqlSafe(text));
        let value = value.fetch_one(&mut *session).await?;
        if let Some(why) = harm(&value) {
            let variable = *name;
            return Ok(Err(SettingError {
                variable,
                value,
                why,
            }));
        }
    }
    Ok(Ok(()))
}

const POSTGRES_HAZARDS: &str = "
    select setting, value from (values
        ('fsync', current_setting('fsync')),
        ('full_page_writes', current_setting('full_page_writes')),
        ('synchronous_commit', current_setting('synchronous_commit'))
    ) as settings (setting, value)
    where value = 'off'";

const MYSQL_HAZARDS: &str = "
    select setting, value from (
        select 'innodb_flush_log_at_trx_commit' as setting,
            cast(@@innodb_flush_log_at_trx_commit as char) as value
    ) as settings
    where value <> '1'";

/// Returns the settings with which PostgreSQL loses what it has confirmed.
pub(crate) async fn lossy_postgres(session: &mut PgConnection) -> Result<Lossy, sqlx::Error> {
    let read = sqlx::query_as(POSTGRES_HAZARDS);
    read.fetch_all(session).await
}

/// Returns the settings with which MySQL or MariaDB loses what it has confirmed.
pub(crate) async fn lossy_mysql(session: &mut MySqlConnection) -> Result<Lossy, sqlx::Error> {
    let read = sqlx::query_as(MYSQL_HAZARDS);
    read.fetch_all(session).await
}

/// Warns of settings with which a database loses what it has confirmed.
pub(crate) fn warn(database: &str, lossy: Lossy) {
    for (setting, value) in lossy {
        let remedy = match setting.as_str() {
            "innodb_flush_log_at_trx_commit" => "a crash loses what was confirmed: set it to 1",
            _ => "a crash loses what was confirmed: set it to on",
        };
        let hazard = Hazard {
            setting,
            value,
            remedy,
        };
        hazard.warn(database);
    }
}

/// Settings and their values.
type Lossy = Vec<(String, String)>;

/// Whether a session can be used.
pub(crate) type Checked = Result<(), SettingError>;
