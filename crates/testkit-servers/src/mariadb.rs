//! MariaDB.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::kind::{Dumps, Follows, Kind};
use crate::process::{Program, User};
use crate::program::{find, run, service_user};
use crate::server::LOG;
use crate::tls::{Files, ServerTls};
use crate::{Server, ServerError};

/// A MariaDB server of a test.
///
/// It runs with MariaDB's default settings, so commits are durable, except `max_connections`, which
/// is 200, `max_allowed_packet`, which is 1 GiB, and `skip_name_resolve`. When the test runs as
/// root, the server runs as the user `mysql`, because it refuses to run as root.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::MariaDb;
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
    /// Whether it logs its changes for standbys.
    is_logged: bool,
    /// How often its data were created.
    installed: AtomicU32,
}

impl Kind for Maria {
    const SCHEME: &str = "mysql";
    const DATABASE: &str = "mysql";
    const STOP_SIGNAL: &str = "TERM";

    fn create(folder: &Path) -> Result<Self, ServerError> {
        let created = Self::find(folder)?;
        created.install(folder)?;
        Ok(created)
    }

    fn program(&self, folder: &Path, port: u16) -> Program {
        Program::new(&self.server, folder, &folder.join(LOG))
            .user(self.user)
            // Only the folder outlives a KILL, and an orderly end writes all pages.
            .last_signal("KILL")
            .args(["--no-defaults", "--bind-address=127.0.0.1"])
            .arg(format!("--port={port}"))
            .arg(option("datadir", &data(folder)))
            .env("TMPDIR", folder)
            .arg(option("socket", &folder.join("socket")))
            .arg(option("pid-file", &folder.join("pid")))
            // Executed before the server admits the first client.
            .arg(option("init-file", &users(folder)))
            .args(["--skip-name-resolve", "--max-connections=200"])
            .args(match tls(folder).exists() {
                true => vec![
                    option("ssl-cert", &tls(folder)),
                    option("ssl-key", &tls(folder).with_extension("key")),
                    option("ssl-ca", &tls(folder).with_extension("clients")),
                ],
                false => Vec::new(),
            })
            // A statement contains a message.
            .arg("--max-allowed-packet=1G")
            .args(match self.is_logged {
                // Each server has a number of its own.
                true => vec![
                    "--log-bin=binlog".to_owned(),
                    format!("--server-id={}", self.id(port)),
                    // A standby has all that another standby needs from it, when it is promoted.
                    "--log-slave-updates".to_owned(),
                    "--rpl-semi-sync-slave-enabled=on".to_owned(),
                ],
                false => Vec::new(),
            })
    }

    fn execute(
        &self,
        port: u16,
        database: &str,
        sql: &str,
        seconds: u64,
    ) -> Result<String, ServerError> {
        run(&self.client, None, seconds, |client| {
            connect(client, port);
            client.args(["--batch", "--skip-column-names"]);
            client.args(["--execute", sql, database]);
        })
    }

    fn is_ready(&self, folder: &Path, port: u16, seconds: u64) -> bool {
        // The server adds a slash at its end, which the comparison of paths ignores.
        self.execute(port, Self::DATABASE, "select @@datadir", seconds)
            .is_ok_and(|answer| Path::new(answer.trim_end()) == data(folder))
    }
}

impl Maria {
    /// Finds the programs, and gives the folder to the user of the server.
    fn find(folder: &Path) -> Result<Self, ServerError> {
        let server = find("mariadbd")?;
        let client = find("mariadb")?;
        let user = service_user(folder, "mysql")?;
        let prepared = || {
            fs::write(users(folder), create_users())?;
            let Some(user) = user else { return Ok(()) };
            [folder, &users(folder)]
                .into_iter()
                .try_for_each(|path| chown(path, Some(user.uid), Some(user.gid)))
        };
        prepared().map_err(ServerError::system("prepare the folder of the server"))?;
        Ok(Self {
            server,
            client,
            user,
            is_logged: false,
            installed: AtomicU32::new(0),
        })
    }

    /// Returns its number. A server skips the changes in a log that have its own number: one that
    /// is created again needs those that it has made before.
    fn id(&self, port: u16) -> u32 {
        u32::from(port) + (self.installed.load(Ordering::Relaxed) << 16)
    }

    /// Creates the data.
    fn install(&self, folder: &Path) -> Result<(), ServerError> {
        self.installed.fetch_add(1, Ordering::Relaxed);
        let installed = run(&find("mariadb-install-db")?, self.user, 60, |install| {
            install.arg("--no-defaults");
            install.arg(option("datadir", &data(folder)));
            install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
            // At its start it removes temporary tables there, including those of another server.
            install.env("TMPDIR", folder).current_dir(folder);
        });
        installed.map(drop)
    }
}

impl Server<Maria> {
    /// The user that needs a certificate, once [`serve_tls`](Self::serve_tls) was called for
    /// clients with certificates. It has the password of [`USER`](Self::USER), and its rights.
    pub const TLS_USER: &str = "keylane_tls";

