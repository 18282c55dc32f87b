//! The memory of keys whose lanes are gone: versions and rates.

use keylane_rt::clock::Instant;
use keylane_rt::unwind::shielded;

use super::LaneTable;
use crate::discipline::Forgotten;
use crate::engine::message::WakeUp;
use crate::rate::Remembered;
use crate::types::Spec;

impl<T: Spec> LaneTable<T> {
    /// Records the last version of a key whose lane is removed. Under the shard's lock, so that the
    /// next lane of the key knows it.
    pub(crate) fn remember_version(
        &self,
        key: &T::Key,
        hash: u64,
        version: Option<u64>,
        now: Instant,
    ) -> Option<Forgotten<T::Key>> {
        let versions = self.settings.discipline.versions()?;
        Some(versions.record(key, hash, version?, now))
    }

    /// Remembers the rate of a key whose lane is removed. Returns when to forget it.
    pub(crate) fn remember_rate(&self, hash: u64, tat: u64, now: Instant) -> Option<u64> {
        let rates = self.rates.as_ref().filter(|_| tat > 0)?;
        match rates.remember(hash, tat, self.clocks.stamp(now)) {
            Remembered::Nothing => None,
            Remembered::ForgetAt(at) => Some(at),
        }
    }

    /// The remembered rate of a key that has no lane.
    pub(crate) fn recall_rate(&self, hash: u64, now: Instant) -> u64 {
        let rates = self.rates.as_ref();
        rates.map_or(0, |rates| rates.recall(hash, self.clocks.stamp(now)))
    }

    pub(crate) fn forget_rates_at(&self, at: u64) {
        self.clocks.arm_wake_up(WakeUp::Forget, at);
    }

    /// The time has come to forget rates that have fully recovered.
    pub(crate) fn forget_rates(&self, now: Instant) {
        let Some(rates) = &self.rates else { return };
        let (gate, next) = rates.forget(self.clocks.stamp(now));
        if let Some(gate) = gate {
            shielded(|| gate.close());
        }
        if let Remembered::ForgetAt(at) = next {
            self.forget_rates_at(at);
        }
    }
}
