//! What the suite has found.

use std::fmt;

use super::broken::Broken;
use super::case::Case;

/// What became of each case.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub(super) found: Vec<(Case, Found)>,
}

/// What became of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The source has done as it must.
    Passed,
    /// It has not.
    Failed(Broken),
    /// The case was not run, for this reason.
    LeftOut(String),
}

impl Outcome {
    /// Every case, and what became of it.
    pub fn cases(&self) -> impl Iterator<Item = (Case, &Found)> {
        self.found.iter().map(|(case, found)| (*case, found))
    }

    /// The names of the cases that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        self.names(|found| matches!(found, Found::Failed(_)))
    }

    /// The names of the cases that were not run.
    pub fn left_out(&self) -> Vec<&'static str> {
        self.names(|found| matches!(found, Found::LeftOut(_)))
    }

    /// Asserts that no case has failed.
    ///
    /// # Panics
    ///
    /// If one has, with all of them.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.failed().is_empty(), "\n{self}");
    }

    fn names(&self, chosen: impl Fn(&Found) -> bool) -> Vec<&'static str> {
        let cases = self.cases().filter(|(_, found)| chosen(found));
        cases.map(|(case, _)| case.name()).collect()
    }
}

impl Found {
    /// Asserts that it has not failed. One that was left out has not.
    ///
    /// # Panics
    ///
    /// If it has.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(!matches!(self, Self::Failed(_)), "{self}");
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, found) in self.cases() {
            writeln!(f, "{case}: {found}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(broken) => write!(f, "failed: {broken}"),
            Self::LeftOut(why) => write!(f, "left out: {why}"),
        }
    }
}
