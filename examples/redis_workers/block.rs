//! What is shown once a second.

use std::fmt::{self, Write as _};
use std::time::Duration;

use keylane_redis::{KeyHolder, ListStatus};

use crate::say::{grouped, seconds};
use crate::sink::Partition;
use crate::worker::Status;

/// How many keys are shown with their workers.
const KEYS: usize = 4;

/// What the server says.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) list: ListStatus,
    pub(crate) holders: Vec<KeyHolder>,
    pub(crate) partitions: Vec<Partition>,
}

impl Seen {
    /// How many orders are not acked.
    pub(crate) fn left(&self) -> u64 {
        let workers = self.list.workers.iter();
        let held: u64 = workers.map(|worker| worker.held + worker.sent).sum();
        let partitions = self.partitions.iter();
        let stream: u64 = partitions.map(|one| one.lag + one.pending).sum();
        self.list.waiting + held + stream
    }
}

pub(crate) struct Block<'a> {
    pub(crate) elapsed: Duration,
    pub(crate) produced: u64,
    pub(crate) of: u64,
    pub(crate) workers: &'a [(u32, Status)],
    pub(crate) seen: &'a Seen,
}

impl fmt::Display for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen {
            list,
            holders,
            partitions,
        } = self.seen;
        writeln!(
            f,
            "{:>8}  produced {} of {}, {} wait in the list and {} in the stream, {} keys of the list are held",
            seconds(self.elapsed),
            grouped(self.produced),
            grouped(self.of),
            grouped(list.waiting),
            grouped(partitions.iter().map(|one| one.lag).sum::<u64>()),
            grouped(list.keys),
        )?;
        write!(
            f,
            "          {:<9}  {:>8}  {:>8}  {:>8}  {:>10}  the busiest keys of the list that it has",
            "worker", "handled", "in work", "of list", "partitions"
        )?;
        for (number, status) in self.workers {
            self.worker(f, *number, status, holders)?;
        }
        Ok(())
    }
}

impl Block<'_> {
    fn worker(
        &self,
        f: &mut fmt::Formatter<'_>,
        number: u32,
        status: &Status,
        holders: &[KeyHolder],
    ) -> fmt::Result {
        let name = number.to_string();
        let partitions = self.seen.partitions.iter();
        let mine = partitions.filter(|one| one.owner.as_ref() == Some(&name));
        let mine: Vec<String> = mine.map(|one| one.number.to_string()).collect();
        // The queue knows a worker by the number of its process.
        let process = format!("{}-", status.process);
        let mut by_open: Vec<&KeyHolder> = holders
            .iter()
            .filter(|holder| holder.worker.starts_with(&process))
            .collect();
        by_open.sort_by(|one, other| (other.open, &one.key).cmp(&(one.open, &other.key)));
        let mut keys = String::new();
        for holder in by_open.iter().take(KEYS) {
            let key = String::from_utf8_lossy(&holder.key);
            let key = key.trim_start_matches("customer-");
            write!(keys, "{key} ({}) ", holder.open)?;
        }
        let line = format!(
            "          {number:<9}  {:>8}  {:>8}  {:>8}  {:>10}  {keys}",
            grouped(status.list.handled + status.stream.handled),
            status.list.in_flight + status.stream.in_flight,
            status.list.held,
            mine.join(" "),
        );
        write!(f, "\n{}", line.trim_end())
    }
}
