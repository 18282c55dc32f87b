//! The oldest heads that wait for a retry, for a dead-letter sink, or for a decision.

use super::Ranking;

/// Most candidates.
const MOST: usize = 1_024;

/// The heads that were accepted first.
///
/// A lane comes here each time its head fails. If all candidates are older, the caller looks at one
/// of them again, because it may have recovered.
#[derive(Debug, Default)]
pub(super) struct Stalled {
    /// By the moment of acceptance, the youngest least.
    ranking: Ranking,
}

/// What was seen when the caller looked at a candidate again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recheck {
    Stalled,
    /// The first to go.
    Recovered,
    Gone,
}

impl Recheck {
    /// Whether a lane is stalled; `None` if it is gone.
    pub(super) fn of(is_stalled: Option<bool>) -> Self {
        match is_stalled {
            Some(true) => Self::Stalled,
            Some(false) => Self::Recovered,
            None => Self::Gone,
        }
    }
}

impl Stalled {
    /// False: the table is full of older heads.
    pub(super) fn admit(&mut self, hash: u64, accepted: u64) -> bool {
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

    /// A candidate to look at again, and its record.
    pub(super) fn next(&mut self) -> Option<(u64, u64)> {
        self.ranking.next()
    }

    /// The caller has looked at a candidate again. A record that is not what it `was` is that of
    /// another head, and stays.
    pub(super) fn update(&mut self, hash: u64, was: u64, seen: Recheck) {
        if self.ranking.score(hash) == Some(was) {
            match seen {
                Recheck::Stalled => {}
                Recheck::Recovered => self.ranking.set(hash, 0),
                Recheck::Gone => self.ranking.remove(hash),
            }
        }
    }

    /// All candidates, with their records.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
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
        stalled.update(3, was, Recheck::Stalled);
        stalled.update(3, was + 1, Recheck::Recovered);
        assert!(!stalled.admit(5_000, 9_000));
        stalled.update(3, was, Recheck::Recovered);
        assert!(stalled.admit(5_000, 9_000));
        assert_eq!(record(&stalled, 3), None);
        stalled.update(4, record(&stalled, 4).unwrap(), Recheck::Gone);
        assert!(stalled.admit(5_002, 9_001));
        assert_eq!(stalled.entries().count(), MOST);
    }
}
