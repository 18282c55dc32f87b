//! Folders of data, copied and replaced.

use std::fs;
use std::io;
use std::path::Path;

/// Copies all files of a folder, and of the folders in it, into a new one.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => fs::copy(entry.path(), to).map(drop)?,
        }
    }
    Ok(())
}

/// Replaces a folder by a copy of another one.
pub(super) fn replace(folder: &Path, by: &Path) -> io::Result<()> {
    fs::remove_dir_all(folder)?;
    copy(by, folder)
}
