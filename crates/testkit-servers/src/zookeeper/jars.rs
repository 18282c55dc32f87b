//! The folder of ZooKeeper's jars, and their download.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::maven::Artefact;
use crate::{ServerError, cache, maven};

/// The version of ZooKeeper that [`fetch`] downloads and tests start.
pub const VERSION: &str = "3.9.5";

/// The artefacts that Maven fetches, with all their dependencies. The server does not name all that
/// it needs.
const ARTEFACTS: [Artefact; 5] = [
    ["org.apache.zookeeper", "zookeeper", VERSION],
    ["io.dropwizard.metrics", "metrics-core", "4.2.25"],
    ["org.xerial.snappy", "snappy-java", "1.1.10.5"],
    ["commons-cli", "commons-cli", "1.5.0"],
    ["ch.qos.logback", "logback-classic", "1.3.15"],
];

/// Fetches ZooKeeper's jars from Maven's repository, if they are not there yet, and returns their
/// folder. It needs `mvn` on the search path, and calls `progress` with each line of its output.
/// Tests do not call this: `cargo xtask setup` does.
///
/// The folder is `zookeeper-3.9.5`, some 15 MB, in `$KEYLANE_CACHE`, in `$XDG_CACHE_HOME/keylane`
/// or in `~/.cache/keylane`: the first of these whose variable is set. It appears complete or not
/// at all, and two fetches at a time do no harm.
///
/// # Errors
///
/// [`Missing`](ServerError::Missing) if there is no `mvn` or none of the variables is set;
/// [`Program`](ServerError::Program) if Maven fails, for example because it cannot reach its
/// repository; [`System`](ServerError::System) if the folder cannot be written.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::zookeeper;
///
/// let folder = zookeeper::fetch(|line| eprintln!("{line}"))?;
/// println!("ZooKeeper {} is in {}", zookeeper::VERSION, folder.display());
/// # Ok(())
/// # }
/// ```
pub fn fetch(progress: impl FnMut(&str)) -> Result<PathBuf, ServerError> {
    let folder = folder()?;
    if !folder.is_dir() {
        cache::install(&folder, |work| maven::fetch(work, &ARTEFACTS, progress))?;
    }
    Ok(folder)
}

/// Returns the class path with all jars, if they have been fetched.
pub(super) fn class_path() -> Result<OsString, ServerError> {
    let mut path = installed(folder()?)?.into_os_string();
    // Java's own wildcard, not the shell's.
    path.push("/*");
    Ok(path)
}

fn installed(folder: PathBuf) -> Result<PathBuf, ServerError> {
    let what = "ZooKeeper 3.9.5";
    folder
        .is_dir()
        .then_some(folder)
        .ok_or(ServerError::Missing { what })
}

fn folder() -> Result<PathBuf, ServerError> {
    cache::folder(&format!("zookeeper-{VERSION}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_fetched_is_named_with_what_to_do() {
        let error = installed("/no/such/folder".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ZooKeeper 3.9.5 is missing: run `cargo xtask setup`"
        );
        assert!(error.to_string().contains(VERSION));
    }
}
