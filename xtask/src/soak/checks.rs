//! What is looked at before a release: the public items, the dependencies, the packages.

use std::process::Command;

use crate::Error;
use crate::git;
use crate::setup;
use crate::workspace::{self, cargo};

/// What the dependencies are held to, in `deny.toml`. Not the advisories: they change while the
/// tree does not.
const JUDGED: [&str; 3] = ["bans", "licenses", "sources"];

/// The release to compare with: the commit that was asked for, or the last tag.
pub(super) fn release(asked: Option<&str>) -> Result<Option<String>, Error> {
    let root = workspace::root();
    let tags = git::run(git::command(root).args(["tag", "--sort=creatordate", "--merged"]));
    // Without a commit there is no release either.
    let tags = tags.unwrap_or_default();
    let Some(release) = asked.or_else(|| last(&tags)) else {
        return Ok(None);
    };
    let commit = format!("{release}^{{commit}}");
    let commit =
        git::run(git::command(root).args(["rev-parse", "--verify", "--short=12", &commit]));
    match commit {
        Ok(commit) => Ok(Some(commit.trim_end().to_owned())),
        Err(error) => Err(format!("no commit is called `{release}`: {error}").into()),
    }
}

fn last(tags: &str) -> Option<&str> {
    tags.lines().rfind(|tag| !tag.is_empty())
}

/// Compares the public items of the published crates with those of a commit.
pub(super) fn semver(release: &str) -> Result<Command, Error> {
    let mut command = Command::new(setup::semver_checker()?);
    command.current_dir(workspace::root());
    command.args(["semver-checks", "--workspace", "--baseline-rev", release]);
    Ok(command)
}

/// Holds the dependencies to `deny.toml`.
pub(super) fn deny() -> Result<Command, Error> {
    let mut command = Command::new(setup::dependency_checker()?);
    command.current_dir(workspace::root());
    command.arg("check").args(JUDGED);
    Ok(command)
}

/// Packs all crates that are published, and builds them from their packages.
pub(super) fn publish() -> Result<Command, Error> {
    // What is not committed is packed as well: the tree is the one that is looked at.
    Ok(cargo([
        "publish",
        "--workspace",
        "--dry-run",
        "--allow-dirty",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tag_is_the_release() {
        assert_eq!(last(""), None);
        assert_eq!(last("v0.1.0\nv0.2.0\n"), Some("v0.2.0"));
    }

    #[test]
    fn a_commit_must_be_there() {
        let error = release(Some("no-such-commit")).unwrap_err().to_string();
        assert!(
            error.starts_with("no commit is called `no-such-commit`: "),
            "{error}"
        );
    }
}
