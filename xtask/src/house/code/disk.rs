//! The files of the crates, read from disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Error;

/// A crate before its code is read.
#[derive(Debug)]
pub(in super::super) struct Package {
    pub(in super::super) name: String,
    /// The texts of its Rust files, by their paths below `src`.
    pub(in super::super) sources: BTreeMap<String, String>,
}

/// The packages that are measured: those below `crates`, and `xtask`.
pub(in super::super) fn packages(root: &Path) -> Result<Vec<Package>, Error> {
    let mut folders = Vec::new();
    for entry in entries(&root.join("crates"))? {
        folders.push(entry?.path());
    }
    folders.sort();
    folders.push(root.join("xtask"));
    folders.retain(|folder| folder.join("src").is_dir());
    folders.iter().map(|folder| package(folder)).collect()
}

/// The text of a document at the top of the workspace.
pub(in super::super) fn document(root: &Path, name: &str) -> Result<String, Error> {
    read(&root.join(name))
}

fn package(folder: &Path) -> Result<Package, Error> {
    let name = folder.file_name().unwrap_or_default();
    let mut sources = BTreeMap::new();
    add(&folder.join("src"), "", &mut sources)?;
    Ok(Package {
        name: name.to_string_lossy().into_owned(),
        sources,
    })
}

/// Adds the Rust files of `folder` and of the folders in it.
fn add(folder: &Path, prefix: &str, sources: &mut BTreeMap<String, String>) -> Result<(), Error> {
    for entry in entries(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            add(&entry.path(), &format!("{name}/"), sources)?;
        } else if name.ends_with(".rs") {
            sources.insert(name, read(&entry.path())?);
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<fs::ReadDir, Error> {
    let entries = fs::read_dir(folder);
    entries.map_err(|error| format!("{}: {error}", folder.display()).into())
}

fn read(path: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(path);
    text.map_err(|error| format!("{}: {error}", path.display()).into())
}