    /// Serves TLS from now on, beside connections without it. The first call starts the server
    /// again; a later one changes the certificates.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if the files cannot be written,
    /// [`Program`](ServerError::Program) if the server refuses, and those of
    /// [`start_again`](Self::start_again).
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn serve_tls(&self, tls: &ServerTls) -> Result<(), ServerError> {
        let tls = tls.clone();
        self.run(move |inner| {
            let folder = inner.folder.path();
            let is_first = !self::tls(folder).exists();
            let files = Files::write(folder, TLS, &tls)?;
            if files.clients.is_none() {
                // The server wants one of its own.
                fs::copy(
                    &files.certificate,
                    files.certificate.with_extension("clients"),
                )
                .and_then(|_| {
                    let owner = fs::metadata(folder)?;
                    let copy = files.certificate.with_extension("clients");
                    chown(copy, Some(owner.uid()), Some(owner.gid()))
                })
                .map_err(ServerError::system("write the certificates of the server"))?;
            }
            if is_first {
                inner.daemon.stop(Maria::STOP_SIGNAL)?;
                inner.start_again()?;
            }
            let (user, password) = (Self::TLS_USER, Self::PASSWORD);
            let requires = match files.clients {
                Some(_) => "x509",
                None => "ssl",
            };
            let sql = format!(
                "flush ssl; create or replace user '{user}'@'%' identified by '{password}'
                 require {requires}; grant all on *.* to '{user}'@'%'"
            );
            let execute = inner.kind.execute(inner.port, Maria::DATABASE, &sql, 60);
            execute.map(drop)
        })
        .await
    }
}

impl Dumps for Maria {
    fn dump(
        &self,
        port: u16,
        database: &str,
        file: &Path,
        seconds: u64,
    ) -> Result<(), ServerError> {
        let dumped = run(&find("mariadb-dump")?, None, seconds, |dump| {
            connect(dump, port);
            dump.arg("--single-transaction");
            dump.arg(option("result-file", file)).arg(database);
        });
        dumped.map(drop)
    }

    fn bring_back(
        &self,
        port: u16,
        database: &str,
        file: &Path,
        seconds: u64,
    ) -> Result<(), ServerError> {
        let source = format!("source {}", file.display());
        self.execute(port, database, &source, seconds).map(drop)
    }
}

impl Follows for Maria {
    const FALL_BEHIND: &[&str] = &["stop slave"];

    const STOP_RECEIVING: &[&str] = &["stop slave io_thread"];

    const PROMOTE: &[&str] = &[
        "stop slave; reset slave all",
        "set global innodb_flush_log_at_trx_commit = 1",
    ];

    fn create_primary(folder: &Path) -> Result<Self, ServerError> {
        let prepared = Self::prepare(folder)?;
        prepared.install(folder)?;
        Ok(prepared)
    }

    fn prepare(folder: &Path) -> Result<Self, ServerError> {
        Ok(Self {
            is_logged: true,
            ..Self::find(folder)?
        })
    }

    fn synchronous(_: u16) -> Vec<String> {
        // It would not wait for longer than this, by default for 10 s.
        vec![
            "set global rpl_semi_sync_master_timeout = 3600000".to_owned(),
            "set global rpl_semi_sync_master_enabled = on".to_owned(),
            // A commit that waits until the standby has all before it.
            "create or replace table mysql.keylane_synchronous (n int)".to_owned(),
        ]
    }

    fn is_synchronous(_: u16) -> String {
        let status = "information_schema.global_status";
        format!(
            "select variable_value from {status}
             where variable_name = 'Rpl_semi_sync_master_clients'"
        )
    }

    /// It gets all data from the log of its primary.
    fn copy(&self, folder: &Path, _: u16) -> Result<(), ServerError> {
        self.install(folder)
    }

    fn has_applied(&self, port: u16, seconds: u64) -> Result<bool, ServerError> {
        let status = self.execute(port, Self::DATABASE, "show slave status", seconds)?;
        let columns: Vec<&str> = status.split('\t').collect();
        let column = |number: usize| columns.get(number).copied().unwrap_or_default();
        let (runs, error, received) = (column(11) == "Yes", column(18), column(43));
        // Not the positions in the log: the end of the last transaction may be missing.
        let applied = self.execute(port, Self::DATABASE, "select @@gtid_slave_pos", seconds)?;
        Ok(received == applied.trim_end() || !runs && matches!(error, "" | "0"))
    }

    fn follow(port: u16) -> Vec<String> {
        let (user, password) = (Server::<Self>::USER, Server::<Self>::PASSWORD);
        // A sync for each change would take long.
        let no_sync = "set global innodb_flush_log_at_trx_commit = 2";
        // From the first change on: the server has logged since its start.
        let follow = format!(
            "change master to master_host='127.0.0.1', master_port={port}, master_user='{user}',
             master_password='{password}', master_use_gtid=slave_pos; start slave"
        );
        vec![no_sync.to_owned(), follow]
    }
}

/// Sets the address of the server, and the user, for a client program.
fn connect(client: &mut Command, port: u16) {
    client.env("MYSQL_PWD", Server::<Maria>::PASSWORD);
    client.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1"]);
    client.arg(format!("--port={port}"));
    client.args(["--user", Server::<Maria>::USER]);
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn users(folder: &Path) -> PathBuf {
    folder.join("users.sql")
}

/// The name of the files of certificates.
const TLS: &str = "tls";

/// The file of the server's certificate. The others are beside it.
fn tls(folder: &Path) -> PathBuf {
    folder.join(TLS).with_extension("pem")
}

/// Returns the statements for every start: the second run changes nothing.
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

/// Returns `--name=path`: MariaDB allows no space between them.
fn option(name: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(format!("--{name}="));
    option.push(path);
    option
}
