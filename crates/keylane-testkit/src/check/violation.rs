//! What the checker says when something is wrong.

use std::error::Error;
use std::fmt;

use super::rule::Rule;
use crate::events::{Id, Key};

/// A broken rule, with the piece of the history that shows it.
///
/// `Debug` prints the text of `Display` on lines of its own, so that an `expect` on the result of a
/// check is readable.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// On which key, where it is about one.
    pub key: Option<Key>,
    /// Which messages.
    pub ids: Vec<Id>,
    /// What is wrong.
    pub what: String,
    /// The events that show it, marked, and those around them.
    pub excerpt: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken", self.rule)?;
        if let Some(key) = self.key {
            write!(f, " on key {key}")?;
        }
        if !self.ids.is_empty() {
            write!(f, " by ids {:?}", self.ids)?;
        }
        write!(f, ": {}", self.what)?;
        if !self.excerpt.is_empty() {
            write!(f, "\n{}", self.excerpt)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl Error for Violation {}
