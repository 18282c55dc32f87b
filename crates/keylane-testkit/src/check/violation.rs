//! A broken rule, as the checker returns it.

use std::error::Error;
use std::fmt;

use super::rule::Rule;
use crate::events::{Id, Key};

/// A broken rule, with the part of the history that shows it.
///
/// `Debug` prints the text of `Display` on lines of its own, so the panic message of an `expect` is
/// readable.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The key, if the violation is about one key.
    pub key: Option<Key>,
    /// The messages.
    pub ids: Vec<Id>,
    /// What is wrong.
    pub what: String,
    /// The events that show it, marked, and the events around them.
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
