//! The verdicts of earlier runs.
//!
//! A verdict holds for a patch, the test that must find it, and the tree to which it was applied.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::patches;
use super::table::Planted;
use super::trial::{Trial, Verdict};
use crate::Error;
use crate::git;
use crate::kept;

/// What a test has shown of a bug.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Shown {
    /// The hash of the tree without the patch.
    tree: String,
    /// The bug and its test.
    planted: String,
    /// The hash of the patch.
    patch: String,
    pub(super) verdict: Verdict,
    pub(super) seconds: f64,
}

impl kept::Record for Shown {
    fn tree(&self) -> &str {
        &self.tree
    }
}

/// What a verdict must hold for: a tree, and the hash of each patch.
#[derive(Debug)]
pub(super) struct Present {
    tree: String,
    patches: HashMap<String, String>,
}

impl Present {
    /// Hashes the patches of the workspace at `root`.
    pub(super) fn of(root: &Path, tree: String, table: &[Planted]) -> Result<Self, Error> {
        let paths = table.iter().map(|planted| patches::path(&planted.name));
        let paths: Vec<_> = paths.collect();
        let paths: Vec<&Path> = paths.iter().map(|path| &**path).collect();
        let names = table.iter().map(|planted| planted.name.clone());
        let patches = names.zip(git::hashes(root, &paths)?).collect();
        Ok(Self { tree, patches })
    }

    pub(super) fn tree(&self) -> &str {
        &self.tree
    }

    /// What has been shown of `planted`, if it holds.
    pub(super) fn shown<'a>(&self, all: &'a [Shown], planted: &Planted) -> Option<&'a Shown> {
        let (name, patch) = (planted.to_string(), &self.patches[&planted.name]);
        all.iter()
            .find(|shown| (&shown.tree, &shown.planted, &shown.patch) == (&self.tree, &name, patch))
    }

    /// The bugs of `chosen` that are to be tried: those without a verdict, or all.
    pub(super) fn left<'a>(
        &self,
        all: &[Shown],
        chosen: &[&'a Planted],
        again: bool,
    ) -> Vec<&'a Planted> {
        let is_left = |planted: &Planted| match self.shown(all, planted) {
            // That it could not be tried says nothing.
            Some(shown) => again || matches!(shown.verdict, Verdict::Broken(_)),
            None => true,
        };
        let left = chosen.iter().filter(|planted| is_left(planted));
        left.copied().collect()
    }

    /// Adds what `trial` has shown, in the place of what was shown before.
    pub(super) fn add(&self, all: &mut Vec<Shown>, planted: &Planted, trial: Trial) {
        let new = Shown {
            tree: self.tree.clone(),
            planted: planted.to_string(),
            patch: self.patches[&planted.name].clone(),
            verdict: trial.verdict,
            seconds: trial.took.as_secs_f64(),
        };
        all.retain(|old| {
            (&old.tree, &old.planted, &old.patch) != (&new.tree, &new.planted, &new.patch)
        });
        all.push(new);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::table;
    use super::*;

    fn planted() -> Vec<Planted> {
        table::parse("one - keylane lib a\ntwo random keylane lib b\n").unwrap()
    }

    pub(in super::super) fn present(tree: &str, patch: &str) -> Present {
        let names = ["one", "two"].map(|name| (name.to_owned(), patch.to_owned()));
        Present {
            tree: tree.to_owned(),
            patches: names.into(),
        }
    }

    fn trial(verdict: Verdict) -> Trial {
        let took = Duration::from_millis(1_500);
        Trial { verdict, took }
    }

    fn names(present: &Present, all: &[Shown], again: bool) -> Vec<String> {
        let planted = planted();
        let left = present.left(all, &planted.iter().collect::<Vec<_>>(), again);
        left.iter().map(|planted| planted.name.clone()).collect()
    }

    #[test]
    fn a_run_goes_on_where_the_last_one_stopped() {
        let (planted, now) = (planted(), present("now", "patch"));
        let mut all = Vec::new();
        assert_eq!(names(&now, &all, false), ["one", "two"]);
        now.add(&mut all, &planted[0], trial(Verdict::TimedOut));
        assert_eq!(names(&now, &all, false), ["two"]);
        assert_eq!(names(&now, &all, true), ["one", "two"]);
        assert_eq!(all[0].seconds, 1.5);
        now.add(&mut all, &planted[1], trial(Verdict::Survived));
        assert!(
            names(&now, &all, false).is_empty(),
            "a survivor is a verdict"
        );
    }

    #[test]
    fn a_verdict_holds_for_its_tree_its_patch_and_its_test() {
        let (planted, now) = (planted(), present("now", "patch"));
        let mut all = Vec::new();
        for planted in &planted {
            now.add(&mut all, planted, trial(Verdict::TimedOut));
        }
        assert!(names(&now, &all, false).is_empty());
        assert_eq!(names(&present("other", "patch"), &all, false).len(), 2);
        assert_eq!(names(&present("now", "other"), &all, false).len(), 2);
        let moved = table::parse("one - keylane lib c\ntwo pct keylane lib b\n").unwrap();
        let left = now.left(&all, &moved.iter().collect::<Vec<_>>(), false);
        assert_eq!(left.len(), 2);
    }

    #[test]
    fn what_could_not_be_tried_is_tried_again() {
        let (planted, now) = (planted(), present("now", "patch"));
        let mut all = Vec::new();
        now.add(&mut all, &planted[0], trial(Verdict::TimedOut));
        now.add(
            &mut all,
            &planted[0],
            Trial::broken("no such test".to_owned()),
        );
        assert_eq!(all.len(), 1);
        assert_eq!(names(&now, &all, false), ["one", "two"]);
    }

    #[test]
    fn verdicts_can_be_read_again() {
        let tests = vec!["order::a".to_owned()];
        let verdicts = [
            Verdict::Caught { tests },
            Verdict::TimedOut,
            Verdict::Survived,
            Verdict::Broken("why".to_owned()),
        ];
        let (planted, now) = (planted(), present("now", "patch"));
        for verdict in verdicts {
            let mut all = Vec::new();
            now.add(&mut all, &planted[0], trial(verdict));
            let text = serde_json::to_string(&all).unwrap();
            assert_eq!(serde_json::from_str::<Vec<Shown>>(&text).unwrap(), all);
        }
    }
}
