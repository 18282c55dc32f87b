//! `cargo xtask setup`: installs what the other commands need on a bare Debian machine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::process;
use crate::workspace::{self, cargo};

/// Install what the tests and measurements need and this machine lacks
///
/// Looks first and changes nothing that exists. System packages come through apt-get, as root or
/// with sudo; rustfmt and clippy through rustup; Kafka and ZooKeeper with Maven, Redis 8 and Valkey
/// 9 with pip, etcd 3.7 with go where it is installed, into folders of $KEYLANE_CACHE or
/// ~/.cache/keylane. Without these it lists the missing parts. A server that it installs does not
/// run afterwards: the tests start their own.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// A program that comes in a Debian package.
struct Need {
    /// A name on the search path, the whole path of a file, or a command that tells its version
    /// when it is there.
    program: &'static str,
    package: &'static str,
    /// What it is for.
    purpose: &'static str,
    /// Whether the tests cannot do without it.
    required: bool,
    /// The service that the package starts when it is installed.
    service: Option<&'static str>,
}

const NEEDS: [Need; 20] = [
    Need {
        program: "cc",
        package: "gcc libc6-dev",
        purpose: "linking",
        required: true,
        service: None,
    },
    Need {
        program: "c++",
        package: "g++",
        purpose: "Kafka's client library, which is built from source",
        required: true,
        service: None,
    },
    Need {
        program: "make",
        package: "make",
        purpose: "Kafka's client library, which is built from source",
        required: true,
        service: None,
    },
    Need {
        program: "pkg-config",
        package: "pkg-config",
        purpose: "finding OpenSSL, for TLS to Kafka",
        required: true,
        service: None,
    },
    Need {
        program: "/usr/include/openssl/ssl.h",
        package: "libssl-dev",
        purpose: "TLS to Kafka",
        required: true,
        service: None,
    },
    Need {
        program: "git",
        package: "git",
        purpose: "the replay example and the planted bugs",
        required: true,
        service: None,
    },
    Need {
        program: "chromedriver",
        package: "chromium chromium-driver",
        purpose: "the test that looks at the page of `orders`",
        required: true,
        service: None,
    },
    Need {
        program: "strace",
        package: "strace",
        purpose: "the test that makes the system calls of an inbox fail",
        required: true,
        service: None,
    },
    Need {
        program: "faketime",
        package: "faketime",
        purpose: "the tests of servers whose clock is set",
        required: true,
        service: None,
    },
    Need {
        program: "postgres",
        package: "postgresql",
        purpose: "the tests against PostgreSQL",
        required: true,
        service: Some("postgresql"),
    },
    Need {
        program: "pgbouncer",
        package: "pgbouncer",
        purpose: "the tests against PostgreSQL behind a pooler",
        required: true,
        service: Some("pgbouncer"),
    },
    Need {
        program: "mariadbd",
        package: "mariadb-server",
        purpose: "the tests against MariaDB",
        required: true,
        service: Some("mariadb"),
    },
    Need {
        program: "redis-server",
        package: "redis-server",
        purpose: "the tests against Redis 7",
        required: true,
        service: Some("redis-server"),
    },
    Need {
        // As a module: another Python than the system's may be first on the path, with its own.
        program: "python3 -m pip",
        package: "python3-pip",
        purpose: "fetching Redis 8 and Valkey 9",
        required: true,
        service: None,
    },
    Need {
        program: "etcdctl",
        package: "etcd-server etcd-client",
        purpose: "the tests against etcd 3.4",
        required: true,
        service: Some("etcd"),
    },
    Need {
        program: "/usr/include/google/protobuf/descriptor.proto",
        package: "protobuf-compiler libprotobuf-dev",
        purpose: "the client of etcd, which is built from its protocol",
        required: true,
        service: None,
    },
    Need {
        program: "java",
        package: "default-jdk-headless",
        purpose: "the tests against Kafka and ZooKeeper",
        required: true,
        service: None,
    },
    Need {
        program: "mvn",
        package: "maven",
        purpose: "fetching Kafka and ZooKeeper",
        required: true,
        service: None,
    },
    Need {
        program: "promtool",
        package: "prometheus",
        purpose: "the tests of the alerts",
        required: true,
        service: Some("prometheus"),
    },
    Need {
        program: "valgrind",
        package: "valgrind",
        purpose: "the instruction counts of `cargo xtask bench`",
        required: false,
        service: None,
    },
];

