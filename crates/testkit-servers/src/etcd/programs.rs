//! The programs of etcd, and the build of the version that no package of the system has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::etcd::EtcdKind;
use crate::program::{find, tail};
use crate::{ServerError, cache};

/// The version of etcd 3.7 that [`fetch`] builds.
const VERSION: &str = "3.7.3";

/// The program of Debian's package for the data of a server.
const CLIENT: &str = "etcdctl";

/// The module of the server. `go install` refuses it, because it replaces other modules.
const MODULE: &str = "go.etcd.io/etcd/server/v3";

/// Builds a server from its Go module, if it is not there yet, and returns its program. It needs
/// `go`, whose own configuration names the proxy of modules. etcd 3.4 is never built: it comes in a
/// package of the system. Tests do not call this: `cargo xtask setup` does.
///
/// The folder is `etcd-3.7.3`, some 40 MB, in `$KEYLANE_CACHE`, in `$XDG_CACHE_HOME/keylane` or in
/// `~/.cache/keylane`: the first of these whose variable is set. It appears complete or not at all,
/// and two builds at a time do no harm. Go keeps the modules in its own cache. Two cores take about
/// two minutes.
///
/// # Errors
///
/// [`Missing`](ServerError::Missing) if there is no `go` or none of the variables is set;
/// [`Program`](ServerError::Program) if `go` fails, for example because it cannot reach the proxy
/// of modules; [`System`](ServerError::System) if the folder cannot be written.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{EtcdKind, etcd};
///
/// println!("{}", etcd::fetch(EtcdKind::Etcd37)?.display());
/// # Ok(())
/// # }
/// ```
pub fn fetch(kind: EtcdKind) -> Result<PathBuf, ServerError> {
    if kind == EtcdKind::Etcd37 {
        let folder = folder()?;
        if !folder.is_dir() {
            cache::install(&folder, build)?;
        }
    }
    program(kind)
}

/// Returns whether a server is installed. etcd 3.7 is missing where there is no Go.
pub fn is_there(kind: EtcdKind) -> bool {
    program(kind).is_ok()
}

/// Returns the program of the server, if it is installed.
pub(super) fn program(kind: EtcdKind) -> Result<PathBuf, ServerError> {
    match kind {
        EtcdKind::Etcd34 => find("etcd"),
        EtcdKind::Etcd37 => built(folder()?.join("etcd")),
    }
}

/// Returns the program that restores a snapshot.
pub(super) fn client() -> Result<PathBuf, ServerError> {
    find(CLIENT)
}

fn built(program: PathBuf) -> Result<PathBuf, ServerError> {
    let what = "etcd 3.7";
    program
        .is_file()
        .then_some(program)
        .ok_or(ServerError::Missing { what })
}

fn folder() -> Result<PathBuf, ServerError> {
    cache::folder(&format!("etcd-{VERSION}"))
}

/// Builds in `work`, in a module of its own. Returns the folder in it with the program.
fn build(work: &Path) -> Result<PathBuf, ServerError> {
    let (module, programs) = (work.join("module"), work.join("programs"));
    for folder in [&module, &programs] {
        fs::create_dir(folder).map_err(ServerError::system("create a folder in the cache"))?;
    }
    go(&module, &["mod", "init", "keylane/etcd"])?;
    go(&module, &["get", &format!("{MODULE}@v{VERSION}")])?;
    let program = programs.join("etcd");
    let program = program.to_string_lossy();
    go(&module, &["build", "-trimpath", "-o", &*program, MODULE])?;
    Ok(programs)
}

/// Runs `go`. It keeps all variables of the caller: they may name a proxy of modules.
fn go(module: &Path, args: &[&str]) -> Result<(), ServerError> {
    let output = Command::new(find("go")?)
        .args(args)
        .current_dir(module)
        .output()
        .map_err(ServerError::system("run go"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(ServerError::Program {
        program: format!("go {}", args[0]),
        status: output.status,
        output: tail(&String::from_utf8_lossy(&text)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_built_is_named_with_what_to_do() {
        let error = built(PathBuf::from("/no/such/etcd")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "etcd 3.7 is missing: run `cargo xtask setup`"
        );
    }
}
