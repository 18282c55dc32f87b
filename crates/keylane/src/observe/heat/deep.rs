//! The deepest lanes.

use super::Ranking;

/// Most candidates.
pub(crate) const MOST: usize = 256;

/// Looking at a candidate again is paid for by so many messages that were routed.
const PRICE: u64 = 256;

/// Most candidates that are looked at again for one newcomer.
const LOOKS: u64 = 8;

/// The table itself: whoever was deepest when last seen.
///
/// A newcomer that is deeper than some candidate takes that one's place. If none is, some may have
/// been recorded deep and be empty by now: the caller looks at a few of them and tries again.
#[derive(Debug, Default)]
pub(crate) struct Deep {
    ranking: Ranking,
}

impl Deep {
    /// A lane has grown. True: it is a candidate now; whoever had to go for it.
    pub(crate) fn admit(&mut self, hash: u64, depth: u64) -> (bool, Option<u64>) {
        if self.ranking.len() < MOST || self.ranking.score(hash).is_some() {
            self.ranking.set(hash, depth);
            return (true, None);
        }
        match self.ranking.least() {
            Some((least, seen)) if seen < depth => {
                self.ranking.remove(least);
                self.ranking.set(hash, depth);
                (true, Some(least))
            }
            _ => (false, None),
        }
    }

    /// Somebody to look at again, and its record.
    pub(crate) fn next(&mut self) -> Option<(u64, u64)> {
        self.ranking.next()
    }

    /// What was seen when a candidate was looked at again; `None`: its lane is gone. A record that is
    /// not what it `was` is younger than that look, and stays.
    pub(crate) fn seen(&mut self, hash: u64, was: u64, depth: Option<u64>) {
        if self.ranking.score(hash) == Some(was) {
            match depth {
                Some(depth) => self.ranking.set(hash, depth),
                None => self.ranking.remove(hash),
            }
        }
    }

    /// The least record of a full table: whoever is not deeper can only come in if somebody else has
    /// shrunk or gone.
    pub(crate) fn floor(&self) -> u64 {
        match self.ranking.least() {
            Some((_, seen)) if self.ranking.len() >= MOST => seen,
            _ => 0,
        }
    }

    /// All candidates, with their records.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranking.entries()
    }
}

/// What the dispatcher task remembers to keep away from the table whoever is in it already.
///
/// Lanes that have one or two messages most of the time grow to two with every other message; they
/// must not cost a lock each time.
#[derive(Debug)]
pub(crate) struct Grown {
    /// Who was recorded last, and how deep, by the low bits of the hash.
    recorded: Box<[(u64, u64); SLOTS]>,
    /// `Deep::floor`, when it was last asked.
    floor: u64,
    /// Messages that have not been spent on looking at candidates again.
    credit: u64,
    version: usize,
}

const SLOTS: usize = 1_024;

impl Grown {
    pub(crate) fn new() -> Self {
        Self {
            recorded: Box::new([(0, 0); SLOTS]),
            floor: 0,
            credit: 0,
            version: 0,
        }
    }

    /// So many messages are about to be routed. `version` changes when others have changed the table.
    #[inline]
    pub(crate) fn begin(&mut self, messages: usize, version: usize) {
        self.credit = (self.credit + messages as u64).min(PRICE * MOST as u64);
        if self.version != version {
            self.version = version;
            *self.recorded = [(0, 0); SLOTS];
            self.floor = 0;
        }
    }

    /// Whether a lane that has just grown to this depth is to be shown to the table.
    #[inline]
    pub(crate) fn is_news(&self, hash: u64, depth: usize) -> bool {
        if !(depth.is_power_of_two() || depth.is_multiple_of(64)) {
            return false;
        }
        let depth = depth as u64;
        if depth <= self.floor && self.credit < PRICE {
            return false;
        }
        let (recorded, at) = self.recorded[hash as usize % SLOTS];
        recorded != hash || at < depth
    }

