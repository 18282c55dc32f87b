//! The files of the book.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap().to_owned()
}

/// All files below a folder whose names end so, by their paths from the top of the repository.
pub(crate) fn files(folder: &str, ending: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_str().unwrap().ends_with(ending) {
                let text = fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(root()).unwrap().to_owned(), text);
            }
        }
    }
    found
}

/// The chapters, and `SUMMARY.md`.
pub(crate) fn chapters() -> BTreeMap<PathBuf, String> {
    files("docs/src", ".md")
}

/// The path that a file names, without `..`.
pub(crate) fn beside(file: &Path, named: &str) -> PathBuf {
    let mut path = file.parent().unwrap().to_owned();
    for part in Path::new(named).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            part => path.push(part),
        }
    }
    path
}
