//! What the process of a contender prints as its last line.

use serde::{Deserialize, Serialize};

/// The report of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// From the start of the first handler to the end of the last one that counts.
    pub seconds: f64,
    /// From the start of the process to the start of the first handler.
    pub startup_seconds: f64,
    /// Records that count.
    pub handled: u64,
    /// Records out of their order, or beside another one of their key.
    pub breaks: u64,
    /// Records that were handled by a process before this one, and by this one again.
    pub again: u64,
    /// Processor time of the whole process, in seconds, until the last record.
    pub cpu_seconds: f64,
    /// The part of it until the first record.
    pub cpu_startup_seconds: f64,
    /// The most memory that the process has had, in KiB.
    pub peak_kib: u64,
    /// When each tenth of the records was done, in seconds after the first one began.
    pub tenths: Vec<f64>,
}

impl Report {
    /// Records per second.
    pub fn rate(&self) -> f64 {
        self.handled as f64 / self.seconds
    }

    /// Records per second in the second half, when a virtual machine has compiled what is hot.
    pub fn warm_rate(&self) -> Option<f64> {
        let (half, end) = (self.tenths.get(4)?, self.tenths.get(9)?);
        (end > half).then(|| self.handled as f64 / 2.0 / (end - half))
    }

    /// Processor seconds per million records, from the first record to the last one.
    pub fn cpu_per_million(&self) -> f64 {
        (self.cpu_seconds - self.cpu_startup_seconds) / self.handled as f64 * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_before_the_first_record_is_left_out() {
        let report = Report {
            seconds: 2.0,
            startup_seconds: 5.0,
            handled: 1_000,
            cpu_seconds: 3.0,
            cpu_startup_seconds: 1.0,
            tenths: (0..10).map(|i| if i < 5 { 1.5 } else { 2.0 }).collect(),
            ..Report::default()
        };
        assert!((report.rate() - 500.0).abs() < 1e-9);
        assert!((report.cpu_per_million() - 2_000.0).abs() < 1e-9);
        assert_eq!(report.warm_rate(), Some(1_000.0));
    }
}
