//! The patches in `xtask/mutants`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
