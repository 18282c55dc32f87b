//! The rates, and the share of a process in them while the server is away.

use std::time::Duration;

use tokio::time::Instant;

use super::spec::Limit;

/// The rates, for each key and in total.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) per_key: Option<Limit>,
    pub(super) total: Option<Limit>,
    /// The shares of this process alone.
    shares: (Option<Limit>, Option<Limit>),
    epoch: Instant,
}

/// The use of a share.
#[derive(Debug, Default)]
pub(super) struct Local(u64);

impl Limits {
    pub(super) fn new(per_key: Option<Limit>, total: Option<Limit>, processes: u32) -> Self {
        let share = |limit: Option<Limit>| limit.map(|limit| limit.share(processes));
        Self {
            per_key,
            total,
            shares: (share(per_key), share(total)),
            epoch: Instant::now(),
        }
    }

    /// Takes up to this many permits out of the shares of a key and of the total. If it takes
    /// fewer, it also returns how long there are no more.
    pub(super) fn take_share(
        &self,
        key: &mut Local,
        all: &mut Local,
        now: Instant,
        wanted: u32,
    ) -> (u32, Duration) {
        let nanos = self.nanos(now);
        let mut shares = [(self.shares.0, key), (self.shares.1, all)];
        let free = shares
            .iter()
            .filter_map(|(limit, local)| Some(limit.as_ref()?.free(local.0, nanos)));
        let count = free.min().unwrap_or(wanted).min(wanted);
        let mut wait = 0;
        for (limit, local) in &mut shares {
            if let Some(limit) = limit {
                limit.take(&mut local.0, nanos, count);
                wait = wait.max(limit.wait(local.0, nanos));
            }
        }
        let wait = if count < wanted { wait } else { 0 };
        (count, Duration::from_nanos(wait))
    }

    /// Whether the use of a share still has an effect.
    pub(super) fn matters(&self, local: &Local, now: Instant) -> bool {
        local.0 > self.nanos(now)
    }

    fn nanos(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Quota;

    #[test]
    fn a_share_is_a_part_of_the_rate() {
        let per_key = Quota::per_second(10).burst(4).limit("per_key").ok();
        let total = Quota::per_second(20).burst(6).limit("total").ok();
        let limits = Limits::new(per_key, total, 2);
        let (now, mut all) = (Instant::now(), Local::default());
        let (mut one, mut other) = (Local::default(), Local::default());
        let millis = Duration::from_millis;
        // Two at once for each key, and three for all.
        assert_eq!(
            limits.take_share(&mut one, &mut all, now, 9),
            (2, millis(200))
        );
        assert_eq!(
            limits.take_share(&mut other, &mut all, now, 9),
            (1, millis(100))
        );
        let now = now + millis(100);
        assert_eq!(
            limits.take_share(&mut one, &mut all, now, 1),
            (0, millis(100))
        );
        assert_eq!(
            limits.take_share(&mut other, &mut all, now, 1),
            (1, millis(0))
        );
        assert!(limits.matters(&one, now + millis(299)));
        assert!(!limits.matters(&one, now + millis(300)));
    }
}
