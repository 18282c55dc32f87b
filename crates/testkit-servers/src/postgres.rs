//! PostgreSQL.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::kind::{Dumps, Follows, Kind};
use crate::process::{Program, User};
use crate::program::{find, run, service_user};
use crate::server::LOG;
use crate::tls::{Files, ServerTls};
use crate::{Server, ServerError};

/// A PostgreSQL server of a test.
///
/// It runs with PostgreSQL's default settings, so commits are durable, except `max_connections`,
/// which is 200, and `wal_keep_size`, which is 1 GB. Clients need the password. When the test runs
/// as root, the server runs as the user `postgres`, because it refuses to run as root.
///
/// A server that was killed and not started again leaves a segment of shared memory of 56 bytes
/// behind, as PostgreSQL always does; `ipcs` lists them.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::Postgres;
///
/// let server = Postgres::start().await?;
/// assert_eq!(server.execute("postgres", "select 1").await?, "1\n");
/// # Ok(())
/// # }
/// ```
pub type Postgres = Server<PostgreSql>;

/// How often a restore is tried.
const RESTORES: usize = 10;

/// The kind of a [`Postgres`].
#[derive(Debug)]
pub struct PostgreSql {
    /// The folder of the programs of one version.
    programs: PathBuf,
    user: Option<User>,
}

impl Kind for PostgreSql {
    const SCHEME: &str = "postgres";
    const DATABASE: &str = "postgres";
    // TERM would wait until the clients leave.
    const STOP_SIGNAL: &str = "INT";

    fn create(folder: &Path) -> Result<Self, ServerError> {
        let created = Self::prepare(folder)?;
        run(
            &created.programs.join("initdb"),
            created.user,
            60,
            |initdb| {
                initdb.arg("--pgdata").arg(data(folder));
                initdb.arg("--pwfile").arg(password(folder));
                initdb.args(["--username", Server::<Self>::USER]);
                initdb.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]);
                // Tests kill the server, never the machine.
                initdb.arg("--no-sync").current_dir(folder);
            },
        )?;
        Ok(created)
    }

    fn program(&self, folder: &Path, port: u16) -> Program {
        let mut sockets = std::ffi::OsString::from("unix_socket_directories=");
        sockets.push(folder);
        Program::new(&self.programs.join("postgres"), folder, &folder.join(LOG))
            .user(self.user)
            // Ends at once, and frees shared memory that would outlive a KILL.
            .last_signal("QUIT")
            .arg("-D")
            .arg(data(folder))
            .arg("-p")
            .arg(port.to_string())
            .arg("-c")
            .arg(sockets)
            // A standby has this name at its primary.
            .arg("-c")
            .arg(format!("cluster_name={}", name(port)))
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=200",
                // What a standby still needs is there.
                "-c",
                "wal_keep_size=1GB",
                // In the folder, so that it is removed with it.
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
        self.psql(port, database, seconds, |psql| {
            // Prints only rows.
            psql.args(["--tuples-only", "--no-align", "--field-separator=\t"]);
            psql.args(["--command", sql]);
        })
    }

    fn is_ready(&self, folder: &Path, port: u16, seconds: u64) -> bool {
        self.execute(port, Self::DATABASE, "show data_directory", seconds)
            .is_ok_and(|answer| Path::new(answer.trim_end()) == data(folder))
    }
}

impl PostgreSql {
    /// Runs a client program on a database.
    fn client(
        &self,
        program: &str,
        port: u16,
        database: &str,
        seconds: u64,
        set_up: impl FnOnce(&mut Command),
    ) -> Result<String, ServerError> {
        run(&self.programs.join(program), None, seconds, |client| {
            client.env("PGPASSWORD", Server::<Self>::PASSWORD);
            client.args(["--host=127.0.0.1", &format!("--port={port}")]);
            client.args(["--username", Server::<Self>::USER, "--no-password"]);
            client.args(["--dbname", database]);
            set_up(client);
        })
    }

    /// Runs the client for SQL, without the settings of the user.
    fn psql(
        &self,
        port: u16,
        database: &str,
        seconds: u64,
        set_up: impl FnOnce(&mut Command),
    ) -> Result<String, ServerError> {
        self.client("psql", port, database, seconds, |psql| {
            psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]);
            set_up(psql);
        })
    }
}

impl Server<PostgreSql> {
    /// The user that needs TLS and, once [`serve_tls`](Self::serve_tls) was called for clients with
    /// certificates, one of these. It has the password of [`USER`](Self::USER), and its rights.
    pub const TLS_USER: &str = "keylane_tls";

    /// Serves TLS from now on, beside connections without it. A later call changes the
    /// certificates.
    ///
    /// # Errors
    ///
    /// [`System`](ServerError::System) if the files cannot be written, and
    /// [`Program`](ServerError::Program) if the server refuses.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub async fn serve_tls(&self, tls: &ServerTls) -> Result<(), ServerError> {
        let tls = tls.clone();
        self.run(move |inner| inner.kind.serve_tls(inner.folder.path(), inner.port, &tls))
            .await
    }
}

