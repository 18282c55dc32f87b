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

    /// Returns the value that this share of the gaps after such faults, in percent, does not
    /// exceed; zero if there are none.
    pub fn quantile(&self, is_one: impl Fn(Fault) -> bool, share: usize) -> Duration {
        let of = self.0.iter().filter(|(fault, _)| is_one(**fault));
        let mut gaps: Vec<Duration> = of.flat_map(|(_, gaps)| gaps).copied().collect();
        gaps.sort_unstable();
        crate::verdict::quantile(&gaps, share)
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
