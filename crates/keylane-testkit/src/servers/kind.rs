//! What differs from server to server.

use std::path::Path;

use crate::servers::ServerError;
use crate::servers::process::Program;

/// How a server is created, started and asked. The methods of [`Server`](crate::servers::Server)
/// are written in these terms.
///
/// It is public and out of reach: no other crate can bring a kind of its own.
pub trait Kind: Sized + Send + Sync + 'static {
    /// The scheme of its URLs.
    const SCHEME: &str;

    /// A database that is always there.
    const DATABASE: &str;

    /// The signal after which it closes its sessions and stops in order.
    const STOP_SIGNAL: &str;

    /// Finds the programs and creates the data in `folder`.
    fn create(folder: &Path) -> Result<Self, ServerError>;

    /// The server on the data in `folder`.
    fn program(&self, folder: &Path, port: u16) -> Program;

    /// Executes `sql` through the client program.
    fn execute(
        &self,
        port: u16,
        database: &str,
        sql: &str,
        seconds: u64,
    ) -> Result<String, ServerError>;

    /// Whether the server answers a query, and is the one on the data in `folder`: another one may
    /// have taken the port.
    fn is_ready(&self, folder: &Path, port: u16, seconds: u64) -> bool;
}
