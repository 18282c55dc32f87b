//! The oldest heads that wait for a retry, for a dead-letter sink, or for a decision.

use super::Ranking;

/// Most candidates.
pub(crate) const MOST: usize = 1_024;

/// Whose head was accepted first is the oldest, and stays.
///
/// A lane comes here each time its head fails. If all others are older, the caller looks at one of
/// them again, which may have recovered.
#[derive(Debug, Default)]
pub(crate) struct Stalled {
    /// By the moment of acceptance, the youngest least.
    ranking: Ranking,
}

/// What was seen when a candidate was looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Still {
    Stalled,
    /// The first to go.
    Recovered,
    Gone,
}

impl Stalled {
    /// False: the table is full of older ones.
    pub(crate) fn admit(&mut self, hash: u64, accepted: u64) -> bool {
        let age = u64::MAX - accepted;
        if self.ranking.len() < MOST || self.ranking.score(hash).is_some() {
            self.ranking.set(hash, age);
            return true;
        }
        match self.ranking.least() {
            Some((youngest, seen)) if seen < age => {
                self.ranking.remove(youngest);
                self.ranking.set(hash, age);
                true
            }
            _ => false,
        }
    }

    /// Somebody to look at again, and its record.
    pub(crate) fn next(&mut self) -> Option<(u64, u64)> {
        self.ranking.next()
    }

    /// What was seen when a candidate was looked at again. A record that is not what it `was` is
    /// that of another head, and stays.
    pub(crate) fn seen(&mut self, hash: u64, was: u64, still: Still) {
        if self.ranking.score(hash) == Some(was) {
            match still {
                Still::Stalled => {}
                Still::Recovered => self.ranking.set(hash, 0),
                Still::Gone => self.ranking.remove(hash),
            }
        }
    }

    /// All candidates, with their records.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranking.entries()
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stay_and_the_recovered_go_first() {
        let mut stalled = Stalled::default();
        for hash in 0..MOST as u64 {
            assert!(stalled.admit(hash, 1_000 + hash));
        }
        assert!(!stalled.admit(5_000, 9_000), "younger than all");
        assert!(stalled.admit(5_001, 10), "older than all");
        let record = |stalled: &Stalled, hash| {
            let mut entries = stalled.entries();
            entries.find_map(|(of, record)| (of == hash).then_some(record))
        };
        assert_eq!(record(&stalled, MOST as u64 - 1), None);
        let was = record(&stalled, 3).unwrap();
        stalled.seen(3, was, Still::Stalled);
        stalled.seen(3, was + 1, Still::Recovered);
        assert!(!stalled.admit(5_000, 9_000));
        stalled.seen(3, was, Still::Recovered);
        assert!(stalled.admit(5_000, 9_000));
        assert_eq!(record(&stalled, 3), None);
        stalled.seen(4, record(&stalled, 4).unwrap(), Still::Gone);
        assert!(stalled.admit(5_002, 9_001));
        assert_eq!(stalled.entries().count(), MOST);
    }
}
