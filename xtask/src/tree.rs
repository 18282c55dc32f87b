//! The copy of the workspace in which bugs are planted and code is mutated.
//!
//! One copy serves all bugs and all runs, so dependencies are built once. Cargo rebuilds a crate
//! when the modification time of one of its files is later than its last build; so a file is
//! written only if it differs, and whatever is written, also when a bug is taken out, gets the time
//! of writing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::git;
use crate::workspace;

/// An up-to-date copy, used by this process alone.
#[derive(Debug)]
pub(crate) struct Tree {
    folder: PathBuf,
    build: PathBuf,
    lock: File,
}

/// A patch that has been applied. Reverted when dropped.
#[derive(Debug)]
pub(crate) struct Patched {
    /// The changed files as they were; nothing for a file that the patch has added.
    originals: Vec<(PathBuf, Option<Vec<u8>>)>,
}

impl Tree {
    /// Copies this workspace to below `target/mutants`, or brings the copy that is there up to
    /// date: all files that git knows or would add, as they are on disk.
    pub(crate) fn of_workspace() -> Result<Self, Error> {
        Self::copy(workspace::root(), &workspace::target("mutants"))
    }

    fn copy(root: &Path, target: &Path) -> Result<Self, Error> {
        fs::create_dir_all(target)?;
        let lock = File::create(target.join("lock"))?;
        lock.try_lock()
            .map_err(|_| "another run is at work in the copy of this workspace")?;
        let tree = Tree {
            folder: target.join("tree"),
            build: target.join("build"),
            lock,
        };
        let listed = listed(root)?;
        remove_others(&tree.folder, Path::new(""), &listed)?;
        for path in &listed {
            let (from, to) = (root.join(path), tree.folder.join(path));
            let new = fs::read(from)?;
            if read_if_any(&to)?.as_ref() != Some(&new) {
                write(&to, &new)?;
            }
        }
        Ok(tree)
    }

    /// The files that `patch` changes, paths inside the copy.
    pub(crate) fn changed(&self, patch: &Path) -> Result<Vec<String>, Error> {
        git::changed(&self.folder, patch)
    }

    /// Applies `patch`, a path inside the copy.
    pub(crate) fn apply(&self, patch: &Path) -> Result<Patched, Error> {
        let mut originals = Vec::new();
        for path in self.changed(patch)? {
            let path = self.folder.join(path);
            let original = read_if_any(&path)?;
            originals.push((path, original));
        }
        let patched = Patched { originals };
        git::apply(&self.folder, patch)?;
        for (path, original) in &patched.originals {
            if read_if_any(path)? == *original {
                return Err(format!("it has left {} as it was", path.display()).into());
            }
        }
        Ok(patched)
    }

    /// Writes these files, paths inside the copy.
    pub(crate) fn replace(&self, files: Vec<(String, String)>) -> Result<Patched, Error> {
        let mut patched = Patched {
            originals: Vec::new(),
        };
        for (path, text) in files {
            let path = self.folder.join(path);
            patched.originals.push((path.clone(), read_if_any(&path)?));
            write(&path, text.as_bytes())?;
        }
        Ok(patched)
    }

    /// The text of a file, a path inside the copy.
    pub(crate) fn read(&self, path: &str) -> Result<String, Error> {
        let read = fs::read_to_string(self.folder.join(path));
        read.map_err(|error| format!("{path}: {error}").into())
    }

    /// Lets `cargo`, a command of the workspace, work in the copy instead.
    ///
    /// It builds into a folder of its own: cargo would take the copy's crates for the workspace's.
    pub(crate) fn redirect(&self, cargo: &mut Command) {
        cargo
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", &self.build)
            // One line differs from the build before, and what is built runs once.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Closing it is not enough: a child that is being started may have it open for a moment.
        let _ = self.lock.unlock();
    }
}

impl Patched {
    /// Puts the files back as they were.
    pub(crate) fn revert(mut self) -> Result<(), Error> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), Error> {
        for (path, original) in self.originals.drain(..) {
            match original {
                Some(original) => write(&path, &original)?,
                None => fs::remove_file(path)?,
            }
        }
        Ok(())
    }
}

impl Drop for Patched {
    fn drop(&mut self) {
        // If it fails, the next run finds files that differ from the workspace's and writes them.
        let _ = self.put_back();
    }
}

/// The files that git knows or would add, if they are on disk.
pub(crate) fn listed(root: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let known = ["ls-files", "-z", "--cached"];
    let new = ["--others", "--exclude-standard"];
    let listed = git::run(git::command(root).args(known).args(new));
    let listed = listed.map_err(|error| format!("git must know the files: {error}"))?;
    let paths = listed.split('\0').filter(|path| !path.is_empty());
    let is_file = |path: &PathBuf| root.join(path).is_file();
    Ok(paths.map(PathBuf::from).filter(is_file).collect())
}

