//! Whether a path still names the file that was opened under it.

// A file can be written as long as it is open, also when its last name is gone or its path names
// another file. What is written then is found by no process that starts later.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Displacement;

/// An open file, and the path that named it when it was opened.
///
/// It keeps the file open: as long as this lives, no other file can have its inode.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    file: File,
}

/// A file that is not in its place, and what has become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// The path that named the file.
    pub path: PathBuf,
    /// What has become of the file.
    pub how: Displacement,
}

impl Place {
    /// The file that has this path now. The path is absolute: the working directory may change.
    pub fn find(path: &Path) -> io::Result<Self> {
        Ok(Self::of(path, File::open(path)?))
    }

    /// A file that was opened under this path just now.
    pub fn of(path: &Path, file: File) -> Self {
        debug_assert!(path.is_absolute());
        let path = path.to_owned();
        Self { path, file }
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Asks the operating system which file has the path.
    ///
    /// Where it cannot say, the file counts as being in its place: a disk that fails is noticed by
    /// the writes.
    pub fn look(&self) -> Result<(), Displaced> {
        let Ok(ours) = self.file.metadata() else {
            return Ok(());
        };
        let identity = |file: &fs::Metadata| (file.dev(), file.ino());
        match fs::metadata(&self.path) {
            Ok(there) if identity(&there) == identity(&ours) => Ok(()),
            Ok(_) => Err(self.displaced(Displacement::Replaced)),
            Err(error) if is_absent(&error) && ours.nlink() == 0 => {
                Err(self.displaced(Displacement::Removed))
            }
            Err(error) if is_absent(&error) => Err(self.displaced(Displacement::Moved)),
            Err(_) => Ok(()),
        }
    }

    /// Says that this has become of the file.
    pub fn displaced(&self, how: Displacement) -> Displaced {
        let path = self.path.clone();
        Displaced { path, how }
    }
}

/// Whether the path names nothing: it is gone, or a part of it is a file now.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_become_of_it_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&path, "one").unwrap();
        let place = Place::find(&path).unwrap();
        assert_eq!(place.look(), Ok(()));
        // Written, linked and synced, it is the same file.
        fs::write(&path, "two").unwrap();
        fs::hard_link(&path, &other).unwrap();
        assert_eq!(place.look(), Ok(()));
        let how = || place.look().map_err(|displaced| displaced.how);
        fs::remove_file(&path).unwrap();
        assert_eq!(how(), Err(Displacement::Moved));
        fs::write(&path, "two").unwrap();
        assert_eq!(how(), Err(Displacement::Replaced));
        fs::remove_file(&path).unwrap();
        fs::remove_file(&other).unwrap();
        assert_eq!(how(), Err(Displacement::Removed));
        // Its inode is not given to the next file.
        fs::write(&path, "two").unwrap();
        assert_eq!(how(), Err(Displacement::Replaced));
    }

    #[test]
    fn a_directory_is_a_part_of_the_path() {
        let parent = tempfile::tempdir().unwrap();
        let (directory, away) = (parent.path().join("orders"), parent.path().join("away"));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("a");
        fs::write(&path, "").unwrap();
        let place = Place::find(&path).unwrap();
        let how = || place.look().map_err(|displaced| displaced.how);
        fs::rename(&directory, &away).unwrap();
        assert_eq!(how(), Err(Displacement::Moved));
        fs::write(&directory, "a file has its place").unwrap();
        assert_eq!(how(), Err(Displacement::Moved));
        fs::remove_file(&directory).unwrap();
        fs::rename(&away, &directory).unwrap();
        assert_eq!(how(), Ok(()));
    }
}
