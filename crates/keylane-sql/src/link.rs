//! A connection that its pool lends for one call.

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

use crate::error::{ErrorKind, SqlError, is_of_session};

/// A connection for one call.
///
/// If a future of sqlx is dropped halfway, its connection may be inside a transaction that the pool
/// does not know of, and the next user of the connection would be inside it too (sqlx issue 4385).
/// So a connection goes back only when its call has ended; otherwise it is closed, and the server
/// rolls back.
pub(crate) struct Lent<DB: Database> {
    connection: Option<PoolConnection<DB>>,
    pool: Pool<DB>,
}

impl<DB: Database> Lent<DB> {
    pub(crate) async fn from(pool: &Pool<DB>) -> Result<Self, SqlError> {
        let connection = pool.acquire().await?;
        Ok(Self {
            connection: Some(connection),
            pool: pool.clone(),
        })
    }

    pub(crate) fn get(&mut self) -> &mut DB::Connection {
        self.connection
            .as_mut()
            .expect("it is given back at the end")
    }

    /// Ends the call with this result. The call was one statement, or a transaction of sqlx.
    pub(crate) fn end<T>(mut self, result: Result<T, sqlx::Error>) -> Result<T, SqlError> {
        // A statement that the server refused leaves its connection as it was.
        if !result.as_ref().is_err_and(is_of_session) {
            self.connection.take();
        }
        self.told(result)
    }

    /// Ends the call with this result. After an error the connection is closed.
    pub(crate) fn end_or_close<T>(mut self, result: Result<T, sqlx::Error>) -> Result<T, SqlError> {
        if result.is_ok() {
            self.connection.take();
        }
        self.told(result)
    }

    /// Closes a session that can only read.
    pub(crate) fn close_read_only(self) -> SqlError {
        self.close_idle();
        SqlError::read_only("the transaction was read-only")
    }

    fn told<T>(&self, result: Result<T, sqlx::Error>) -> Result<T, SqlError> {
        result.map_err(|error| {
            let error = SqlError::from(error);
            if error.kind() == ErrorKind::ReadOnly {
                self.close_idle();
            }
            error
        })
    }

    /// Closes the idle connections, which would get the same answer as this session: they began
    /// while the database took no writes, or belong to a server that was the primary. They are
    /// alive, so the pool would go on to lend them.
    fn close_idle(&self) {
        for _ in 0..self.pool.size() {
            let Some(idle) = self.pool.try_acquire() else {
                break;
            };
            drop(idle.detach());
        }
    }
}

impl<DB: Database> Drop for Lent<DB> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}
