//! Hashes with a score, of which the least is found at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A table that its user bounds. It is ordered, so that the same calls give the same answers under
/// any schedule.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    scores: BTreeMap<u64, u64>,
    order: BTreeSet<(u64, u64)>,
    /// The hash that `next` returned last.
    last: u64,
}

impl Ranking {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn score(&self, hash: u64) -> Option<u64> {
        self.scores.get(&hash).copied()
    }

    pub(super) fn set(&mut self, hash: u64, score: u64) {
        if let Some(old) = self.scores.insert(hash, score) {
            self.order.remove(&(old, hash));
        }
        self.order.insert((score, hash));
    }

    pub(super) fn remove(&mut self, hash: u64) {
        if let Some(score) = self.scores.remove(&hash) {
            self.order.remove(&(score, hash));
        }
    }

    /// The hash with the least score.
    pub(super) fn least(&self) -> Option<(u64, u64)> {
        self.order.first().map(|&(score, hash)| (hash, score))
    }

    /// One of them: all in turn, and then again from the first.
    pub(super) fn next(&mut self) -> Option<(u64, u64)> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let next = self.scores.range(after).next();
        let (hash, score) = next.or(self.scores.first_key_value())?;
        self.last = *hash;
        Some((*hash, *score))
    }

    /// All of them, with their scores.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.scores.iter().map(|(hash, score)| (*hash, *score))
    }

    /// Changes all scores.
    pub(super) fn scale(&mut self, scale: impl Fn(u64) -> u64) {
        let scores = std::mem::take(&mut self.scores);
        self.order.clear();
        for (hash, score) in scores {
            self.set(hash, scale(score));
        }
    }
}