impl PostgreSql {
    fn serve_tls(&self, folder: &Path, port: u16, tls: &ServerTls) -> Result<(), ServerError> {
        const SECONDS: u64 = 60;
        let execute = |sql: &str| self.execute(port, Self::DATABASE, sql, SECONDS);
        // A new name for each certificate shows when the server has read it.
        let name = free_name(folder);
        let files = Files::write(folder, &name, tls)?;
        let clients = files.clients.as_ref();
        for (setting, value) in [
            ("ssl_cert_file", files.certificate.display().to_string()),
            ("ssl_key_file", files.key.display().to_string()),
            (
                "ssl_ca_file",
                clients.map_or_else(String::new, |path| path.display().to_string()),
            ),
            ("ssl", "on".to_owned()),
        ] {
            execute(&format!("alter system set {setting} = '{value}'"))?;
        }
        let (user, password) = (Server::<Self>::TLS_USER, Server::<Self>::PASSWORD);
        let exists = execute(&format!("select 1 from pg_roles where rolname = '{user}'"))?;
        if exists.is_empty() {
            execute(&format!(
                "create role {user} superuser login password '{password}'"
            ))?;
        }
        let certificate = match clients {
            Some(_) => " clientcert=verify-ca",
            None => "",
        };
        let rule = format!("hostssl all {user} 127.0.0.1/32 scram-sha-256{certificate}\n");
        let others = format!("hostnossl all {user} all reject\n");
        let hba = data(folder).join("pg_hba.conf");
        let is_ours = |line: &&str| line.contains(user);
        let written = fs::read_to_string(&hba).and_then(|text| {
            let kept: Vec<_> = text.lines().filter(|line| !is_ours(line)).collect();
            fs::write(&hba, rule + &others + &kept.join("\n") + "\n")
        });
        written.map_err(ServerError::system("write the rules of the server"))?;
        execute("select pg_reload_conf()")?;
        let began = Instant::now();
        while !execute("show ssl_cert_file")?.contains(&name) {
            if began.elapsed() > Duration::from_secs(SECONDS) {
                let log = String::new();
                return Err(ServerError::NotReady {
                    seconds: SECONDS,
                    log,
                });
            }
        }
        Ok(())
    }
}

/// Returns a name that no file in the folder has.
fn free_name(folder: &Path) -> String {
    let is_free = |name: &String| !folder.join(format!("{name}.pem")).exists();
    let mut names = (0..).map(|number: u32| format!("tls-{number}-"));
    names.find(is_free).unwrap_or_default()
}

impl PostgreSql {
    fn restore(
        &self,
        port: u16,
        database: &str,
        file: &Path,
        seconds: u64,
    ) -> Result<(), ServerError> {
        let read = self.psql(port, database, seconds, |psql| {
            psql.args(["--single-transaction", "--file"]).arg(file);
        });
        read.map(drop)
    }
}

impl Dumps for PostgreSql {
    fn dump(
        &self,
        port: u16,
        database: &str,
        file: &Path,
        seconds: u64,
    ) -> Result<(), ServerError> {
        let dumped = self.client("pg_dump", port, database, seconds, |dump| {
            // The restore drops existing objects.
            dump.args(["--clean", "--if-exists", "--file"]).arg(file);
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
        // What uses the database meanwhile locks its tables in another order. A restore that the
        // server ends for this has changed nothing.
        for _ in 1..RESTORES {
            match self.restore(port, database, file, seconds) {
                Err(ServerError::Program { output, .. })
                    if output.contains("deadlock detected") => {}
                restored => return restored,
            }
        }
        self.restore(port, database, file, seconds)
    }
}

impl Follows for PostgreSql {
    const FALL_BEHIND: &[&str] = &[
        "alter system set primary_conninfo = ''",
        "select pg_reload_conf()",
    ];

    const STOP_RECEIVING: &[&str] = &[];

    const PROMOTE: &[&str] = &["select pg_promote()"];

    fn create_primary(folder: &Path) -> Result<Self, ServerError> {
        Self::create(folder)
    }

    /// Also gives the folder to the user of the server.
    fn prepare(folder: &Path) -> Result<Self, ServerError> {
        // It may be a link. The server and the client of the same version are beside its target.
        let initdb = find("initdb")?;
        let initdb = initdb.canonicalize().unwrap_or(initdb);
        let programs = initdb.parent().unwrap_or(Path::new("/")).to_owned();
        let user = service_user(folder, "postgres")?;
        let password = password(folder);
        let prepared = || {
            fs::write(&password, Server::<Self>::PASSWORD)?;
            let Some(user) = user else { return Ok(()) };
            [folder, &password]
                .into_iter()
                .try_for_each(|path| chown(path, Some(user.uid), Some(user.gid)))
        };
        prepared().map_err(ServerError::system("prepare the folder of the server"))?;
        Ok(Self { programs, user })
    }

    fn copy(&self, folder: &Path, port: u16) -> Result<(), ServerError> {
        let copied = run(
            &self.programs.join("pg_basebackup"),
            self.user,
            60,
            |copy| {
                copy.env("PGPASSWORD", Server::<Self>::PASSWORD);
                copy.arg("--pgdata").arg(data(folder));
                copy.args(["--host=127.0.0.1", &format!("--port={port}")]);
                copy.args(["--username", Server::<Self>::USER, "--no-password"]);
                copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
                copy.current_dir(folder);
            },
        );
        copied.map(drop)
    }

    fn synchronous(port: u16) -> Vec<String> {
        let name = name(port);
        vec![
            format!("alter system set synchronous_standby_names = '{name}'"),
            "select pg_reload_conf()".to_owned(),
        ]
    }

    fn is_synchronous(port: u16) -> String {
        let name = name(port);
        format!(
            "select count(*) from pg_stat_replication
             where application_name = '{name}' and sync_state = 'sync'"
        )
    }

    fn has_applied(&self, _: u16, _: u64) -> Result<bool, ServerError> {
        // It does so before it becomes a primary.
        Ok(true)
    }

    fn follow(_: u16) -> Vec<String> {
        // The files of the standby configure this.
        Vec::new()
    }
}

/// The name of a standby, by its port.
fn name(port: u16) -> String {
    format!("keylane_{port}")
}

fn password(folder: &Path) -> PathBuf {
    folder.join("password")
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}
