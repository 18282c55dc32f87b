//! PostgreSQL.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use crate::servers::kind::Kind;
use crate::servers::process::{Program, User};
use crate::servers::program::{find, run, service_user};
use crate::servers::server::LOG;
use crate::servers::{Server, ServerError};

/// A PostgreSQL server of a test.
///
/// It runs with the settings that PostgreSQL comes with, so commits are durable, but for
/// `max_connections`, which is 200. Clients need the password. When the test runs as root, the
/// server runs as the user `postgres`, because it refuses to run as root.
///
/// One that was killed and not started again leaves a segment of shared memory of 56 bytes behind,
/// as PostgreSQL does; `ipcs` lists them.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), keylane_testkit::servers::ServerError> {
/// use keylane_testkit::servers::Postgres;
///
/// let server = Postgres::start().await?;
/// assert_eq!(server.execute("postgres", "select 1").await?, "1\n");
/// # Ok(())
/// # }
/// ```
pub type Postgres = Server<PostgreSql>;

/// The kind of a [`Postgres`].
#[derive(Debug)]
pub struct PostgreSql {
    /// Where the programs of one version are.
    programs: PathBuf,
    user: Option<User>,
}

impl Kind for PostgreSql {
    const SCHEME: &str = "postgres";
    const DATABASE: &str = "postgres";
    // TERM would wait for the clients to go.
    const STOP_SIGNAL: &str = "INT";

    fn create(folder: &Path) -> Result<Self, ServerError> {
        // A link may lead to it. The server and the client of the same version are beside it.
        let initdb = find("initdb")?;
        let initdb = initdb.canonicalize().unwrap_or(initdb);
        let programs = initdb.parent().unwrap_or(Path::new("/")).to_owned();
        let user = service_user(folder, "postgres")?;
        let password = folder.join("password");
        let prepared = || {
            fs::write(&password, Server::<Self>::PASSWORD)?;
            let Some(user) = user else { return Ok(()) };
            [folder, &password]
                .into_iter()
                .try_for_each(|path| chown(path, Some(user.uid), Some(user.gid)))
        };
        prepared().map_err(ServerError::system("prepare the folder of the server"))?;
        run(&initdb, user, 60, |initdb| {
            initdb.arg("--pgdata").arg(data(folder));
            initdb.arg("--pwfile").arg(&password);
            initdb.args(["--username", Server::<Self>::USER]);
            initdb.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]);
            // Tests kill the server, never the machine.
            initdb.arg("--no-sync").current_dir(folder);
        })?;
        Ok(Self { programs, user })
    }

    fn program(&self, folder: &Path, port: u16) -> Program {
        let mut sockets = std::ffi::OsString::from("unix_socket_directories=");
        sockets.push(folder);
        Program::new(&self.programs.join("postgres"), folder, &folder.join(LOG))
            .user(self.user)
            // Ends at once, and gives shared memory back that would outlive a KILL.
            .last_signal("QUIT")
            .arg("-D")
            .arg(data(folder))
            .arg("-p")
            .arg(port.to_string())
            .arg("-c")
            .arg(sockets)
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=200",
                // In the folder, so that it goes with it.
                "-c",
                "dynamic_shared_memory_type=mmap",
            ])
    }

    fn execute(
        &self,
        port: u16,
        database: &str,
        sql: &str,
        seconds: u64,
    ) -> Result<String, ServerError> {
        run(&self.programs.join("psql"), None, seconds, |psql| {
            psql.env("PGPASSWORD", Server::<Self>::PASSWORD);
            psql.args(["--host=127.0.0.1", &format!("--port={port}")]);
            psql.args(["--username", Server::<Self>::USER]);
            psql.args(["--dbname", database, "--command", sql]);
            // Without the user's settings, and rows alone.
            psql.args(["--no-psqlrc", "--no-password", "--quiet", "--tuples-only"]);
            psql.args(["--no-align", "--field-separator=\t"]);
            psql.arg("--set=ON_ERROR_STOP=1");
        })
    }

    fn is_ready(&self, folder: &Path, port: u16, seconds: u64) -> bool {
        self.execute(port, Self::DATABASE, "show data_directory", seconds)
            .is_ok_and(|answer| Path::new(answer.trim_end()) == data(folder))
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}
