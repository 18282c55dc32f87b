//! The folder of Kafka's jars, and their download.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::maven::Artefact;
use crate::{ServerError, cache, maven};

/// The version of Kafka that [`fetch`] downloads and tests start.
pub const VERSION: &str = "4.3.1";

/// The artefacts that Maven fetches, with all their dependencies. The tools create topics and
/// format the storage; without the last one, Kafka would not log.
const ARTEFACTS: [Artefact; 3] = [
    ["org.apache.kafka", "kafka_2.13", VERSION],
    ["org.apache.kafka", "kafka-tools", VERSION],
    ["org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"],
];

/// Fetches Kafka's jars from Maven's repository, if they are not there yet, and returns their
/// folder. It needs `mvn` on the search path, and calls `progress` with each line of its output.
/// Tests do not call this: `cargo xtask setup` does.
///
/// The folder is `kafka-4.3.1`, some 55 MB, in `$KEYLANE_CACHE`, in `$XDG_CACHE_HOME/keylane` or in
/// `~/.cache/keylane`: the first of these whose variable is set. It appears complete or not at all,
/// and two fetches at a time do no harm. No other file remains, neither there nor in Maven's own
/// folder, unless this process is killed: then a folder whose name begins with `.kafka`.
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
/// use testkit_servers::kafka;
///
/// let folder = kafka::fetch(|line| eprintln!("{line}"))?;
/// println!("Kafka {} is in {}", kafka::VERSION, folder.display());
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
    let what = "Kafka 4.3.1";
    folder
        .is_dir()
        .then_some(folder)
        .ok_or(ServerError::Missing { what })
}

fn folder() -> Result<PathBuf, ServerError> {
    cache::folder(&format!("kafka-{VERSION}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_fetched_is_named_with_what_to_do() {
        let error = installed("/no/such/folder".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Kafka 4.3.1 is missing: run `cargo xtask setup`"
        );
        assert!(error.to_string().contains(VERSION));
    }
}
