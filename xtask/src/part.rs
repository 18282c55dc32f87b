//! One of several parts of a whole, `3/10`.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A part, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    number: u64,
    of: u64,
}

impl Part {
    /// The parts from the first to the one with the number `last`, of so many.
    pub(crate) fn first(last: u64, of: u64) -> impl Iterator<Item = Self> {
        (1..=last).map(move |number| Self { number, of })
    }

    /// All parts of a whole.
    pub(crate) fn all(of: u64) -> impl Iterator<Item = Self> {
        Self::first(of, of)
    }

    pub(crate) fn number(self) -> u64 {
        self.number
    }

    pub(crate) fn of(self) -> u64 {
        self.of
    }

    /// The places of the part in a list of this length.
    pub(crate) fn range(self, length: usize) -> Range<usize> {
        let end = |number: u64| {
            let end = length as u128 * u128::from(number) / u128::from(self.of);
            usize::try_from(end).expect("a part ends within the list")
        };
        end(self.number - 1)..end(self.number)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Part {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/').and_then(|(number, of)| {
            let (number, of) = (number.parse().ok()?, of.parse().ok()?);
            Some(Self { number, of })
        });
        match numbers {
            Some(part) if (1..=part.of).contains(&part.number) => Ok(part),
            _ => Err("give two numbers, the first from 1 to the second, as in 1/4"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_one_of_some() {
        let part = |text: &str| text.parse::<Part>();
        assert_eq!(part("2/3"), Ok(Part { number: 2, of: 3 }));
        assert_eq!(part("3/3").unwrap().to_string(), "3/3");
        for bad in ["", "1", "1/", "/2", "0/3", "4/3", "0/0", "-1/2", "a/b"] {
            assert!(part(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parts_cover_the_whole_once() {
        for length in [0, 1, 9, 10, 11, 387] {
            let places: Vec<usize> = Part::all(10).flat_map(|part| part.range(length)).collect();
            assert_eq!(places, (0..length).collect::<Vec<_>>());
        }
        let first: Vec<String> = Part::first(2, 10).map(|part| part.to_string()).collect();
        assert_eq!(first, ["1/10", "2/10"]);
    }
}
