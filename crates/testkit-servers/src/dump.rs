//! Databases that are written down, and brought back.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::kind::Dumps;
use crate::server::QUERY_SECONDS;
use crate::{Server, ServerError};

/// What was in a database.
#[derive(Debug)]
pub struct Dump {
    folder: TempDir,
}

impl Dump {
    fn file(&self) -> PathBuf {
        self.folder.path().join("dump.sql")
    }
}

impl<K: Dumps> Server<K> {
    /// Writes down what is in a database, by one snapshot, through the program of the server for
    /// it.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it takes longer than a minute, or the server refuses.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is left of it.
    pub async fn dump(&self, database: &str) -> Result<Dump, ServerError> {
        let database = database.to_owned();
        self.run(move |inner| {
            let folder = tempfile::tempdir();
            let folder = folder.map_err(ServerError::system("make a folder for a dump"))?;
            let dump = Dump { folder };
            let (kind, port) = (&inner.kind, inner.port);
            kind.dump(port, &database, &dump.file(), QUERY_SECONDS)?;
            Ok(dump)
        })
        .await
    }

    /// Puts what was [written down](Self::dump) into a database, in the place of what is there.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it takes longer than a minute, or the server refuses.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is brought back all the same.
    pub async fn bring_back(&self, database: &str, dump: &Dump) -> Result<(), ServerError> {
        let (database, file) = (database.to_owned(), dump.file());
        self.run(move |inner| {
            let (kind, port) = (&inner.kind, inner.port);
            kind.bring_back(port, &database, &file, QUERY_SECONDS)
        })
        .await
    }
}
