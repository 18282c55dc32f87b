//! Servers that follow another one, and can be promoted.

use crate::kind::Follows;
use crate::{Server, ServerError};

impl<K: Follows> Server<K> {
    /// Starts a server that may be [followed](Self::standby).
    ///
    /// # Errors
    ///
    /// The same as those of [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn start_primary() -> Result<Self, ServerError> {
        Self::create(K::create_primary).await
    }

    /// Starts a new server with the data of this one, which it follows asynchronously. When this
    /// returns, some data may still be missing. This server must come from
    /// [`start_primary`](Self::start_primary).
    ///
    /// # Errors
    ///
    /// The same as those of [`start`](Self::start), and [`Program`](ServerError::Program) if this
    /// server refuses.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn standby(&self) -> Result<Self, ServerError> {
        let port = self.port();
        let standby = Self::create(move |folder| K::create_standby(folder, port)).await?;
        standby.tell(&K::follow(port)).await?;
        Ok(standby)
    }

    /// Cuts this standby off from the primary: it receives no further changes.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it refuses.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn fall_behind(&self) -> Result<(), ServerError> {
        self.tell(K::FALL_BEHIND).await
    }

    /// Makes this standby a primary, with the changes that it has received.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it refuses.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn promote(&self) -> Result<(), ServerError> {
        self.tell(K::PROMOTE).await
    }

    /// Executes statements, each in a transaction of its own.
    async fn tell(&self, statements: &[impl AsRef<str>]) -> Result<(), ServerError> {
        for statement in statements {
            self.execute(K::DATABASE, statement.as_ref()).await?;
        }
        Ok(())
    }
}