/// Where Debian puts PostgreSQL, with a folder for each version, which is on no search path.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// The parts of the toolchain that a minimal installation leaves out: cargo's word for each, and
/// rustup's.
const COMPONENTS: [(&str, &str); 2] = [("fmt", "rustfmt"), ("clippy", "clippy")];

pub(crate) fn run(_: &Args) -> Result<(), Error> {
    components()?;
    packages()?;
    servers()
}

/// The runner of the instruction counts, in the version that the benches are built against;
/// installed if missing.
///
/// `None` when no bench counts instructions.
pub(crate) fn instruction_counter() -> Result<Option<PathBuf>, Error> {
    let lock = std::fs::read_to_string(workspace::root().join("Cargo.lock"))?;
    let Some(version) = locked_version(&lock, "gungraun") else {
        return Ok(None);
    };
    if find("valgrind").is_none() {
        return Err("valgrind is missing: run `cargo xtask setup` first".into());
    }
    tool("gungraun-runner", version).map(Some)
}

/// The mutation tester, installed if missing.
pub(crate) fn mutation_tester() -> Result<PathBuf, Error> {
    tool("cargo-mutants", "27.1.0")
}

/// What compares the public items with those of a release, installed if missing.
pub(crate) fn semver_checker() -> Result<PathBuf, Error> {
    tool("cargo-semver-checks", "0.51.0")
}

/// What holds the dependencies to `deny.toml`, installed if missing.
pub(crate) fn dependency_checker() -> Result<PathBuf, Error> {
    tool("cargo-deny", "0.20.2")
}

/// The program of the package `name` from crates.io, which has that name too.
fn tool(name: &str, version: &str) -> Result<PathBuf, Error> {
    // One folder per version, and not the user's own: the version must match.
    let folder = workspace::target("tools").join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.exists() {
        let mut install = cargo(["install", name, "--locked", "--version", version]);
        install.arg("--root").arg(&folder);
        must_run(install)?;
    }
    Ok(program)
}

fn components() -> Result<(), Error> {
    let missing = COMPONENTS
        .iter()
        .filter(|(subcommand, _)| !answers(cargo([subcommand, "--version"])));
    let missing: Vec<&str> = missing.map(|(_, component)| *component).collect();
    if missing.is_empty() {
        println!("rustfmt, clippy: present");
        return Ok(());
    }
    if find("rustup").is_none() {
        let missing = missing.join(" and ");
        return Err(format!(
            "{missing} missing and no rustup to add them: install them with the toolchain"
        )
        .into());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["component", "add"]).args(missing);
    must_run(rustup)
}

