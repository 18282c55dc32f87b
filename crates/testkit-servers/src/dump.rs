//! Dumps of databases.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::kind::Dumps;
use crate::server::QUERY_SECONDS;
use crate::{Server, ServerError};

/// The contents of a database.
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
    /// Dumps a database, from one snapshot, with the dump program of the server.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it takes longer than a minute, or the server refuses.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the dump is discarded.
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

    /// Restores a [dump](Self::dump) into a database, and replaces its contents.
    ///
    /// # Errors
    ///
    /// [`Program`](ServerError::Program) if it takes longer than a minute, or the server refuses.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the dump is restored all the same.
    pub async fn bring_back(&self, database: &str, dump: &Dump) -> Result<(), ServerError> {
        let (database, file) = (database.to_owned(), dump.file());
        self.run(move |inner| {
            let (kind, port) = (&inner.kind, inner.port);
            kind.bring_back(port, &database, &file, QUERY_SECONDS)
        })
        .await
    }
}
