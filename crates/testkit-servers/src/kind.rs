//! The differences between database servers.

use std::path::Path;

use crate::ServerError;
use crate::process::Program;

/// How to create, start and query a server. The methods of [`Server`](crate::Server) use this
/// trait.
///
/// It is public but not reachable: no other crate can implement it.
pub trait Kind: Sized + Send + Sync + 'static {
    /// The scheme of its URLs.
    const SCHEME: &str;

    /// A database that always exists.
    const DATABASE: &str;

    /// The signal after which it closes its sessions and stops in order.
    const STOP_SIGNAL: &str;

    /// Finds the programs and creates the data in `folder`.
    fn create(folder: &Path) -> Result<Self, ServerError>;

    /// Returns the server on the data in `folder`.
    fn program(&self, folder: &Path, port: u16) -> Program;

    /// Executes `sql` through the client program.
    fn execute(
        &self,
        port: u16,
        database: &str,
        sql: &str,
        seconds: u64,
    ) -> Result<String, ServerError>;

    /// Returns whether the server answers a query, and is the one on the data in `folder`: another
    /// one may have taken the port.
    fn is_ready(&self, folder: &Path, port: u16, seconds: u64) -> bool;
}

/// A kind whose servers can follow another one.
///
/// It is not reachable, like [`Kind`].
pub trait Follows: Kind {
    /// The statements that cut a standby off from the primary.
    const FALL_BEHIND: &[&str];

    /// The statements after which a standby receives no further changes.
    const STOP_RECEIVING: &[&str];

    /// The statements that make a standby a primary.
    const PROMOTE: &[&str];

    /// Creates the data like [`create`](Kind::create), for a server that can be followed.
    fn create_primary(folder: &Path) -> Result<Self, ServerError>;

    /// Returns the statements with which commits on the primary wait for the standby on `port`.
    fn synchronous(port: u16) -> Vec<String>;

    /// Returns a query of the primary that returns 1 when its commits wait for that standby.
    fn is_synchronous(port: u16) -> String;

    /// Returns whether a standby on `port` has applied the changes that it has received.
    fn has_applied(&self, port: u16, seconds: u64) -> Result<bool, ServerError>;

    /// Finds the programs of a server in `folder`, which has no data yet and can be followed.
    fn prepare(folder: &Path) -> Result<Self, ServerError>;

    /// Creates the data of a standby in its folder; the primary listens on `port`.
    fn copy(&self, folder: &Path, port: u16) -> Result<(), ServerError>;

    /// Does both for a new standby.
    fn create_standby(folder: &Path, port: u16) -> Result<Self, ServerError> {
        let prepared = Self::prepare(folder)?;
        prepared.copy(folder, port)?;
        Ok(prepared)
    }

    /// Returns the statements for a running standby.
    fn follow(port: u16) -> Vec<String>;
}

/// A kind whose databases can be dumped and restored.
///
/// It is not reachable, like [`Kind`].
pub trait Dumps: Kind {
    /// Dumps a database into `file`, with the program for it.
    fn dump(&self, port: u16, database: &str, file: &Path, seconds: u64)
    -> Result<(), ServerError>;

    /// Restores `file` into a database, and replaces its contents.
    fn bring_back(
        &self,
        port: u16,
        database: &str,
        file: &Path,
        seconds: u64,
    ) -> Result<(), ServerError>;
}
