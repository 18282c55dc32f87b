//! Servers that follow another one, and can be promoted.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::daemon::PATIENCE;
use crate::kind::Follows;
use crate::program::tail;
use crate::server::QUERY_SECONDS;
use crate::{Server, ServerError};

/// How long to wait before a primary is asked again.
const PROBE_PAUSE: Duration = Duration::from_millis(20);

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
        Self::standby_of(self.port()).await
    }

    /// Does the same with the primary on this port, which may be that of a
    /// [`Proxy`](crate::proxy::Proxy) on the way to it.
    ///
    /// # Errors
    ///
    /// The same as those of [`standby`](Self::standby).
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn standby_of(port: u16) -> Result<Self, ServerError> {
        let standby = Self::create(move |folder| K::create_standby(folder, port)).await?;
        standby.tell(&K::follow(port)).await?;
        Ok(standby)
    }

    /// Starts this server, which does not run, as a standby of the primary on `port`. Its own data
    /// are replaced, as those of a former primary must be. See [`standby_of`](Self::standby_of).
    ///
    /// # Errors
    ///
    /// [`Running`](ServerError::Running) if it runs, and the same as those of
    /// [`standby`](Self::standby).
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn rejoin(&self, port: u16) -> Result<(), ServerError> {
        if self.pid().is_some() {
            return Err(ServerError::Running);
        }
        self.run(move |inner| {
            let folder = inner.folder.path();
            let system = ServerError::system("remove the data of the server");
            fs::remove_dir_all(folder.join("data")).map_err(system)?;
            inner.kind.copy(folder, port)?;
            inner.start_again()
        })
        .await?;
        self.tell(&K::follow(port)).await
    }

    /// Lets commits on this primary wait until `standby` has them, from the moment at which this
    /// returns.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it refuses, and [`NotReady`](ServerError::NotReady) if
    /// the standby does not follow within 4 minutes.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn synchronous(&self, standby: &Self) -> Result<(), ServerError> {
        let port = standby.port();
        self.tell(&K::synchronous(port)).await?;
        let query = K::is_synchronous(port);
        self.becomes(move |kind, port| {
            let answer = kind.execute(port, K::DATABASE, &query, QUERY_SECONDS)?;
            Ok(answer.trim_end() == "1")
        })
        .await
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
        self.tell(K::STOP_RECEIVING).await?;
        self.becomes(|kind, port| kind.has_applied(port, QUERY_SECONDS))
            .await?;
        self.tell(K::PROMOTE).await
    }

    /// Waits until this server on its port is in this state.
    async fn becomes(
        &self,
        is_so: impl Fn(&K, u16) -> Result<bool, ServerError> + Send + 'static,
    ) -> Result<(), ServerError> {
        self.run(move |inner| {
            let began = Instant::now();
            while !is_so(&inner.kind, inner.port)? {
                if began.elapsed() > PATIENCE {
                    let (seconds, log) = (PATIENCE.as_secs(), tail(&inner.daemon.log()));
                    return Err(ServerError::NotReady { seconds, log });
                }
                thread::sleep(PROBE_PAUSE);
            }
            Ok(())
        })
        .await
    }

    /// Executes statements, each in a transaction of its own.
    async fn tell(&self, statements: &[impl AsRef<str>]) -> Result<(), ServerError> {
        for statement in statements {
            self.execute(K::DATABASE, statement.as_ref()).await?;
        }
        Ok(())
    }
}
