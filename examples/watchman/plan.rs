//! Which faults come, and when: pure.

use std::time::Duration;

/// What is done to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    Kill,
    Pause,
    Cut,
    Resign,
}

impl Fault {
    pub(crate) const ALL: [Self; 4] = [Self::Kill, Self::Pause, Self::Cut, Self::Resign];

    /// In the timeline.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Kill => 'K',
            Self::Pause => 'P',
            Self::Cut => 'C',
            Self::Resign => 'R',
        }
    }

    /// What happens to the leader.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "is killed (SIGKILL)",
            Self::Pause => "is paused (SIGSTOP)",
            Self::Cut => "is cut off from the store",
            Self::Resign => "resigns",
        }
    }
}

/// How long faults go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    Rounds(u32),
    Time(Duration),
}

impl Length {
    /// Whether there is another fault after this many, at this time.
    pub(crate) fn goes_on(self, faults: u32, now: Duration) -> bool {
        match self {
            Self::Rounds(rounds) => faults / 4 < rounds,
            Self::Time(time) => now < time,
        }
    }
}

/// The faults of a run, without an end. In the first round they have the order of [`Fault::ALL`].
#[derive(Debug)]
pub(crate) struct Plan {
    random: u64,
    faults: u32,
    round: [Fault; 4],
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: seed,
            faults: 0,
            round: Fault::ALL,
        }
    }

    /// Returns the next fault, and how long the leader leads before at least.
    pub(crate) fn next(&mut self) -> (Fault, Duration) {
        let at = (self.faults % 4) as usize;
        if at == 0 && self.faults > 0 {
            for last in (1..4).rev() {
                let other = self.below(last as u64 + 1) as usize;
                self.round.swap(last, other);
            }
        }
        self.faults += 1;
        let after = Duration::from_millis(500 + self.below(1_000));
        (self.round[at], after)
    }

    pub(crate) fn faults(&self) -> u32 {
        self.faults
    }

    /// SplitMix64. The same seed gives the same faults on each machine.
    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_each_fault_once_and_the_seed_decides() {
        let faults = |seed| {
            let mut plan = Plan::new(seed);
            (0..40).map(|_| plan.next()).collect::<Vec<_>>()
        };
        let drawn = faults(1);
        assert!(drawn[..4].iter().map(|(fault, _)| *fault).eq(Fault::ALL));
        for round in drawn.chunks(4) {
            let mut round: Vec<Fault> = round.iter().map(|(fault, _)| *fault).collect();
            round.sort_unstable();
            assert_eq!(round, Fault::ALL);
        }
        assert_eq!(drawn, faults(1));
        assert_ne!(drawn, faults(2));
    }

    #[test]
    fn it_goes_on_for_rounds_or_for_a_time() {
        let second = Duration::from_secs(1);
        assert!(Length::Rounds(2).goes_on(7, second) && !Length::Rounds(2).goes_on(8, second));
        let time = Length::Time(2 * second);
        assert!(time.goes_on(100, second) && !time.goes_on(0, 2 * second));
    }
}
