//! What a test does to a leader.

use std::fmt;

use keylane_testkit::scenario::Random;

/// What a test does so that another candidate leads, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The leader is killed.
    Kill,
    /// The leader and another candidate are killed at the same time.
    KillTwo,
    /// The leader is paused for longer than its term, and goes on.
    Pause,
    /// The leader resigns.
    Resign,
    /// The leader hands over to a candidate.
    HandTo,
    /// A candidate of a better rank joins, waits, and succeeds when the leader resigns.
    Rank,
    /// Nothing passes between the leader and the store.
    Cut,
    /// The store gets what the leader sends, and its answers do not pass.
    CutAnswers,
    /// The store is killed, and started again.
    Restart,
    /// The clock of the leader is set, which changes nothing. Then it resigns.
    Clock,
}

impl Fault {
    /// All faults but [`Clock`](Self::Clock), which needs workers with clocks of their own.
    pub const MOST: &[Self] = Self::ALL.split_at(9).0;

    /// All faults.
    pub const ALL: [Self; 10] = [
        Self::Kill,
        Self::KillTwo,
        Self::Pause,
        Self::Resign,
        Self::HandTo,
        Self::Rank,
        Self::Cut,
        Self::CutAnswers,
        Self::Restart,
        Self::Clock,
    ];

    /// Returns so many faults by chance: each of these equally often, as far as that is possible.
    ///
    /// # Panics
    ///
    /// Panics if `of` is empty.
    pub fn draw(of: &[Self], count: u64, random: &mut Random) -> Vec<Self> {
        let mut drawn = Vec::new();
        while (drawn.len() as u64) < count {
            let mut rest = of.to_vec();
            while !rest.is_empty() {
                drawn.push(rest.swap_remove(random.below(rest.len() as u64) as usize));
            }
        }
        drawn.truncate(count as usize);
        drawn
    }

    /// Whether the leader learns of it, and hands over in order.
    pub(crate) fn is_orderly(self) -> bool {
        matches!(self, Self::Resign | Self::HandTo | Self::Rank | Self::Clock)
    }

    /// Whether the leader does nothing from then on, and its term runs out.
    pub(crate) fn is_sudden(self) -> bool {
        matches!(self, Self::Kill | Self::Pause)
    }

    pub(crate) fn code(self) -> u64 {
        let place = Self::ALL.iter().position(|fault| *fault == self);
        place.expect("all faults are listed") as u64
    }

    pub(crate) fn of(code: u64) -> Self {
        Self::ALL[code as usize]
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "killed",
            Self::KillTwo => "killed with another",
            Self::Pause => "paused",
            Self::Resign => "resigned",
            Self::HandTo => "handed to another",
            Self::Rank => "resigned for a better rank",
            Self::Cut => "cut off",
            Self::CutAnswers => "without answers",
            Self::Restart => "store started again",
            Self::Clock => "resigned after its clock was set",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_drawn_equally_often() {
        let drawn = Fault::draw(&Fault::ALL, 30, &mut Random::new(3));
        for fault in Fault::ALL {
            assert_eq!(drawn.iter().filter(|one| **one == fault).count(), 3);
            assert_eq!(Fault::of(fault.code()), fault);
        }
        assert_ne!(drawn[..10], drawn[10..20]);
        assert!(!Fault::MOST.contains(&Fault::Clock));
        assert_eq!(Fault::MOST.len() + 1, Fault::ALL.len());
        assert_eq!(Fault::draw(&Fault::ALL, 5, &mut Random::new(3)).len(), 5);
    }
}
