//! The programs of a server: finds them, and runs those that end by themselves.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ServerError;
use crate::process::{User, clean};

/// The folder where Debian installs PostgreSQL, with one folder for each version.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// Returns the program of this name, from the search path or from Debian's folders.
pub(crate) fn find(name: &'static str) -> Result<PathBuf, ServerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        // An ordinary user may have no `sbin` on the path.
        .chain(["/usr/bin", "/usr/sbin"].map(PathBuf::from))
        .chain(versions(Path::new(POSTGRESQL)))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
        .ok_or(ServerError::Missing { what: name })
}

/// Returns the folders of programs below `folder`, newest version first.
fn versions(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let version = |name: String| name.parse::<u32>().ok();
    let mut versions: Vec<u32> = entries
        .filter_map(|entry| version(entry.file_name().into_string().ok()?))
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    let programs = |version: u32| folder.join(version.to_string()).join("bin");
    versions.into_iter().map(programs).collect()
}

/// Returns the user of this name, as whom a server runs when the test runs as root; otherwise
/// `None`. The test has created `folder`.
pub(crate) fn service_user(folder: &Path, name: &'static str) -> Result<Option<User>, ServerError> {
    let system = ServerError::system("find out who runs the test");
    if folder.metadata().map_err(system)?.uid() != 0 {
        return Ok(None);
    }
    let id = |option| {
        let output = clean("id", None).args([option, name]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    match (id("-u"), id("-g")) {
        (Some(uid), Some(gid)) => Ok(Some(User { uid, gid })),
        _ => Err(ServerError::Missing { what: name }),
    }
}

/// Runs `program`, configured by `set_up`, and returns its output.
///
/// It is killed after `seconds`: a client of a paused server would wait for ever.
pub(crate) fn run(
    program: &Path,
    user: Option<User>,
    seconds: u64,
    set_up: impl FnOnce(&mut Command),
) -> Result<String, ServerError> {
    let mut command = clean("timeout", user);
    command
        .arg("--kill-after=1")
        .arg(seconds.to_string())
        .arg(program);
    set_up(&mut command);
    let output = command
        .output()
        .map_err(ServerError::system("run a program of the server"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    Err(ServerError::Program {
        program: name.into_owned(),
        status: output.status,
        output: tail(&(text(&output.stdout) + &text(&output.stderr))),
    })
}

/// Returns the last lines of a text.
pub(crate) fn tail(text: &str) -> String {
    const LINES: usize = 30;
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_first() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["9", "15", "notes"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let expected = ["15/bin", "9/bin"].map(|name| folder.path().join(name));
        assert_eq!(versions(folder.path()), expected);
        assert!(versions(&folder.path().join("absent")).is_empty());
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let error = find("no-such-server").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no-such-server is missing: run `cargo xtask setup`"
        );
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_fails_is_quoted() {
        let run = |program, seconds, args: &[&str]| {
            let path = find(program).unwrap();
            run(&path, None, seconds, |command| {
                command.args(args);
            })
        };
        let error = run("sleep", 1, &["1000"]).unwrap_err();
        assert!(
            matches!(&error, ServerError::Program { status, .. } if status.code() == Some(124))
        );
        let error = run("ls", 60, &["/no/such/folder"]).unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }

    #[test]
    fn the_tail_has_the_last_lines() {
        assert_eq!(tail("a\nb\n"), "a\nb");
        let long: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert!(tail(&long).starts_with("70\n") && tail(&long).ends_with("\n99"));
    }
}
