//! The hash of the tree that a result holds for: of all files that a build of the workspace reads,
//! as they are on disk.
//!
//! These are the files that git knows or would add, without those in [`LEFT_OUT`].

use std::path::Path;

use crate::Error;
use crate::git;
use crate::tree;
use crate::workspace;

/// What may change without a result becoming old: no code includes it. What ends in `/` is a
/// folder.
const LEFT_OUT: [&str; 9] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    // The raw tables that the benches save.
    "benches/results/",
    "COMPARE.md",
    // The fuzzing of a soak adds to it, and what it adds has passed.
    "crates/keylane-inbox/tests/corpus/",
    "crates/keylane-spool/tests/corpus/",
    "xtask/house.txt",
    // A verdict on a planted bug is kept with the hash of its patch.
    "xtask/mutants.txt",
    "xtask/mutants/",
];

/// The hash of the workspace as it is now.
pub(crate) fn of_workspace() -> Result<String, Error> {
    of(workspace::root())
}

/// The beginning of a hash, for people.
pub(crate) fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn of(root: &Path) -> Result<String, Error> {
    let listed = tree::listed(root)?;
    let paths: Vec<&Path> = listed.iter().map(|path| &**path).collect();
    let paths: Vec<&Path> = paths.into_iter().filter(|path| counts(path)).collect();
    let mut text = String::new();
    for (path, hash) in paths.iter().zip(git::hashes(root, &paths)?) {
        let mode = if is_program(&root.join(path))? {
            "x"
        } else {
            "-"
        };
        text += &format!("{mode} {hash} {}\n", path.display());
    }
    git::hash(root, text.as_bytes())
}

fn counts(path: &Path) -> bool {
    let path = path.to_string_lossy();
    !LEFT_OUT.iter().any(|out| match out.strip_suffix('/') {
        Some(_) => path.starts_with(out),
        None => path == *out,
    })
}

#[cfg(unix)]
fn is_program(path: &Path) -> Result<bool, Error> {
    use std::os::unix::fs::PermissionsExt;

    Ok(path.metadata()?.permissions().mode() & 0o100 != 0)
}

#[cfg(not(unix))]
fn is_program(_: &Path) -> Result<bool, Error> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    struct Workspace(PathBuf);

    impl Workspace {
        fn new(name: &str) -> Self {
            let name = format!("keylane-xtask-{name}-{}", std::process::id());
            let workspace = Self(std::env::temp_dir().join(name));
            workspace.write("src/lib.rs", "one");
            workspace.write(".gitignore", "target/\n");
            git::run(git::command(&workspace.0).args(["init", "--quiet"])).unwrap();
            workspace
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn hash(&self) -> String {
            of(&self.0).unwrap()
        }
    }

    impl Drop for Workspace {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn every_change_to_what_is_built_changes_the_hash() {
        let workspace = Workspace::new("hash");
        let first = workspace.hash();
        assert_eq!(first.len(), 40, "{first}");
        let mut hashes = vec![first.clone()];
        workspace.write("src/lib.rs", "two");
        hashes.push(workspace.hash());
        workspace.write("src/new.rs", "");
        hashes.push(workspace.hash());
        fs::rename(workspace.0.join("src/new.rs"), workspace.0.join("src/a.rs")).unwrap();
        hashes.push(workspace.hash());
        fs::remove_file(workspace.0.join("src/a.rs")).unwrap();
        assert_eq!(workspace.hash(), hashes[1], "it is as it was");
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 4);
        workspace.write("src/lib.rs", "one");
        assert_eq!(workspace.hash(), first);
    }

    #[test]
    fn git_may_know_a_file_or_not() {
        let workspace = Workspace::new("added");
        let before = workspace.hash();
        git::run(git::command(&workspace.0).args(["add", "."])).unwrap();
        assert_eq!(workspace.hash(), before);
    }

    #[test]
    fn what_is_left_out_does_not_count() {
        let workspace = Workspace::new("left-out");
        let before = workspace.hash();
        for out in LEFT_OUT {
            let inside = if out.ends_with('/') { "file" } else { "" };
            workspace.write(&format!("{out}{inside}"), "new");
        }
        workspace.write("target/debug/file", "new");
        assert_eq!(workspace.hash(), before);
        workspace.write("xtask/mutants.txt.rs", "new");
        assert_ne!(workspace.hash(), before);
    }

    #[test]
    fn what_is_left_out_is_there_and_in_no_source() {
        let root = workspace::root();
        for out in LEFT_OUT {
            assert!(root.join(out).exists(), "{out}");
        }
        let mut sources = Vec::new();
        for folder in ["benches", "crates", "examples", "tests", "xtask"] {
            find_sources(&root.join(folder), &mut sources);
        }
        assert!(sources.len() > 100);
        for path in sources {
            let text = fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| line.contains("include_")) {
                let is_included = |out: &&str| line.contains(out.trim_end_matches('/'));
                let is_any = LEFT_OUT.iter().any(is_included);
                assert!(!is_any, "{}: {line}", path.display());
            }
        }
    }

    fn find_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                find_sources(&path, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(path);
            }
        }
    }
}