/// Removes all files below `tree/inside` that are not `listed`.
fn remove_others(tree: &Path, inside: &Path, listed: &BTreeSet<PathBuf>) -> Result<(), Error> {
    let folder = tree.join(inside);
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = inside.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(tree, &path, listed)?;
        } else if !listed.contains(&path) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn read_if_any(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::create_dir_all(path.parent().expect("a file lies in a folder"))?;
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    const PATCH: &str = "\
diff --git a/src/lib.rs b/src/lib.rs
--- a/src/lib.rs
+++ b/src/lib.rs
@@ -1,3 +1,3 @@
 one
-two
+2
 three
";

    /// A repository with one file, and the folder of its copy inside it, as the real one is.
    struct Workspace(PathBuf);

    impl Workspace {
        fn new(name: &str) -> Self {
            let root = format!("keylane-xtask-{name}-{}", std::process::id());
            let workspace = Workspace(std::env::temp_dir().join(root));
            workspace.write("src/lib.rs", "one\ntwo\nthree\n");
            workspace.write("two.patch", PATCH);
            workspace.write(".gitignore", "target/\n");
            git::run(git::command(&workspace.0).args(["init", "--quiet"])).unwrap();
            workspace
        }

        fn write(&self, path: &str, text: &str) {
            write(&self.0.join(path), text.as_bytes()).unwrap();
        }

        fn target(&self) -> PathBuf {
            self.0.join("target/mutants")
        }

        fn copy(&self) -> Tree {
            Tree::copy(&self.0, &self.target()).unwrap()
        }

        fn copied(&self, path: &str) -> PathBuf {
            self.target().join("tree").join(path)
        }

        fn in_copy(&self, path: &str) -> String {
            fs::read_to_string(self.copied(path)).unwrap()
        }
    }

    impl Drop for Workspace {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// Makes a file older than anything that is written from here on.
    fn age(path: &Path) -> SystemTime {
        let past = SystemTime::now() - Duration::from_secs(3_600);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(past).unwrap();
        modified(path)
    }

    fn modified(path: &Path) -> SystemTime {
        fs::metadata(path).unwrap().modified().unwrap()
    }

    #[test]
    fn a_bug_is_planted_and_taken_out() {
        let workspace = Workspace::new("plants");
        let tree = workspace.copy();
        let file = workspace.copied("src/lib.rs");
        let before = age(&file);
        let patched = tree.apply(Path::new("two.patch")).unwrap();
        assert_eq!(workspace.in_copy("src/lib.rs"), "one\n2\nthree\n");
        assert!(modified(&file) > before, "cargo sees that it has changed");
        let before = age(&file);
        patched.revert().unwrap();
        assert_eq!(workspace.in_copy("src/lib.rs"), "one\ntwo\nthree\n");
        assert!(modified(&file) > before, "cargo sees that it has changed");
        drop(tree.apply(Path::new("two.patch")).unwrap());
        assert_eq!(workspace.in_copy("src/lib.rs"), "one\ntwo\nthree\n");
    }

    #[test]
    fn files_are_replaced_and_put_back() {
        let workspace = Workspace::new("replaces");
        let tree = workspace.copy();
        let files = [("src/lib.rs", "1\n"), ("src/new.rs", "new")];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let replaced = tree.replace(files.into()).unwrap();
        assert_eq!(tree.read("src/lib.rs").unwrap(), "1\n");
        assert_eq!(tree.read("src/new.rs").unwrap(), "new");
        replaced.revert().unwrap();
        assert_eq!(tree.read("src/lib.rs").unwrap(), "one\ntwo\nthree\n");
        let error = tree.read("src/new.rs").unwrap_err().to_string();
        assert!(error.starts_with("src/new.rs: "), "{error}");
    }

    #[test]
    fn a_patch_that_does_not_fit_changes_nothing() {
        let workspace = Workspace::new("misfit");
        workspace.write("src/lib.rs", "one\nTWO\nthree\n");
        let tree = workspace.copy();
        let error = tree.apply(Path::new("two.patch")).unwrap_err();
        assert!(error.to_string().contains("src/lib.rs"), "{error}");
        assert_eq!(workspace.in_copy("src/lib.rs"), "one\nTWO\nthree\n");
        assert!(git::check(&workspace.0, Path::new("two.patch")).is_err());
    }

    #[test]
    fn the_copy_follows_the_workspace() {
        let workspace = Workspace::new("follows");
        workspace.write("old.rs", "old");
        drop(workspace.copy());
        let untouched = age(&workspace.copied("src/lib.rs"));
        workspace.write("new.rs", "new");
        workspace.write(".gitignore", "target/\nignored\n");
        workspace.write("ignored", "");
        fs::remove_file(workspace.0.join("old.rs")).unwrap();
        // A run that was killed with its bug in place.
        fs::write(workspace.copied("two.patch"), "").unwrap();
        drop(workspace.copy());
        assert_eq!(workspace.in_copy("new.rs"), "new");
        assert_eq!(workspace.in_copy("two.patch"), PATCH);
        assert!(!workspace.copied("old.rs").exists());
        assert!(!workspace.copied("ignored").exists());
        let file = workspace.copied("src/lib.rs");
        assert_eq!(modified(&file), untouched, "it need not be rebuilt");
    }

    #[test]
    fn a_copy_has_one_user() {
        let workspace = Workspace::new("locks");
        let tree = workspace.copy();
        let error = Tree::copy(&workspace.0, &workspace.target()).unwrap_err();
        assert!(error.to_string().starts_with("another run"), "{error}");
        drop(tree);
        workspace.copy();
    }
}
