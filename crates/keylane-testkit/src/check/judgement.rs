//! The findings about one rule while it is judged.

use super::rule::Rule;
use super::story::Story;
use super::verdict::Finding;
use super::violation::Violation;
use crate::events::{Id, Key};

/// The number of violations kept per rule; the rest are only counted. One bug can break a rule a
/// thousand times, and the first few show the cause.
const KEPT: usize = 8;

/// The state of one rule's judgement.
#[derive(Debug)]
pub(super) struct Judgement {
    rule: Rule,
    violations: Vec<Violation>,
    dropped: usize,
    missing: Vec<String>,
    unjudged: Option<String>,
}

impl Judgement {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            rule,
            violations: Vec::new(),
            dropped: 0,
            missing: Vec::new(),
            unjudged: None,
        }
    }

    pub(super) fn not_judged(rule: Rule, why: impl Into<String>) -> Self {
        Self {
            unjudged: Some(why.into()),
            ..Self::new(rule)
        }
    }

    /// Notes a missing piece of evidence: a part of the rule was not judged.
    pub(super) fn missing(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.missing.contains(&what) {
            self.missing.push(what);
        }
    }

    /// Notes that `ids` break the rule. `at` are the positions of the events that show it.
    pub(super) fn broken(
        &mut self,
        story: &Story<'_>,
        key: impl Into<Option<Key>>,
        ids: impl Into<Vec<Id>>,
        at: Vec<usize>,
        what: impl Into<String>,
    ) {
        if self.violations.len() == KEPT {
            self.dropped += 1;
            return;
        }
        let (key, ids, what) = (key.into(), ids.into(), what.into());
        let excerpt = story.excerpt(key, &ids, &at);
        self.violations.push(Violation {
            rule: self.rule,
            key,
            ids,
            what,
            excerpt,
        });
    }

    pub(super) fn close(mut self) -> (Rule, Result<Finding, Vec<Violation>>) {
        if let (Some(last), 1..) = (self.violations.last_mut(), self.dropped) {
            last.excerpt += &format!("\n  and {} more violations of this rule", self.dropped);
        }
        let result = if !self.violations.is_empty() {
            Err(self.violations)
        } else if let Some(why) = self.unjudged {
            Ok(Finding::NotJudged(why))
        } else if !self.missing.is_empty() {
            Ok(Finding::InPart(self.missing))
        } else {
            Ok(Finding::Holds)
        };
        (self.rule, result)
    }
}
