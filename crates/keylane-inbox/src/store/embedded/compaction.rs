//! Decides when to compact the file.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::fault::{Fault, guarded};
use super::settings::Settings;
use super::shared::{Counts, Shared, State};

/// When to compact the file.
///
/// redb gives free pages at the end of the file back in part, and never moves the pages behind
/// them. So a file that a backlog has made large stays large, unless it is compacted: all live
/// pages move to the front. That takes as long as reading and writing all live bytes, and blocks
/// all other reads and writes.
///
/// So it happens only after the file has been more than twice as long as it needs to be for some
/// time; the wait grows with the live bytes. While a backlog is worked off it would be useless,
/// even if half of the backlog belongs to a blocked key.
#[derive(Debug)]
pub(super) struct Compaction {
    /// How much longer the file may always be.
    above: u64,
    /// How long the file must have been too long, at least.
    patience: Duration,
    /// How many bytes of the file a live byte needs, in hundredths: pages are not full, and large
    /// values take pages by powers of two. Known after a compaction.
    density: u64,
    /// Since when the file is too long, and how many live bytes it had then.
    noticed: Option<(Instant, u64)>,
}

/// Each so many live bytes add one patience to the wait. Moving them takes 20 to 60 ms, so a wait
/// of a second blocks other calls only for a small part of the time.
const LIVE_PER_PATIENCE: u64 = 2 << 20;

impl Compaction {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            above: settings.compact_above,
            patience: settings.compact_after,
            density: 100,
            noticed: None,
        }
    }

    /// Looks at the file after a commit, or after some time. Returns whether to compact it now.
    pub(super) fn look(&mut self, now: Instant, file: u64, live: u64) -> bool {
        let needed = live.saturating_mul(self.density) / 100;
        if file <= self.above.saturating_add(needed.saturating_mul(2)) {
            self.noticed = None;
            return false;
        }
        match self.noticed {
            // The backlog is being worked off: an eighth less than before.
            Some((_, then)) if live < then - then / 8 => self.noticed = Some((now, live)),
            Some(_) => {}
            None => self.noticed = Some((now, live)),
        }
        self.due().is_some_and(|due| due <= now)
    }

    /// Returns when to look again if nothing is committed meanwhile.
    pub(super) fn due(&self) -> Option<Instant> {
        let (since, live) = self.noticed?;
        let times = u32::try_from(live / LIVE_PER_PATIENCE).unwrap_or(u32::MAX);
        since.checked_add(self.patience.saturating_mul(times.saturating_add(1)))
    }

    /// Makes the file as short as it can be. Returns its length.
    pub(super) fn run(&mut self, shared: &Shared, live: u64) -> Result<u64, Fault> {
        let (began, before) = (Instant::now(), shared.watch.length());
        // Waits for reads in progress: redb would refuse otherwise.
        let mut state = shared.state.write().unwrap_or_else(PoisonError::into_inner);
        let State::Open(database) = &mut *state else {
            return Err(Fault::Refused("it is not open".into()));
        };
        guarded(|| Ok(database.compact()?))?;
        Counts::add(&shared.counts.compactions);
        drop(state);
        let after = shared.watch.length();
        // The database's own pages dominate a small file. The bound is the need of the worst sizes.
        self.density = match live {
            0..1_000_000 => 100,
            _ => (after.saturating_mul(100) / live).clamp(100, 400),
        };
        self.noticed = None;
        let elapsed = began.elapsed();
        tracing::debug!(
            before_bytes = before,
            after_bytes = after,
            live_bytes = live,
            ?elapsed,
            "the file was compacted"
        );
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn compaction() -> (Compaction, Instant) {
        (Compaction::new(&Settings::default()), Instant::now())
    }

    fn after(seconds: u64, since: Instant) -> Instant {
        since + Duration::from_secs(seconds)
    }

    #[test]
    fn a_file_that_is_not_too_long_is_left_alone() {
        let (mut compaction, now) = compaction();
        assert!(!compaction.look(now, 8 * MIB, 0));
        assert!(!compaction.look(after(9, now), 8 * MIB, 0));
        assert!(!compaction.look(after(9, now), 28 * MIB, 10 * MIB));
        assert_eq!(compaction.due(), None);
    }

    #[test]
    fn one_that_stays_too_long_is_compacted() {
        let (mut compaction, now) = compaction();
        assert!(!compaction.look(now, 40 * MIB, 10 * MIB));
        assert_eq!(compaction.due(), Some(after(6, now)));
        assert!(!compaction.look(after(5, now), 40 * MIB, 10 * MIB));
        assert!(compaction.look(after(6, now), 40 * MIB, 10 * MIB));
        // Not for a moment between two peaks.
        assert!(!compaction.look(after(7, now), 40 * MIB, 20 * MIB));
        assert!(!compaction.look(after(8, now), 40 * MIB, 10 * MIB));
    }

    #[test]
    fn not_while_a_backlog_is_worked_off() {
        let (mut compaction, now) = compaction();
        let steps = (0..100).map(|step| (step, (1_000 - step * 10) * MIB));
        for (step, live) in steps {
            assert!(!compaction.look(after(step, now), 5_000 * MIB, live));
        }
        let rest = 10 * MIB;
        let mut waited = (100..120).map(|step| after(step, now));
        assert!(waited.any(|now| compaction.look(now, 5_000 * MIB, rest)));
    }

    #[test]
    fn the_more_there_is_to_move_the_longer_it_waits() {
        let (mut compaction, now) = compaction();
        let live = 640 * MIB;
        assert!(!compaction.look(now, 2_000 * MIB, live));
        assert!(!compaction.look(after(320, now), 2_000 * MIB, live));
        assert!(compaction.look(after(321, now), 2_000 * MIB, live));
    }

    #[test]
    fn not_while_the_others_of_a_blocked_key_are_worked_off() {
        // Half of a gigabyte is blocked, and the other half leaves within 80 seconds.
        let (mut compaction, now) = compaction();
        for step in 0..80 {
            let live = (1_000 - step * 500 / 80) * MIB;
            assert!(!compaction.look(after(step, now), 1_250 * MIB, live));
        }
    }
}
