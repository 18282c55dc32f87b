//! A connection that its pool lends for one call.

use keylane_connector::Hazard;
use sqlx::pool::PoolConnection;

use crate::connections::Connections;
use crate::error::{OpenError, SettingError, SqlError, is_of_session};
use crate::session::Server;

/// A connection for one call.
///
/// If a future of sqlx is dropped halfway, its connection may be inside a transaction that the pool
/// does not know of, and the next user of the connection would be inside it too (sqlx issue 4385).
/// So a connection goes back only when its call has ended; otherwise it is closed, and the server
/// rolls back.
pub(crate) struct Lent<DB: Server> {
    connection: Option<PoolConnection<DB>>,
    of: Connections<DB>,
}

impl<DB: Server> Lent<DB> {
    /// Lends a connection. Now and then the settings of the server are checked on it before, and
    /// what is wrong is warned about.
    pub(crate) async fn from(connections: &Connections<DB>) -> Result<Self, SqlError> {
        let lent = Self::unchecked(connections).await?;
        if !connections.is_check_due() {
            return Ok(lent);
        }
        let (lent, judged) = lent.judged().await?;
        if let Err(SettingError {
            variable,
            value,
            why,
        }) = judged
        {
            let hazard = Hazard {
                setting: variable.to_owned(),
                value,
                remedy: why,
            };
            hazard.warn(&connections.place());
        }
        Ok(lent)
    }

    /// Checks the settings of the server and of a session, unless that was done a moment ago.
    pub(crate) async fn check(connections: &Connections<DB>) -> Result<(), OpenError> {
        if !connections.is_check_due() && connections.is_sound() {
            return Ok(());
        }
        let (lent, judged) = Self::unchecked(connections).await?.judged().await?;
        lent.end(Ok(()))?;
        Ok(judged?)
    }

    /// Lends a connection.
    pub(crate) async fn unchecked(connections: &Connections<DB>) -> Result<Self, SqlError> {
        let of = connections.clone();
        let mut waits = Waits {
            for_one_of: connections,
            is_over: false,
        };
        let acquired = of.pool.acquire().await;
        waits.is_over = true;
        match acquired {
            Ok(connection) => Ok(Self {
                connection: Some(connection),
                of,
            }),
            Err(error) => {
                // Idle connections that do not answer are lent again, one after the other.
                if matches!(error, sqlx::Error::PoolTimedOut) {
                    of.close_idle();
                }
                Err(heard(&of, error))
            }
        }
    }

    async fn judged(mut self) -> Result<(Self, Result<(), SettingError>), SqlError> {
        match DB::read(self.get()).await {
            Ok(values) => {
                let judged = self.of.judge(values);
                Ok((self, judged))
            }
            Err(error) => self.end_or_close(Err(error)),
        }
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
        result.map_err(|error| heard(&self.of, error))
    }

    /// Ends the call with this result. After an error the connection is closed.
    pub(crate) fn end_or_close<T>(mut self, result: Result<T, sqlx::Error>) -> Result<T, SqlError> {
        if result.is_ok() {
            self.connection.take();
        }
        result.map_err(|error| heard(&self.of, error))
    }

    /// Closes a session that can only read.
    pub(crate) fn close_read_only(self) -> SqlError {
        heard(
            &self.of,
            SqlError::read_only("the transaction was read-only"),
        )
    }
}

/// Records an error of a database, and names that.
fn heard<DB: Server>(of: &Connections<DB>, error: impl Into<SqlError>) -> SqlError {
    let error = error.into();
    of.heard(&error);
    error.at(|| of.named())
}

impl<DB: Server> Drop for Lent<DB> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // The call may have been given up because the server does not answer.
            self.of.look();
            drop(connection.detach());
        }
    }
}

/// A call that waits for a connection. It may be given up before the pool gives up.
struct Waits<'a, DB: Server> {
    for_one_of: &'a Connections<DB>,
    is_over: bool,
}

impl<DB: Server> Drop for Waits<'_, DB> {
    fn drop(&mut self) {
        if !self.is_over {
            self.for_one_of.look();
        }
    }
}