    /// The table has this lane, at this depth.
    pub(crate) fn record(&mut self, hash: u64, depth: u64) {
        self.recorded[hash as usize % SLOTS] = (hash, depth);
    }

    /// The table does not have this lane any more, or not at its old depth.
    pub(crate) fn forget(&mut self, hash: u64) {
        let slot = &mut self.recorded[hash as usize % SLOTS];
        if slot.0 == hash {
            *slot = (0, 0);
        }
    }

    /// The table was full of deeper ones. How many of them may be looked at again.
    pub(crate) fn refused(&mut self) -> u64 {
        let looks = (self.credit / PRICE).min(LOOKS);
        self.credit -= looks * PRICE;
        looks
    }

    /// The table was changed, or found full.
    pub(crate) fn raise(&mut self, floor: u64) {
        self.floor = floor;
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// With records that are not out of date, the deepest are in, whatever came in between.
        #[test]
        fn the_deepest_are_candidates(depths in proptest::collection::vec(1_u64..1_000, 1..2_000)) {
            let mut deep = Deep::default();
            for (hash, depth) in depths.iter().enumerate() {
                let _ = deep.admit(hash as u64, *depth);
            }
            let mut sorted = depths.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            let floor = sorted.get(MOST).copied().unwrap_or(0);
            let inside: Vec<_> = deep.entries().map(|(hash, _)| hash).collect();
            prop_assert!(inside.len() <= MOST);
            for (hash, depth) in depths.iter().enumerate() {
                let missed = *depth > floor && !inside.contains(&(hash as u64));
                prop_assert!(!missed, "{hash} with {depth} of {floor}");
            }
        }
    }

    #[test]
    fn a_table_of_lanes_that_are_gone_lets_newcomers_in_once_it_is_looked_at() {
        let mut deep = Deep::default();
        for hash in 0..MOST as u64 {
            assert_eq!(deep.admit(hash, 1_000), (true, None));
        }
        assert_eq!(deep.admit(9_999, 500), (false, None));
        let (gone, was) = deep.next().unwrap();
        deep.seen(gone, was + 1, None);
        assert_eq!(
            deep.admit(9_999, 500),
            (false, None),
            "it has grown meanwhile"
        );
        deep.seen(gone, was, None);
        assert_eq!(deep.admit(9_999, 500), (true, None));
        let (shrunk, was) = deep.next().unwrap();
        assert_ne!(shrunk, gone, "all others come before");
        deep.seen(shrunk, was, Some(3));
        assert_eq!(deep.admit(10_000, 4), (true, Some(shrunk)));
    }

    #[test]
    fn whoever_is_recorded_is_no_news_until_it_is_forgotten() {
        let mut grown = Grown::new();
        grown.begin(1, 0);
        assert!(grown.is_news(7, 2) && grown.is_news(7, 4) && grown.is_news(7, 192));
        assert!(!grown.is_news(7, 3) && !grown.is_news(7, 65));
        grown.record(7, 4);
        assert!(!grown.is_news(7, 2) && !grown.is_news(7, 4) && grown.is_news(7, 8));
        grown.forget(7 + SLOTS as u64);
        assert!(!grown.is_news(7, 4), "that was another key");
        grown.forget(7);
        assert!(grown.is_news(7, 2));
        grown.record(7, 4);
        grown.begin(1, 1);
        assert!(grown.is_news(7, 2), "somebody else has changed the table");
    }

    #[test]
    fn looks_are_paid_for_by_messages() {
        let mut grown = Grown::new();
        grown.begin(1, 0);
        assert_eq!(grown.refused(), 0);
        grown.raise(8);
        assert!(!grown.is_news(1, 8) && grown.is_news(1, 16));
        grown.begin(PRICE as usize, 0);
        assert!(grown.is_news(1, 8));
        assert_eq!(grown.refused(), 1);
        assert!(!grown.is_news(1, 8));
        grown.begin(1, 1);
        assert!(grown.is_news(1, 8), "somebody else has changed the table");
        grown.begin(1_000_000, 1);
        assert_eq!(grown.refused(), LOOKS);
    }
}
