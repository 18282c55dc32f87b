//! The results of the suite.

use std::fmt;

use super::broken::Broken;
use super::case::Case;

/// The results of all cases.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub(super) found: Vec<(Case, Found)>,
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The source behaves as it must.
    Passed,
    /// The source breaks the contract.
    Failed(Broken),
    /// The case was not run, for this reason.
    LeftOut(String),
}

impl Outcome {
    /// Returns every case and its result.
    pub fn cases(&self) -> impl Iterator<Item = (Case, &Found)> {
        self.found.iter().map(|(case, found)| (*case, found))
    }

    /// Returns the names of the cases that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        self.names(|found| matches!(found, Found::Failed(_)))
    }

    /// Returns the names of the cases that were not run.
    pub fn left_out(&self) -> Vec<&'static str> {
        self.names(|found| matches!(found, Found::LeftOut(_)))
    }

    /// Asserts that no case has failed.
    ///
    /// # Panics
    ///
    /// Panics if one has failed, with all failures.
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
    /// Asserts that the case has not failed. A case that was left out has not failed.
    ///
    /// # Panics
    ///
    /// Panics if it has failed.
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
