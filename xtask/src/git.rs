//! The git commands.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Error;

/// Asks whether `patch` would apply to the files below `folder`, and to which.
#[cfg(test)]
pub(crate) fn check(folder: &Path, patch: &Path) -> Result<Vec<String>, Error> {
    run(command(folder).args(["apply", "--check"]).arg(patch))?;
    changed(folder, patch)
}

/// The files that `patch` changes.
pub(crate) fn changed(folder: &Path, patch: &Path) -> Result<Vec<String>, Error> {
    let listed = run(command(folder)
        .args(["apply", "--numstat", "-z"])
        .arg(patch))?;
    // Lines added, lines removed, path.
    let path = |entry: &str| entry.splitn(3, '\t').nth(2).map(str::to_owned);
    Ok(listed.split('\0').filter_map(path).collect())
}

/// Applies `patch` to the files below `folder`.
pub(crate) fn apply(folder: &Path, patch: &Path) -> Result<(), Error> {
    run(command(folder).arg("apply").arg(patch)).map(drop)
}

/// How many paths a command gets at most: a command line has its limits.
const AT_ONCE: usize = 500;

/// Git's hashes of these files below `folder`, as they are on disk.
pub(crate) fn hashes(folder: &Path, paths: &[&Path]) -> Result<Vec<String>, Error> {
    let mut hashes = Vec::new();
    for some in paths.chunks(AT_ONCE) {
        let printed = run(command(folder).args(["hash-object", "--"]).args(some))?;
        hashes.extend(printed.lines().map(str::to_owned));
    }
    if hashes.len() == paths.len() {
        Ok(hashes)
    } else {
        Err("git has not hashed each file".into())
    }
}

/// Git's hash of `bytes`.
pub(crate) fn hash(folder: &Path, bytes: &[u8]) -> Result<String, Error> {
    let mut git = command(folder);
    git.args(["hash-object", "--stdin"]);
    let mut child = git
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start git: {error}"))?;
    // It reads all of it before it prints, so neither waits for the other.
    let mut stdin = child.stdin.take().expect("stdin was piped above");
    stdin.write_all(bytes)?;
    drop(stdin);
    let output = child.wait_with_output()?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    } else {
        Err("`git hash-object` has failed".into())
    }
}

/// A git command in `folder`.
pub(crate) fn command(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder);
    // Below the top of a repository, `git apply` skips what the patch names from the top, and
    // succeeds. So git may find a repository here, and none further up.
    if let Some(parent) = folder.parent() {
        git.env("GIT_CEILING_DIRECTORIES", parent);
    }
    // Set where git itself has started the caller, as a hook.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        git.env_remove(variable);
    }
    git
}

/// Runs a git command. What it prints, or the error that it prints.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let output = command
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim_end().into())
    }
}
