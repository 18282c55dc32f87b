//! What differs from server to server.

use std::path::Path;

use crate::ServerError;
use crate::process::Program;

/// How a server is created, started and asked. The methods of [`Server`](crate::Server)
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

/// A kind of which a server can follow another one, asynchronously.
///
/// It is out of reach as [`Kind`] is.
pub trait Follows: Kind {
    /// What a standby is told so that nothing more of the primary reaches it.
    const FALL_BEHIND: &[&str];

    /// What a standby is told so that it becomes a primary.
    const PROMOTE: &[&str];

    /// As [`create`](Kind::create), of a server that can be followed.
    fn create_primary(folder: &Path) -> Result<Self, ServerError>;

    /// Creates the data of a standby in `folder`; the primary listens on `port`.
    fn create_standby(folder: &Path, port: u16) -> Result<Self, ServerError>;

    /// What a standby is told when it runs.
    fn follow(port: u16) -> Vec<String>;
}

/// A kind whose databases can be written down, and brought back.
///
/// It is out of reach as [`Kind`] is.
pub trait Dumps: Kind {
    /// Writes what is in a database into `file`, through the program for it.
    fn dump(&self, port: u16, database: &str, file: &Path, seconds: u64)
    -> Result<(), ServerError>;

    /// Puts what is in `file` into a database, in the place of what is there.
    fn bring_back(
        &self,
        port: u16,
        database: &str,
        file: &Path,
        seconds: u64,
    ) -> Result<(), ServerError>;
}
