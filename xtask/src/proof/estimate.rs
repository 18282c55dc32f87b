//! How long a step takes that has not run here.

use std::fmt;

/// How long a part of full size takes, and where that is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) seconds: u64,
    pub(crate) origin: Origin,
}

/// Where an estimate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From a run of the same step: when, and of how many.
    Measured(&'static str),
    /// From figures that stand somewhere else.
    Derived(&'static str),
    /// From nothing that was measured: high rather than low.
    Guess(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(from) => write!(f, "measured: {from}"),
            Self::Derived(from) => write!(f, "derived: {from}"),
            Self::Guess(why) => write!(f, "guess: {why}"),
        }
    }
}

/// A duration for people: `40 min`, `2.5 h`.
pub(super) fn rough(seconds: f64) -> String {
    match seconds {
        ..60.0 => "1 min".to_owned(),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_round() {
        let cases = [
            (0.0, "1 min"),
            (90.0, "2 min"),
            (3_600.0, "60 min"),
            (9_000.0, "2.5 h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(rough(seconds), text);
        }
    }

    #[test]
    fn a_guess_says_that_it_is_one() {
        let origin = Origin::Guess("20 processes");
        assert_eq!(origin.to_string(), "guess: 20 processes");
    }
}
