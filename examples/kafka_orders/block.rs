//! What is shown once a second.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::member::{Partition, Status};
use crate::observer::Seen;
use crate::say::{grouped, seconds};

/// From so many milliseconds on it is said how long a partition has stood.
const LONG: u64 = 500;

/// The members that this program knows of, each with its name, and what the brokers say.
pub(crate) struct Block<'a> {
    pub(crate) elapsed: Duration,
    /// Of how many in all, if it is this program that produces.
    pub(crate) produced: Option<(u64, u64)>,
    pub(crate) handled: u64,
    pub(crate) members: &'a [(String, Status)],
    pub(crate) partitions: &'a [Seen],
}

impl fmt::Display for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lag: u64 = self.partitions.iter().map(|one| one.lag).sum();
        let lanes: usize = self.members.iter().map(|(_, status)| status.lanes).sum();
        let flight: usize = self.members.iter().map(|(_, one)| one.in_flight).sum();
        write!(f, "{:>8}  ", seconds(self.elapsed))?;
        if let Some((produced, of)) = self.produced {
            write!(f, "produced {} of {}, ", grouped(produced), grouped(of))?;
        }
        writeln!(
            f,
            "handled {}, lag {}, {} lanes in work, {} orders in flight",
            grouped(self.handled),
            grouped(lag),
            grouped(lanes as u64),
            grouped(flight as u64),
        )?;
        for (name, status) in self.members {
            if let Some(error) = status.last_error.as_ref().filter(|_| status.restarts > 0) {
                let times = status.restarts;
                writeln!(
                    f,
                    "          {name} was opened again {times} times: {error}"
                )?;
            }
        }
        write!(
            f,
            "          {:<9}  {:<9}  {:>9}  {:>9}  {:>7}  held back by",
            "partition", "member", "committed", "end", "lag"
        )?;
        for one in self.partitions {
            self.partition(f, one)?;
        }
        Ok(())
    }
}

impl Block<'_> {
    fn partition(&self, f: &mut fmt::Formatter<'_>, seen: &Seen) -> fmt::Result {
        let owner = self.members.iter().find_map(|(name, status)| {
            let mut partitions = status.partitions.iter();
            let one = partitions.find(|one| one.number == seen.number)?;
            Some((name.as_str(), one))
        });
        let mut why = String::new();
        // What a member says is older than what the brokers say.
        let holds =
            |one: &Partition| one.open > 0 && seen.committed.is_none_or(|at| at <= one.frontier);
        if let Some((_, one)) = owner.filter(|(_, one)| holds(one)) {
            write!(why, "offset {}", grouped(one.frontier))?;
            if one.stood >= LONG {
                write!(why, ", for {}", seconds(Duration::from_millis(one.stood)))?;
            }
            if one.beyond > 0 {
                write!(why, "; {} are done beyond it", grouped(one.beyond))?;
            }
        } else if owner.is_none() && seen.lag > 0 {
            why.push_str("no worker of this program has it now");
        }
        let line = format!(
            "          {:<9}  {:<9}  {:>9}  {:>9}  {:>7}  {why}",
            seen.number,
            owner.map_or("-", |(name, _)| name),
            seen.committed.map_or("-".to_owned(), grouped),
            grouped(seen.end),
            grouped(seen.lag),
        );
        write!(f, "\n{}", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_is_held_back_is_told_with_its_offset() {
        let status = Status {
            lanes: 7,
            partitions: vec![Partition {
                number: 3,
                frontier: 1_200,
                stood: 2_500,
                open: 9,
                beyond: 41,
            }],
            ..Status::default()
        };
        let seen = |number| Seen {
            number,
            committed: Some(1_200),
            end: 1_300,
            lag: 100,
        };
        let block = Block {
            elapsed: Duration::from_secs(4),
            produced: Some((1_500, 2_000)),
            handled: 1_300,
            members: &[("worker 1".to_owned(), status)],
            partitions: &[seen(3), seen(4)],
        };
        let text = block.to_string();
        for part in [
            "produced 1,500 of 2,000, handled 1,300, lag 200, 7 lanes",
            "offset 1,200, for 2.5 s; 41 are done beyond it\n",
            "no worker of this program has it now",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
