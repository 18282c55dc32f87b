//! A repository in a temporary folder.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::import::Import;

/// Removed again with the test.
#[derive(Debug)]
pub(crate) struct Repo {
    folder: TempDir,
}

impl Repo {
    /// A repository without a commit.
    pub(crate) fn empty() -> Self {
        Self::init(&[])
    }

    /// A repository whose `main` is the history that `fill` describes.
    pub(crate) fn new(fill: impl FnOnce(&mut Import)) -> Self {
        let repo = Self::empty();
        repo.import(fill);
        repo
    }

    /// A repository made by `git init` with more options.
    pub(crate) fn init(options: &[&str]) -> Self {
        let repo = Self {
            folder: TempDir::new().unwrap(),
        };
        let init = ["init", "--quiet", "--initial-branch=main"];
        repo.git(&[&init, options].concat());
        repo
    }

    /// Makes the history that `fill` describes.
    pub(crate) fn import(&self, fill: impl FnOnce(&mut Import)) {
        let mut import = Import::default();
        fill(&mut import);
        let mut git = plain_git(self.path());
        git.args(["fast-import", "--quiet"]);
        let mut git = git.stdin(Stdio::piped()).spawn().unwrap();
        git.stdin
            .take()
            .unwrap()
            .write_all(&import.into_stream())
            .unwrap();
        assert!(git.wait().unwrap().success());
    }

    /// A clone of this one; never a short cut through the file system, which would ignore `--depth`
    /// and `--filter`.
    pub(crate) fn clone(&self, options: &[&str]) -> Self {
        let clone = Self {
            folder: TempDir::new().unwrap(),
        };
        let url = format!("file://{}", self.path().display());
        clone.git(&[&["clone", "--quiet"], options, &[&url, "."]].concat());
        clone
    }

    /// Runs git in it and returns what it printed, trimmed. Fails the test if git fails.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = plain_git(self.path()).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder as an argument.
    pub(crate) fn name(&self) -> &str {
        self.path()
            .to_str()
            .expect("temporary folders have plain names")
    }

    /// The file in which git keeps the object that `name` stands for.
    pub(crate) fn loose_object(&self, name: &str) -> PathBuf {
        let id = self.git(&["rev-parse", "--verify", name]);
        let objects = self.git(&["rev-parse", "--git-path", "objects"]);
        self.path().join(objects).join(&id[..2]).join(&id[2..])
    }
}

/// A git that knows nothing of the machine it runs on, nor of a hook that these tests run in.
pub(crate) fn plain_git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            git.env_remove(name);
        }
    }
    git.arg("-C")
        .arg(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env(
            "GIT_CONFIG_GLOBAL",
            if cfg!(windows) { "NUL" } else { "/dev/null" },
        )
        .env("GIT_COMMITTER_NAME", "A")
        .env("GIT_COMMITTER_EMAIL", "a@example.org")
        .env("GIT_AUTHOR_NAME", "A")
        .env("GIT_AUTHOR_EMAIL", "a@example.org")
        .env("LC_ALL", "C");
    git
}
