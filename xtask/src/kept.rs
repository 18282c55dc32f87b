//! Results that outlive a run: a file of JSON below `target`.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;

/// A result.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// The hash of the tree that it holds for.
    fn tree(&self) -> &str;
}

/// The results in a file.
#[derive(Debug)]
pub(crate) struct Kept<R> {
    file: PathBuf,
    records: Vec<R>,
}

/// The file has results of so many trees at most: those that were changed last.
const TREES: usize = 10;

impl<R: Record> Kept<R> {
    /// Reads the file. One that is missing has no results.
    pub(crate) fn read(file: PathBuf) -> Result<Self, Error> {
        let records = read(&file)?;
        Ok(Self { file, records })
    }

    /// All results, those that were changed last at the end.
    pub(crate) fn records(&self) -> &[R] {
        &self.records
    }

    /// Changes the results, and writes them down.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Vec<R>)) -> Result<(), Error> {
        fs::create_dir_all(self.file.parent().expect("a file lies in a folder"))?;
        let lock = File::create(self.file.with_extension("lock"))?;
        lock.lock()?;
        // Another run may have changed them since.
        self.records = read(&self.file)?;
        change(&mut self.records);
        forget(&mut self.records);
        // A run that is killed here leaves the old file or the new one.
        let new = self.file.with_extension("new");
        fs::write(&new, serde_json::to_string_pretty(&self.records)? + "\n")?;
        fs::rename(new, &self.file)?;
        Ok(())
    }
}

fn read<R: Record>(file: &Path) -> Result<Vec<R>, Error> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", file.display()).into()),
    };
    serde_json::from_str(&text)
        .map_err(|error| format!("{}: {error}; remove the file", file.display()).into())
}

/// Drops the results of all but the last trees.
fn forget<R: Record>(records: &mut Vec<R>) {
    let mut trees = HashSet::new();
    for record in records.iter().rev() {
        if trees.len() == TREES {
            break;
        }
        trees.insert(record.tree().to_owned());
    }
    records.retain(|record| trees.contains(record.tree()));
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Seen {
        tree: String,
        count: u64,
    }

    impl Record for Seen {
        fn tree(&self) -> &str {
            &self.tree
        }
    }

    fn seen(tree: usize, count: u64) -> Seen {
        let tree = tree.to_string();
        Seen { tree, count }
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("keylane-xtask-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn kept(&self) -> Kept<Seen> {
            Kept::read(self.0.join("kept.json")).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn the_next_run_finds_the_results() {
        let folder = Folder::new("kept");
        let (mut one, mut other) = (folder.kept(), folder.kept());
        assert!(one.records().is_empty());
        one.change(|records| records.push(seen(1, 1))).unwrap();
        other.change(|records| records.push(seen(1, 2))).unwrap();
        assert_eq!(other.records(), [seen(1, 1), seen(1, 2)]);
        assert_eq!(folder.kept().records(), other.records());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = Folder::new("unread");
        folder.kept().change(|_| {}).unwrap();
        fs::write(folder.0.join("kept.json"), "[{}]").unwrap();
        let error = Kept::<Seen>::read(folder.0.join("kept.json")).unwrap_err();
        assert!(error.to_string().contains("kept.json: "), "{error}");
        assert!(error.to_string().ends_with("; remove the file"), "{error}");
    }

    #[test]
    fn old_trees_are_forgotten() {
        let mut records: Vec<Seen> = (0..TREES).map(|tree| seen(tree, 1)).collect();
        records.push(seen(0, 2));
        forget(&mut records);
        assert_eq!(records.len(), TREES + 1);
        records.push(seen(TREES, 1));
        forget(&mut records);
        assert_eq!(records.len(), TREES + 1);
        assert_eq!(records[0], seen(0, 1), "it was changed after tree 1");
        assert!(!records.contains(&seen(1, 1)));
    }
}
