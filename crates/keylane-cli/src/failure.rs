//! The errors of the program.

use std::io;

use keylane_inbox::error::{OpenError, StoreError};
use keylane_sql::error::{NameError, OpenError as TablesError, SqlError};
use thiserror::Error;

use crate::console::ConsoleError;

/// The reason why the program failed.
#[derive(Error, Debug)]
pub(crate) enum Failure {
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("{0}")]
    Name(#[from] NameError),
    #[error("{0}")]
    Tables(#[from] TablesError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Console(#[from] ConsoleError),
    #[error("{0}")]
    Output(#[from] io::Error),
    #[error("{0}")]
    Other(String),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Tables(error.into())
    }
}
