//! The patches in `xtask/mutants`, and git's work on them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// The folder of the patches, seen from the top of the workspace or of its copy.
const FOLDER: &str = "xtask/mutants";

/// The patch that plants the bug `name`, seen from there.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.patch"))
}

/// The names of all bugs for which the workspace at `root` has a patch.
pub(super) fn names(root: &Path) -> Result<BTreeSet<String>, Error> {
    let folder = root.join(FOLDER);
    let mut names = BTreeSet::new();
    if !folder.exists() {
        return Ok(names);
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match (path.file_stem(), path.extension()) {
            (Some(name), Some(extension)) if extension == "patch" => {
                names.insert(name.to_string_lossy().into_owned());
            }
            _ => return Err(format!("{} is no patch", path.display()).into()),
        }
    }
    Ok(names)
}

/// Asks whether `patch` would apply to the files below `folder`, and to which.
pub(super) fn check(folder: &Path, patch: &Path) -> Result<Vec<String>, Error> {
    run(git(folder).args(["apply", "--check"]).arg(patch))?;
    changed(folder, patch)
}

/// The files that `patch` changes.
pub(super) fn changed(folder: &Path, patch: &Path) -> Result<Vec<String>, Error> {
    let listed = run(git(folder).args(["apply", "--numstat", "-z"]).arg(patch))?;
    // Lines added, lines removed, path.
    let path = |entry: &str| entry.splitn(3, '\t').nth(2).map(str::to_owned);
    Ok(listed.split('\0').filter_map(path).collect())
}

/// Applies `patch` to the files below `folder`.
pub(super) fn apply(folder: &Path, patch: &Path) -> Result<(), Error> {
    run(git(folder).arg("apply").arg(patch)).map(drop)
}

/// A git command in `folder`.
pub(super) fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder);
    // A folder below the top of somebody's repository is not looked at by `git apply`: it skips the whole patch and
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
pub(super) fn run(command: &mut Command) -> Result<String, Error> {
    let output = command
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim_end().into())
    }
}
