//! Downloads that outlive a clone of the project.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ServerError;

/// Returns the folder of this name in the cache. It need not exist yet.
pub(crate) fn folder(name: &str) -> Result<PathBuf, ServerError> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    cache(set)
        .map(|cache| cache.join(name))
        .ok_or(ServerError::Missing {
            what: "one of the variables KEYLANE_CACHE, XDG_CACHE_HOME and HOME",
        })
}

fn cache(set: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| set(name).map(PathBuf::from);
    path("KEYLANE_CACHE")
        .or_else(|| path("XDG_CACHE_HOME").map(|cache| cache.join("keylane")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/keylane")))
}

/// Lets `fill` write into a folder beside `folder`, and renames the folder that it returns to
/// `folder` when it is complete.
pub(crate) fn install(
    folder: &Path,
    fill: impl FnOnce(&Path) -> Result<PathBuf, ServerError>,
) -> Result<(), ServerError> {
    let system = || ServerError::system("create a folder in the cache");
    let parent = folder.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(system())?;
    let mut prefix = OsString::from(".");
    prefix.push(folder.file_name().unwrap_or_default());
    let work = tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in(parent)
        .map_err(system())?;
    let filled = fill(work.path())?;
    match fs::rename(filled, folder) {
        // Another process was faster. A folder that is not empty is never replaced.
        Err(_) if folder.is_dir() => Ok(()),
        renamed => renamed.map_err(system()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_outlives_a_clone() {
        let cache = |set: &[(&str, &str)]| {
            let value = |name: &str| {
                set.iter()
                    .find(|(set, _)| *set == name)
                    .map(|(_, v)| v.into())
            };
            cache(value)
        };
        let home = ("HOME", "/home/me");
        let xdg = ("XDG_CACHE_HOME", "/cache");
        let own = ("KEYLANE_CACHE", "/own");
        assert_eq!(cache(&[home, xdg, own]), Some("/own".into()));
        assert_eq!(cache(&[home, xdg]), Some("/cache/keylane".into()));
        assert_eq!(cache(&[home]), Some("/home/me/.cache/keylane".into()));
        assert_eq!(cache(&[]), None);
    }

    #[test]
    fn what_is_fetched_appears_complete_or_not_at_all() {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join("new/kafka");
        let fill = |work: &Path, content: &str| {
            let filled = work.join("jars");
            fs::create_dir(&filled).unwrap();
            fs::write(filled.join("jar"), content).unwrap();
            assert!(!folder.exists() || content == "second");
            filled
        };
        let failed = install(&folder, |work| {
            fill(work, "half");
            Err(ServerError::NotRunning)
        });
        assert!(failed.is_err() && !folder.exists());

        // The second download ends while the first still runs.
        install(&folder, |work| {
            let first = fill(work, "first");
            install(&folder, |work| Ok(fill(work, "second"))).unwrap();
            Ok(first)
        })
        .unwrap();
        assert_eq!(fs::read(folder.join("jar")).unwrap(), b"second");
        let left = fs::read_dir(folder.parent().unwrap()).unwrap();
        assert_eq!(left.count(), 1, "only the jars are left");
    }
}
