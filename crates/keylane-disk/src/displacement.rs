//! What becomes of an open file.

use std::fmt;

/// What has become of a file while it was open. As text, it says what to do.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Displacement {
    /// It was removed, alone or with its directory.
    Removed,
    /// It was renamed, alone or with its directory; or its file system is mounted there no longer.
    Moved,
    /// Its path names another file: a copy or a backup was put in its place, or the directory was removed and
    /// made again.
    Replaced,
    /// Another program has written into it, such as one that copies a backup over it.
    Overwritten,
}

impl fmt::Display for Displacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => {
                "was removed while it was open, and its content is lost when this process ends: \
                 stop the process, and restore the directory from a backup or start with a new \
                 one"
            }
            Self::Moved => {
                "was moved away while it was open: put it back, or stop this process and use it \
                 where it is now"
            }
            Self::Replaced => {
                "was replaced by another file while it was open: put the first file back, or \
                 stop this process to continue with the other one"
            }
            Self::Overwritten => {
                "was changed by another program while it was open: stop this process, and restore \
                 the file from a backup"
            }
        })
    }
}
