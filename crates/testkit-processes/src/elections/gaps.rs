//! The times between a fault and the next leader.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Fault;

/// How long after each fault another leader was inaugurated. Ascending.
#[derive(Clone, Debug, Default)]
pub struct Gaps(BTreeMap<Fault, Vec<Duration>>);

impl Gaps {
    pub(super) fn new(gaps: impl IntoIterator<Item = (Fault, Duration)>) -> Self {
        let mut of = BTreeMap::<_, Vec<_>>::new();
        for (fault, gap) in gaps {
            of.entry(fault).or_default().push(gap);
        }
        of.values_mut().for_each(|gaps| gaps.sort_unstable());
        Self(of)
    }

    /// Returns the longest one; zero if there are none.
    pub fn longest(&self) -> Duration {
        self.of(|_| true).last().copied().unwrap_or_default()
    }

    /// Returns those after such faults that are longer than this limit, if they are more than one
    /// in a hundred. One is always allowed.
    pub fn late(&self, is_one: impl Fn(Fault) -> bool, limit: Duration) -> Vec<Duration> {
        let mut gaps = self.of(is_one);
        let allowed = (gaps.len() / 100).max(1);
        let late = gaps.split_off(gaps.partition_point(|gap| *gap <= limit));
        match late.len() > allowed {
            true => late,
            false => Vec::new(),
        }
    }

    /// Returns what half of those after such faults do not exceed; zero if there are none.
    pub fn half(&self, is_one: impl Fn(Fault) -> bool) -> Duration {
        crate::verdict::quantile(&self.of(is_one), 50)
    }

    /// Ascending.
    fn of(&self, is_one: impl Fn(Fault) -> bool) -> Vec<Duration> {
        let of = self.0.iter().filter(|(fault, _)| is_one(**fault));
        let mut gaps: Vec<Duration> = of.flat_map(|(_, gaps)| gaps).copied().collect();
        gaps.sort_unstable();
        gaps
    }
}

/// For each kind of fault: how many, and half, 99 % and all of the gaps, in seconds.
impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (fault, gaps)) in self.0.iter().enumerate() {
            let seconds = |share| crate::verdict::quantile(gaps, share).as_secs_f64();
            write!(
                f,
                "{}{} × {fault} {:.3} {:.3} {:.3}",
                if at == 0 { "" } else { ", " },
                gaps.len(),
                seconds(50),
                seconds(99),
                seconds(100),
            )?;
        }
        Ok(())
    }
}
