//! The deepest lanes.

use super::Ranking;

/// Most candidates.
const MOST: usize = 256;

/// How many routed messages pay for looking at one candidate again.
const PRICE: u64 = 256;

/// Most candidates that are looked at again for one newcomer.
const LOOKS: u64 = 8;

/// The lanes that were deepest when they were last seen.
///
/// A newcomer that is deeper than some candidate takes that one's place. If none is, some may have
/// been recorded deep and be empty by now: the caller looks at a few of them and tries again.
#[derive(Debug, Default)]
pub(super) struct Deepest {
    ranking: Ranking,
}

impl Deepest {
    /// A lane has grown. Returns whether it is a candidate now, and which one had to go for it.
    pub(super) fn admit(&mut self, hash: u64, depth: u64) -> (bool, Option<u64>) {
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

    /// A candidate to look at again, and its record.
    pub(super) fn next(&mut self) -> Option<(u64, u64)> {
        self.ranking.next()
    }

    /// The caller has looked at a candidate again; `None`: its lane is gone. A record that is not
    /// what it `was` is younger than that look, and stays.
    pub(super) fn update(&mut self, hash: u64, was: u64, depth: Option<u64>) {
        if self.ranking.score(hash) == Some(was) {
            match depth {
                Some(depth) => self.ranking.set(hash, depth),
                None => self.ranking.remove(hash),
            }
        }
    }

    /// The least record of a full table. A lane that is not deeper comes in only if a candidate has
    /// shrunk or gone.
    pub(super) fn floor(&self) -> u64 {
        match self.ranking.least() {
            Some((_, seen)) if self.ranking.len() >= MOST => seen,
            _ => 0,
        }
    }

    /// All candidates, with their records.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranking.entries()
    }
}

/// What the router remembers, so that lanes which are in the table already do not lock it.
///
/// Lanes that have one or two messages most of the time grow to two with every other message; they
/// must not cost a lock each time.
#[derive(Debug, Default)]
pub(crate) struct DepthFilter {
    /// What was recorded last, hash and depth, by the low bits of the hash. Empty until there is
    /// something to record: most dispatchers never have two messages of one key.
    recorded: Vec<(u64, u64)>,
    /// `Deepest::floor`, when it was last asked.
    floor: u64,
    /// Messages that have not been spent on looking at candidates again.
    credit: u64,
    queries: usize,
}

const SLOTS: usize = 1_024;

impl DepthFilter {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// So many messages are about to be routed. The number of queries changes when one has changed
    /// the table.
    #[inline]
    pub(super) fn begin(&mut self, messages: usize, queries: usize) {
        self.credit = (self.credit + messages as u64).min(PRICE * MOST as u64);
        if self.queries != queries {
            self.queries = queries;
            self.recorded = Vec::new();
            self.floor = 0;
        }
    }

    /// Whether a lane that has just grown to this depth is to be shown to the table.
    #[inline]
    pub(super) fn is_news(&self, hash: u64, depth: usize) -> bool {
        if depth < 2 || !(depth.is_power_of_two() || depth.is_multiple_of(64)) {
            return false;
        }
        let depth = depth as u64;
        if depth <= self.floor && self.credit < PRICE {
            return false;
        }
        match self.recorded.get(hash as usize % SLOTS) {
            Some((recorded, at)) => *recorded != hash || *at < depth,
            None => true,
        }
    }

    /// The table has this lane, at this depth.
    pub(super) fn record(&mut self, hash: u64, depth: u64) {
        if self.recorded.is_empty() {
            self.recorded = vec![(0, 0); SLOTS];
        }
        self.recorded[hash as usize % SLOTS] = (hash, depth);
    }

    /// The table does not have this lane any more, or not at its old depth.
    pub(super) fn forget(&mut self, hash: u64) {
        if let Some(slot) = self.recorded.get_mut(hash as usize % SLOTS)
            && slot.0 == hash
        {
            *slot = (0, 0);
        }
    }

    /// The table was full of deeper lanes. Returns how many of them may be looked at again.
    pub(super) fn refused(&mut self) -> u64 {
        let looks = (self.credit / PRICE).min(LOOKS);
        self.credit -= looks * PRICE;
        looks
    }

    /// The table was changed, or found full.
    pub(super) fn raise(&mut self, floor: u64) {
        self.floor = floor;
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(testkit_cases::cases(48))]

        /// With records that are not out of date, the deepest are in, whatever came in between.
        #[test]
        fn the_deepest_are_candidates(depths in proptest::collection::vec(1_u64..1_000, 1..2_000)) {
            let mut deep = Deepest::default();
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
        let mut deep = Deepest::default();
        for hash in 0..MOST as u64 {
            assert_eq!(deep.admit(hash, 1_000), (true, None));
        }
        assert_eq!(deep.admit(9_999, 500), (false, None));
        let (gone, was) = deep.next().unwrap();
        deep.update(gone, was + 1, None);
        assert_eq!(
            deep.admit(9_999, 500),
            (false, None),
            "it has grown meanwhile"
        );
        deep.update(gone, was, None);
        assert_eq!(deep.admit(9_999, 500), (true, None));
        let (shrunk, was) = deep.next().unwrap();
        assert_ne!(shrunk, gone, "all others come first");
        deep.update(shrunk, was, Some(3));
        assert_eq!(deep.admit(10_000, 4), (true, Some(shrunk)));
    }

    #[test]
    fn a_recorded_lane_is_no_news_until_it_is_forgotten() {
        let mut filter = DepthFilter::new();
        filter.begin(1, 0);
        assert!(!filter.is_news(7, 1), "one message makes no lane deep");
        assert!(filter.is_news(7, 2) && filter.is_news(7, 4) && filter.is_news(7, 192));
        assert!(!filter.is_news(7, 3) && !filter.is_news(7, 65));
        filter.record(7, 4);
        assert!(!filter.is_news(7, 2) && !filter.is_news(7, 4) && filter.is_news(7, 8));
        filter.forget(7 + SLOTS as u64);
        assert!(!filter.is_news(7, 4), "that was another key");
        filter.forget(7);
        assert!(filter.is_news(7, 2));
        filter.record(7, 4);
        filter.begin(1, 1);
        assert!(filter.is_news(7, 2), "a query has changed the table");
    }

    #[test]
    fn looks_are_paid_for_by_messages() {
        let mut filter = DepthFilter::new();
        filter.begin(1, 0);
        assert_eq!(filter.refused(), 0);
        filter.raise(8);
        assert!(!filter.is_news(1, 8) && filter.is_news(1, 16));
        filter.begin(PRICE as usize, 0);
        assert!(filter.is_news(1, 8));
        assert_eq!(filter.refused(), 1);
        assert!(!filter.is_news(1, 8));
        filter.begin(1, 1);
        assert!(filter.is_news(1, 8), "a query has changed the table");
        filter.begin(1_000_000, 1);
        assert_eq!(filter.refused(), LOOKS);
    }
}
