//! MariaDB.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use crate::servers::kind::Kind;
use crate::servers::process::{Program, User};
use crate::servers::program::{find, run, service_user};
use crate::servers::server::LOG;
use crate::servers::{Server, ServerError};

/// A MariaDB server of a test.
///
/// It runs with the settings that MariaDB is compiled with, so commits are durable, but for
/// `max_connections`, which is 200, `max_allowed_packet`, which is 1 GiB, and `skip_name_resolve`.
/// When the test runs as root, the server runs as the user `mysql`, because it refuses to run as root.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), keylane_testkit::servers::ServerError> {
/// use keylane_testkit::servers::MariaDb;
///
/// let server = MariaDb::start().await?;
/// assert_eq!(server.execute("mysql", "select 1").await?, "1\n");
/// # Ok(())
/// # }
/// ```
pub type MariaDb = Server<Maria>;

/// The kind of a [`MariaDb`].
#[derive(Debug)]
pub struct Maria {
    server: PathBuf,
    client: PathBuf,
    user: Option<User>,
}

impl Kind for Maria {
    const SCHEME: &str = "mysql";
    const DATABASE: &str = "mysql";
    const STOP_SIGNAL: &str = "TERM";

    fn create(folder: &Path) -> Result<Self, ServerError> {
        let server = find("mariadbd")?;
        let client = find("mariadb")?;
        let install = find("mariadb-install-db")?;
        let user = service_user(folder, "mysql")?;
        let prepared = || {
            fs::write(users(folder), create_users())?;
            let Some(user) = user else { return Ok(()) };
            [folder, &users(folder)]
                .into_iter()
                .try_for_each(|path| chown(path, Some(user.uid), Some(user.gid)))
        };
        prepared().map_err(ServerError::system("prepare the folder of the server"))?;
        run(&install, user, 60, |install| {
            install.arg("--no-defaults");
            install.arg(option("datadir", &data(folder)));
            install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
            // At its start it removes temporary tables there, also those of another server.
            install.env("TMPDIR", folder).current_dir(folder);
        })?;
        Ok(Self {
            server,
            client,
            user,
        })
    }

    fn program(&self, folder: &Path, port: u16) -> Program {
        Program::new(&self.server, folder, &folder.join(LOG))
            .user(self.user)
            // Nothing outlives a KILL but the folder, and an end in order writes all pages.
            .last_signal("KILL")
            .args(["--no-defaults", "--bind-address=127.0.0.1"])
            .arg(format!("--port={port}"))
            .arg(option("datadir", &data(folder)))
            .env("TMPDIR", folder)
            .arg(option("socket", &folder.join("socket")))
            .arg(option("pid-file", &folder.join("pid")))
            // Executed before the first client is let in.
            .arg(option("init-file", &users(folder)))
            .args(["--skip-name-resolve", "--max-connections=200"])
            // A statement has a message in it.
            .arg("--max-allowed-packet=1G")
    }

    fn execute(
        &self,
        port: u16,
        database: &str,
        sql: &str,
        seconds: u64,
    ) -> Result<String, ServerError> {
        run(&self.client, None, seconds, |client| {
            client.env("MYSQL_PWD", Server::<Self>::PASSWORD);
            client.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1"]);
            client.args([format!("--port={port}")]);
            client.args(["--user", Server::<Self>::USER]);
            client.args(["--batch", "--skip-column-names"]);
            client.args(["--execute", sql, database]);
        })
    }

    fn is_ready(&self, folder: &Path, port: u16, seconds: u64) -> bool {
        // With a slash at its end, which a path does not see.
        self.execute(port, Self::DATABASE, "select @@datadir", seconds)
            .is_ok_and(|answer| Path::new(answer.trim_end()) == data(folder))
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn users(folder: &Path) -> PathBuf {
    folder.join("users.sql")
}

/// For every start: the second one changes nothing.
fn create_users() -> String {
    let (user, password) = (Server::<Maria>::USER, Server::<Maria>::PASSWORD);
    let create = |host| {
        format!(
            "create user if not exists '{user}'@'{host}' identified by '{password}';\n\
             grant all on *.* to '{user}'@'{host}' with grant option;\n"
        )
    };
    ["127.0.0.1", "localhost", "%"].map(create).concat()
}

/// `--name=path`: MariaDB takes no space between them.
fn option(name: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(format!("--{name}="));
    option.push(path);
    option
}