fn packages() -> Result<(), Error> {
    let missing = missing(is_there);
    for need in &NEEDS {
        let state = if missing.iter().any(|lost| lost.program == need.program) {
            "missing"
        } else {
            "present"
        };
        println!("{}: {state} ({})", need.program, need.purpose);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let outcome = install(&missing);
    match outcome {
        Err(error) if missing.iter().any(|need| need.required) => Err(error),
        Err(error) => {
            println!("note: {error}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Lets the test kit fetch the servers that no package of the system has: it knows which files it
/// starts, and where it looks for them.
///
/// As a program, because a dependency would make every command here wait for the build of Tokio and
/// the engine. With no package named, so that it is built with the features of the tests and its
/// dependencies are built once for both.
fn servers() -> Result<(), Error> {
    must_run(cargo([
        "run",
        "--quiet",
        "-p",
        "testkit-servers",
        "--example",
        "fetch_servers",
    ]))
}

fn install(missing: &[&Need]) -> Result<(), Error> {
    let packages = package_list(missing);
    let advice = format!("install with your package manager: {packages}");
    if find("apt-get").is_none() {
        return Err(format!("this is no Debian; {advice}").into());
    }
    let Some(prefix) = root_prefix(is_root(), find("sudo").is_some()) else {
        return Err(format!("neither root nor sudo here; {advice}").into());
    };
    must_run(apt_get(prefix, "update"))?;
    let mut command = apt_get(prefix, "install");
    command
        // A machine with MySQL keeps it: MariaDB's package would remove it.
        .args(["--yes", "--no-install-recommends", "--no-remove"])
        .args(packages.split(' '));
    must_run(command)?;
    missing
        .iter()
        .filter_map(|need| need.service)
        .flat_map(|service| quiet(prefix, service))
        .try_for_each(must_run)
}

fn apt_get(prefix: &[&str], subcommand: &str) -> Command {
    let mut command = as_root(prefix, "apt-get");
    command.arg(subcommand);
    // No user is there to answer a package's questions.
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// The commands that stop a service which this set-up has installed, now and for later boots.
///
/// The tests start servers of their own. What would keep the service from starting at all,
/// `/usr/sbin/policy-rc.d` and `createcluster.conf`, holds for other packages too, or decides how a
/// user's own cluster is made later: those files stay as they are, and so does the empty cluster
/// that PostgreSQL's package creates. A server that was here before is in no missing package, so it
/// is never stopped.
fn quiet(prefix: &[&str], service: &str) -> [Command; 2] {
    // Both know systemd and its predecessor.
    let mut stop = as_root(prefix, "service");
    stop.args([service, "stop"]);
    let mut disable = as_root(prefix, "update-rc.d");
    disable.args([service, "disable"]);
    [stop, disable]
}

fn as_root(prefix: &[&str], program: &str) -> Command {
    let mut words = prefix.iter().chain([&program]);
    let mut command = Command::new(words.next().expect("at least the program itself"));
    command.args(words);
    command
}

/// The words in front of a command that needs root, or none if there is no way.
fn root_prefix(root: bool, sudo: bool) -> Option<&'static [&'static str]> {
    match (root, sudo) {
        (true, _) => Some(&[]),
        (false, true) => Some(&["sudo", "--preserve-env=DEBIAN_FRONTEND"]),
        (false, false) => None,
    }
}

fn missing(present: impl Fn(&str) -> bool) -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !present(need.program)).collect()
}

fn package_list(needs: &[&Need]) -> String {
    needs
        .iter()
        .map(|need| need.package)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The version of `package` in the text of a lock file.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines
        .nth(1)?
        .strip_prefix("version = \"")?
        .strip_suffix('"')
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn answers(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether the program of a [`Need`] is there.
fn is_there(program: &str) -> bool {
    let mut words = program.split(' ');
    let found = words.next().and_then(find);
    let words: Vec<&str> = words.collect();
    match found {
        Some(found) if !words.is_empty() => {
            let mut command = Command::new(found);
            command.args(words).arg("--version");
            answers(command)
        }
        found => found.is_some(),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    find_in(&path, Path::new(POSTGRESQL), program)
}

/// The program on the search path, or where Debian puts servers.
fn find_in(path: &OsStr, postgresql: &Path, program: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(postgresql)
        .into_iter()
        .flatten()
        .flatten();
    std::env::split_paths(path)
        // An ordinary user may have no `sbin` on the path.
        .chain([PathBuf::from("/usr/sbin")])
        .chain(versions.map(|version| version.path().join("bin")))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn must_run(command: Command) -> Result<(), Error> {
    let shown = process::display(&command);
    println!("{shown}");
    if process::run(command, None)?.success() {
        Ok(())
    } else {
        Err(format!("`{shown}` has failed").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_machine_lacks_nothing() {
        assert!(missing(|_| true).is_empty());
    }

    #[test]
    fn a_bare_machine_lacks_every_package() {
        let missing = missing(|_| false);
        assert_eq!(
            package_list(&missing),
            "gcc libc6-dev g++ make pkg-config libssl-dev git chromium chromium-driver strace \
             faketime postgresql pgbouncer mariadb-server redis-server python3-pip etcd-server \
             etcd-client protobuf-compiler libprotobuf-dev \
             default-jdk-headless maven prometheus valgrind"
        );
        assert!(missing.iter().any(|need| need.required));
    }

    #[test]
    fn valgrind_alone_is_no_reason_to_fail() {
        let missing = missing(|program| program != "valgrind");
        assert_eq!(package_list(&missing), "valgrind");
        assert!(!missing.iter().any(|need| need.required));
    }

    #[test]
    fn root_needs_no_sudo_and_a_user_does() {
        assert_eq!(root_prefix(true, true), Some(&[] as &[&str]));
        let sudo = root_prefix(false, true).unwrap();
        assert_eq!(root_prefix(false, false), None);
        let words = |prefix| process::display(&apt_get(prefix, "update"));
        assert_eq!(words(&[]), "DEBIAN_FRONTEND=noninteractive apt-get update");
        assert!(words(sudo).contains(" sudo --preserve-env=DEBIAN_FRONTEND apt-get update"));
    }

    #[test]
    fn a_service_is_stopped_and_stays_so() {
        let sudo = root_prefix(false, true).unwrap();
        let shown = |prefix| quiet(prefix, "mariadb").map(|command| process::display(&command));
        assert_eq!(
            shown(&[]),
            ["service mariadb stop", "update-rc.d mariadb disable"]
        );
        assert!(shown(sudo).iter().all(|line| line.starts_with("sudo ")));
    }

    #[test]
    fn the_lock_file_tells_the_version() {
        let lock = "[[package]]\nname = \"gungraun-macros\"\nversion = \"0.9.0\"\n\n\
                    [[package]]\nname = \"gungraun\"\nversion = \"0.20.0\"\n";
        assert_eq!(locked_version(lock, "gungraun"), Some("0.20.0"));
        assert_eq!(locked_version(lock, "criterion"), None);
    }

    #[test]
    fn programs_are_found_on_the_path() {
        let manifest = OsStr::new(env!("CARGO_MANIFEST_DIR"));
        let find = |program| find_in(manifest, Path::new("no-such-folder"), program);
        assert!(find("Cargo.toml").is_some());
        assert!(find("src").is_none(), "a folder is no program");
        assert!(find("no-such-program").is_none());
    }

    #[test]
    fn a_command_is_there_when_it_tells_its_version() {
        assert!(is_there("git"));
        assert!(is_there("sh -c exit"));
        assert!(!is_there("sh -c false"), "as Python without pip");
        assert!(!is_there("no-such-program -c exit"));
    }

    #[test]
    fn what_runs_as_a_service_is_stopped_after_its_installation() {
        let services = NEEDS.iter().filter_map(|need| need.service);
        let services: Vec<&str> = services.collect();
        assert_eq!(
            services,
            [
                "postgresql",
                "pgbouncer",
                "mariadb",
                "redis-server",
                "etcd",
                "prometheus"
            ]
        );
    }

    #[test]
    fn postgresql_is_found_where_debian_puts_it() {
        let folder = workspace::target("tmp").join(format!("setup-{}", std::process::id()));
        let bin = folder.join("15/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let server = bin.join("keylane-postgres");
        let find = || find_in(OsStr::new(""), &folder, "keylane-postgres");
        assert_eq!(find(), None);
        std::fs::write(&server, "").unwrap();
        assert_eq!(find(), Some(server));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
