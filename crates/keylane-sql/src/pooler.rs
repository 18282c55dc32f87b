//! Sees whether a pooler in front of PostgreSQL lends one session to several clients.
//!
//! PgBouncer does so with `pool_mode = transaction`. sqlx prepares a statement in one transaction
//! and executes it in another one, by a name that all its clients use: `sqlx_s_1` and so on. In
//! another session that name is unknown, or names another statement, which may delete what was to
//! be read. A pooler that tracks prepared statements gives them names of its own.

use std::time::Duration;

use sqlx::{ConnectOptions, Connection, PgConnection, Postgres, Row};
use tokio::time::timeout;

use crate::connections::Connections;
use crate::error::{OpenError, mixes_statements};
use crate::link::Lent;

/// How long the second connection and all answers may take.
const LIMIT: Duration = Duration::from_secs(5);

/// How often both connections are asked. A busy pooler may lend one of them the same session twice
/// by chance.
const ROUNDS: usize = 4;

/// The process of the server that has the session. Without parameters, nothing is prepared.
const SESSION: &str = "select pg_backend_pid()";

/// The same, and no other client is lent this session until the end of the transaction.
const KEEP: &str = "begin; select pg_backend_pid()";

/// The names of this statement at the server.
const NAMES: &str = "select name from pg_prepared_statements
    where statement like 'select name from pg_prepared_statements%'";

/// The names that sqlx gives to statements begin with this.
const OF_SQLX: &str = "sqlx_s_";

/// Checks that statements stay prepared: once for each pool, with a second connection, because an
/// idle pooler lends the same session to one connection again and again.
///
/// # Errors
///
/// [`OpenError::SharedSessions`] if they do not.
pub(crate) async fn check(of: &Connections<Postgres>) -> Result<(), OpenError> {
    if of.keeps_statements() {
        return Ok(());
    }
    let mut lent = Lent::unchecked(of).await?;
    let options = of.pool.connect_options();
    let asked = timeout(LIMIT, async {
        let mut other = options.connect().await?;
        let sessions = sessions(lent.get(), &mut other).await?;
        other.close().await?;
        Ok::<_, sqlx::Error>(sessions)
    });
    match asked.await {
        Ok(Err(error)) if mixes_statements(&error) => Err(OpenError::SharedSessions),
        // A server or a pooler that has no second connection: nothing is known.
        Err(_) | Ok(Err(_)) => Ok(()),
        Ok(Ok(sessions)) => {
            lent.end(Ok(()))?;
            if sessions == Sessions::Mixed {
                return Err(OpenError::SharedSessions);
            }
            of.set_keeps_statements(sessions == Sessions::Tracked);
            Ok(())
        }
    }
}

/// What a connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sessions {
    /// One session.
    Own,
    /// Any session, in which the pooler prepares its statements.
    Tracked,
    /// Any session, with the statements of other clients.
    Mixed,
}

async fn sessions(
    one: &mut PgConnection,
    other: &mut PgConnection,
) -> Result<Sessions, sqlx::Error> {
    let first = session(one, SESSION).await?;
    for _ in 0..ROUNDS {
        let others = session(other, KEEP).await?;
        let is_shared = first == others || first != session(one, SESSION).await?;
        sqlx::raw_sql("rollback").execute(&mut *other).await?;
        if is_shared {
            return Ok(match tracks_statements(other).await {
                true => Sessions::Tracked,
                false => Sessions::Mixed,
            });
        }
    }
    Ok(Sessions::Own)
}

async fn session(
    connection: &mut PgConnection,
    question: &'static str,
) -> Result<i32, sqlx::Error> {
    let row = sqlx::raw_sql(question).fetch_one(connection).await?;
    row.try_get(0)
}

/// Returns whether a pooler gives prepared statements names of its own. In a transaction, which has
/// one session.
async fn tracks_statements(connection: &mut PgConnection) -> bool {
    let names = async {
        let mut transaction = connection.begin().await?;
        let names = sqlx::query_scalar(NAMES).fetch_all(&mut *transaction);
        let names: Vec<String> = names.await?;
        transaction.rollback().await?;
        Ok::<_, sqlx::Error>(names)
    };
    // After an error too they are not: another client has used the name here.
    names.await.is_ok_and(|names| has_own(&names))
}

/// Returns whether a pooler has given these names to a statement. An unnamed one is in no list.
fn has_own(names: &[String]) -> bool {
    !names.is_empty() && !names.iter().any(|name| name.starts_with(OF_SQLX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooler_that_tracks_statements_renames_them() {
        let names = |names: &[&str]| Vec::from_iter(names.iter().map(|name| (*name).to_owned()));
        assert!(has_own(&names(&["PGBOUNCER_7"])));
        assert!(!has_own(&names(&["PGBOUNCER_7", "sqlx_s_1"])));
        assert!(!has_own(&names(&["sqlx_s_1"])));
        assert!(!has_own(&[]));
    }
}
