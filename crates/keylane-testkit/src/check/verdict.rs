//! The result of the checker when no rule is broken.

use std::fmt;

use super::rule::Rule;

/// A result without a broken rule. It says which rules could be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    findings: Vec<(Rule, Finding)>,
}

impl Verdict {
    /// Takes one finding per rule, in the order of [`Rule::ALL`].
    pub(super) fn new(findings: Vec<(Rule, Finding)>) -> Self {
        Self { findings }
    }

    /// Returns the finding about `rule`.
    pub fn finding(&self, rule: Rule) -> &Finding {
        &self.findings[rule as usize].1
    }

    /// Returns every rule and its finding, in order.
    pub fn findings(&self) -> impl Iterator<Item = (Rule, &Finding)> {
        self.findings.iter().map(|(rule, finding)| (*rule, finding))
    }

    /// Asserts that the evidence was enough to judge each of `rules` whole.
    ///
    /// # Panics
    ///
    /// Panics if one of them was not judged, or only in part.
    #[track_caller]
    pub fn assert_judged(&self, rules: &[Rule]) {
        let lacking: Vec<_> = rules
            .iter()
            .filter(|&&rule| *self.finding(rule) != Finding::Holds)
            .map(|&rule| format!("{rule}: {}", self.finding(rule)))
            .collect();
        assert!(
            lacking.is_empty(),
            "rules that were not judged whole:\n{}",
            lacking.join("\n")
        );
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rule, finding) in self.findings() {
            writeln!(f, "{rule}: {finding}")?;
        }
        Ok(())
    }
}

/// The finding about one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The rule was judged, and it holds.
    Holds,
    /// The judged part holds. These pieces of evidence were missing for the rest.
    InPart(Vec<String>),
    /// The rule was not judged, for this reason.
    NotJudged(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Holds => f.write_str("holds"),
            Finding::InPart(missing) => {
                write!(f, "holds in part, without {}", missing.join(", without "))
            }
            Finding::NotJudged(why) => write!(f, "not judged: {why}"),
        }
    }
}
