//! What a handler does with a record.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Error;
use crate::record::Record;

/// The key that fails for ever, and the hot one.
pub const SPECIAL: u32 = 0;

/// The key that is halted.
pub const HALTED: u32 = 1;

/// What the handlers of a workload do. All times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Nothing.
    Empty,
    /// Sleeps for so long.
    Sleep(u32),
    /// Sleeps for up to so long, as its record says.
    Random(u32),
    /// Sleeps for so long if the key is the hot one.
    Hot(u32),
    /// Sleeps for so long, and fails if the key is one of the two that fail.
    Failing(u32),
}

impl Handler {
    /// How long it takes for this record.
    pub fn pause(self, record: Record) -> Option<Duration> {
        let micros = match self {
            Self::Empty => 0,
            Self::Sleep(micros) | Self::Failing(micros) => u64::from(micros),
            Self::Random(most) => random(record) % (u64::from(most) + 1),
            Self::Hot(micros) if record.key == SPECIAL => u64::from(micros),
            Self::Hot(_) => 0,
        };
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// How long it takes at most.
    pub fn longest(self) -> Duration {
        match self {
            Self::Empty => Duration::ZERO,
            Self::Sleep(micros)
            | Self::Random(micros)
            | Self::Hot(micros)
            | Self::Failing(micros) => Duration::from_micros(u64::from(micros)),
        }
    }

    /// Whether it fails for this key.
    pub fn fails(self, key: u32) -> bool {
        matches!(self, Self::Failing(_)) && key <= HALTED
    }
}

/// The finaliser of SplitMix64, as the program in Java has it: all contenders sleep the same.
fn random(record: Record) -> u64 {
    let seed = (u64::from(record.key) << 32) | u64::from(record.number);
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // Java's numbers have a sign.
    (z ^ (z >> 31)) >> 1
}

impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty:0"),
            Self::Sleep(micros) => write!(f, "sleep:{micros}"),
            Self::Random(micros) => write!(f, "random:{micros}"),
            Self::Hot(micros) => write!(f, "hot:{micros}"),
            Self::Failing(micros) => write!(f, "failing:{micros}"),
        }
    }
}

impl FromStr for Handler {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, micros) = text.split_once(':').ok_or("a handler is `name:micros`")?;
        let micros = micros.parse()?;
        match name {
            "empty" => Ok(Self::Empty),
            "sleep" => Ok(Self::Sleep(micros)),
            "random" => Ok(Self::Random(micros)),
            "hot" => Ok(Self::Hot(micros)),
            "failing" => Ok(Self::Failing(micros)),
            _ => Err(format!("no such handler: {name}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_pauses_spread_over_the_whole_range() {
        let pauses: Vec<u128> = (0..1_000)
            .map(|number| Record { key: 7, number })
            .map(|record| Handler::Random(5_000).pause(record))
            .map(|pause| pause.unwrap_or_default().as_micros())
            .collect();
        let mean = pauses.iter().sum::<u128>() / 1_000;
        assert!((2_300..=2_700).contains(&mean), "{mean}");
        assert!(pauses.iter().all(|pause| *pause <= 5_000));
    }

    #[test]
    fn only_the_special_keys_are_special() {
        let of = |key| Record { key, number: 0 };
        assert!(Handler::Hot(1).pause(of(SPECIAL)).is_some());
        assert!(Handler::Hot(1).pause(of(1)).is_none());
        let fails: Vec<u32> = (0..4)
            .filter(|key| Handler::Failing(1).fails(*key))
            .collect();
        assert_eq!(fails, [SPECIAL, HALTED]);
        assert!(!Handler::Sleep(1).fails(SPECIAL));
    }
}
