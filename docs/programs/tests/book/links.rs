//! Links lead somewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::book::{beside, chapters, root};
use crate::markdown::{anchors, targets, undefined};

const REPOSITORY: [&str; 2] = [
    "https://github.com/keylane/keylane/blob/main/",
    "https://github.com/keylane/keylane/tree/main/",
];

/// What is wrong with the links of these chapters. `is_there` says whether the repository has a
/// path.
fn faults(chapters: &BTreeMap<PathBuf, String>, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, text) in chapters {
        let links = targets(text);
        let broken = links
            .iter()
            .filter(|target| !leads(file, target, chapters, &is_there));
        let undefined = undefined(text);
        let all = broken.chain(&undefined);
        faults.extend(all.map(|link| format!("{}: {link}", file.display())));
    }
    faults
}

fn leads(
    file: &Path,
    target: &str,
    chapters: &BTreeMap<PathBuf, String>,
    is_there: impl Fn(&str) -> bool,
) -> bool {
    if let Some(path) = REPOSITORY
        .iter()
        .find_map(|prefix| target.strip_prefix(prefix))
    {
        return is_there(path.split('#').next().unwrap());
    }
    if target.starts_with("https://") {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match path {
        "" => file.to_owned(),
        path => beside(file, path),
    };
    let Some(text) = chapters.get(&path) else {
        return false;
    };
    anchor.is_empty() || anchors(text).iter().any(|there| there == anchor)
}

#[test]
fn all_links_lead_somewhere() {
    let is_there = |path: &str| root().join(path).exists();
    assert_eq!(faults(&chapters(), is_there), [""; 0]);
}

#[test]
fn the_readme_links_the_book() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("{}docs/src/SUMMARY.md", REPOSITORY[0])));
}

#[test]
fn a_broken_link_is_found() {
    let chapter = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let chapters = BTreeMap::from([
        chapter(
            "src/a.md",
            "[1](b/c.md#here) [2](#mine) [3](d.md) [4][x]\n# Mine",
        ),
        chapter("src/b/c.md", "[5](../a.md#no) [6](../a.md)\n# Here"),
        chapter(
            "src/e.md",
            "[7](https://github.com/keylane/keylane/blob/main/gone#x)",
        ),
    ]);
    let found = faults(&chapters, |path| path != "gone");
    let gone = "src/e.md: https://github.com/keylane/keylane/blob/main/gone#x";
    assert_eq!(
        found,
        [
            "src/a.md: d.md",
            "src/a.md: x",
            "src/b/c.md: ../a.md#no",
            gone
        ]
    );
}
