//! A connection that is lent by its pool for one call.

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

use crate::error::SqlError;

/// A connection for one call.
///
/// When a future of sqlx is dropped halfway, its connection may be inside a transaction that the
/// pool does not know of, and the next user of the connection would be in it, too (sqlx issue 4385).
/// So a connection goes back only when its call has come to an end; otherwise it is closed, and the
/// server rolls back.
pub(crate) struct Lent<DB: Database> {
    connection: Option<PoolConnection<DB>>,
}

impl<DB: Database> Lent<DB> {
    pub(crate) async fn from(pool: &Pool<DB>) -> Result<Self, SqlError> {
        let connection = pool.acquire().await?;
        Ok(Self {
            connection: Some(connection),
        })
    }

    pub(crate) fn get(&mut self) -> &mut DB::Connection {
        self.connection
            .as_mut()
            .expect("it is given back at the end")
    }

    /// The call has come to an end, in this way. It was one statement, or a transaction of sqlx.
    pub(crate) fn end<T>(mut self, result: Result<T, sqlx::Error>) -> Result<T, SqlError> {
        // A statement that was refused leaves its connection as it was. After anything else it is
        // not known what the server will say next.
        if matches!(result, Ok(_) | Err(sqlx::Error::Database(_))) {
            self.connection.take();
        }
        Ok(result?)
    }

    /// The call has come to an end, in this way. After an error the connection is closed.
    pub(crate) fn end_or_close<T>(mut self, result: Result<T, sqlx::Error>) -> Result<T, SqlError> {
        let result = result?;
        self.connection.take();
        Ok(result)
    }
}

impl<DB: Database> Drop for Lent<DB> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}
