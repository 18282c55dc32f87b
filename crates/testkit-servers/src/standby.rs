//! Servers that follow another one, and are promoted.

use crate::kind::Follows;
use crate::{Server, ServerError};

impl<K: Follows> Server<K> {
    /// A server that may be [followed](Self::standby).
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn start_primary() -> Result<Self, ServerError> {
        Self::create(K::create_primary).await
    }

    /// A new server with the data of this one, which it follows asynchronously. It may not have all
    /// of them yet when this returns. This one was started by
    /// [`start_primary`](Self::start_primary).
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), and [`Program`](ServerError::Program) if this one refuses.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn standby(&self) -> Result<Self, ServerError> {
        let port = self.port();
        let standby = Self::create(move |folder| K::create_standby(folder, port)).await?;
        standby.tell(&K::follow(port)).await?;
        Ok(standby)
    }

    /// Nothing more of the primary reaches this standby.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it refuses.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn fall_behind(&self) -> Result<(), ServerError> {
        self.tell(K::FALL_BEHIND).await
    }

    /// This standby becomes a primary, with what has reached it.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it refuses.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn promote(&self) -> Result<(), ServerError> {
        self.tell(K::PROMOTE).await
    }

    /// Each in a transaction of its own.
    async fn tell(&self, statements: &[impl AsRef<str>]) -> Result<(), ServerError> {
        for statement in statements {
            self.execute(K::DATABASE, statement.as_ref()).await?;
        }
        Ok(())
    }
}
