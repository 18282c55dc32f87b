//! The limit, decided: samples in, limits out. No clock, no lock.

use super::Adaptive;
use super::window::{Sample, Seen, Window};

/// Windows between two probes. A probe costs about two windows at half the limit.
const PROBE_EVERY: u32 = 30;

/// The least number of windows between two probes, and so many there are before the first one (the
/// limit may have started far above what the handler can do) and after one that found news.
const PROBE_SOON: u32 = 5;

/// With half in flight, the part of the throughput (or of the load) that counts as still as much.
/// Without a queue before it would be 0.5, with a long one 1.0; in between is their geometric mean.
const STILL_MUCH: f64 = 0.7;

/// With more than this part of the samples timed out, latency says nothing: it is cut off at the
/// time-out, which may be close to what an attempt takes without any queue.
const TOO_MANY_TIMEOUTS: f64 = 0.1;

/// What the limit is multiplied with then; Netflix' `GradientLimit` takes the same.
const BACK_OFF: f64 = 0.9;

/// No window takes more than half of the limit away.
const STEEPEST: f64 = 0.5;

/// A limit counts as used if this part of it was in flight once.
const USED: f64 = 0.9;

/// A change of the latency below this part is none.
const SLIGHT: f64 = 0.1;

/// How fast the belief about the latency without a queue follows: when a window was clearly faster,
/// when a probe differs by no more than its noise (and at once if by more), and when attempts take
/// longer although the limit is out of use.
const FALL: f64 = 0.25;
const PROBED: f64 = 0.5;
const RISE: f64 = 0.1;

/// Follows a handler with the limit.
#[derive(Debug)]
pub(super) struct Controller {
    settings: Adaptive,
    /// Between `min` and `max` at all times, and never NaN: only `go_to` writes it.
    limit: f64,
    /// Mean latency without a queue, in seconds; not known before the first window.
    unloaded: Option<f64>,
    window: Window,
    /// How many windows have closed.
    round: u32,
    strategy: Strategy,
    /// Windows since the last probe.
    since_probe: u32,
    probe_after: u32,
    /// The highest limit since the last probe.
    highest: f64,
}

#[derive(Clone, Copy, Debug)]
enum Strategy {
    Follow,
    /// The limit is halved, to see what the latency does.
    Probe {
        /// The window before, with twice as much in flight.
        before: Seen,
        /// The limit before.
        from: f64,
    },
}

impl Controller {
    pub(super) fn new(settings: Adaptive) -> Self {
        let first = settings.first();
        let mut controller = Self {
            settings,
            limit: first as f64,
            unloaded: None,
            window: Window::new(0),
            round: 0,
            strategy: Strategy::Follow,
            since_probe: 0,
            probe_after: PROBE_SOON,
            highest: first as f64,
        };
        controller.window = Window::new(controller.window_size());
        controller
    }

    /// The limit in force.
    pub(super) fn limit(&self) -> usize {
        let limit = self.limit.round() as usize;
        limit.clamp(self.settings.min, self.settings.max)
    }

    /// How many windows have closed; it may wrap.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// Takes a sample. The one that closes a window returns the limit to hold from now on.
    pub(super) fn record(&mut self, sample: Sample) -> Option<usize> {
        let seen = self.window.add(sample)?;
        let before = self.limit();
        self.strategy = match self.strategy {
            Strategy::Follow => self.follow(&seen),
            Strategy::Probe { before, from } => self.probed(&seen, &before, from),
        };
        // What a probe measures starts when those that ran under the old limit are done.
        self.round = self.round.wrapping_add(1);
        let window = Window::next(&seen, self.round, self.window_size());
        self.window = match self.strategy {
            Strategy::Follow => window,
            Strategy::Probe { .. } => window.skipping(before.min(seen.peak)),
        };
        Some(self.limit())
    }

    fn window_size(&self) -> usize {
        let samples = self.settings.samples as usize;
        let samples = match self.strategy {
            // More rests on it; and with next to nothing in flight, as many would take long.
            Strategy::Probe { .. } if self.limit > 2.0 => 2 * samples,
            Strategy::Probe { .. } | Strategy::Follow => samples,
        };
        samples.max(self.limit().saturating_mul(2))
    }

    fn follow(&mut self, seen: &Seen) -> Strategy {
        let unloaded = self.learn(seen);
        let half_used = seen.peak.saturating_mul(2) >= self.limit();
        if seen.timed_out > TOO_MANY_TIMEOUTS {
            self.go_to(self.limit * BACK_OFF);
        } else if half_used {
            self.step(seen, unloaded);
        }
        self.since_probe = self.since_probe.saturating_add(1);
        self.highest = self.highest.max(self.limit);
        if half_used && self.is_probe_due() {
            return self.halve(seen);
        }
        Strategy::Follow
    }

    /// One step towards what is worked on, and headroom.
    fn step(&mut self, seen: &Seen, unloaded: f64) {
        let gradient = self.settings.tolerance * unloaded / seen.least();
        let target = if gradient >= 1.0 {
            self.limit + self.limit.sqrt()
        } else {
            let worked_on = seen.in_flight * gradient + self.limit.sqrt() / 2.0;
            worked_on.max(self.limit * STEEPEST)
        };
        let used = seen.peak as f64 >= self.limit() as f64 * USED;
        if target < self.limit || used {
            self.go_to(self.limit + (target - self.limit) * self.settings.smoothing);
        }
    }

    /// What this window says about the latency without a queue, and what is believed now.
    fn learn(&mut self, seen: &Seen) -> f64 {
        let unloaded = self.unloaded.unwrap_or(seen.latency);
        let out_of_use =
            seen.peak.saturating_mul(2) < self.limit() || self.limit() == self.settings.min;
        let rate = if seen.latency + 2.0 * seen.error < unloaded {
            FALL
        } else if out_of_use {
            // There is no smaller load to try: if this is a queue, it is not of our making.
            RISE
        } else {
            0.0
        };
        self.believe(unloaded, seen.latency, rate)
    }

    fn believe(&mut self, unloaded: f64, latency: f64, rate: f64) -> f64 {
        let unloaded = unloaded + (latency - unloaded) * rate;
        self.unloaded = Some(unloaded);
        unloaded
    }

    /// Regularly, and when so much was lost that the latency may have become the handler's own.
    fn is_probe_due(&self) -> bool {
        let lost_half = self.since_probe >= PROBE_SOON && self.limit < self.highest * STEEPEST;
        self.since_probe >= self.probe_after || lost_half
    }

    fn halve(&mut self, before: &Seen) -> Strategy {
        let from = self.limit;
        self.go_to((from / 2.0).floor());
        self.since_probe = 0;
        self.probe_after = PROBE_EVERY;
        self.highest = self.limit;
        if from - self.limit < 1.0 {
            return Strategy::Follow;
        }
        Strategy::Probe {
            before: *before,
            from,
        }
    }

    /// What half the load says about the latency without a queue.
    fn probed(&mut self, seen: &Seen, before: &Seen, from: f64) -> Strategy {
        let unloaded = self.unloaded.unwrap_or(seen.latency);
        let is_halved = seen.in_flight < before.in_flight * STILL_MUCH;
        let is_queue = seen.throughput() >= before.throughput() * STILL_MUCH;
        let change = seen.latency - unloaded;
        let slight = unloaded * SLIGHT;
        if !is_halved {
            // There was not load enough to tell.
        } else if -seen.error.max(slight) <= change && change <= (2.0 * seen.error).max(slight) {
            // Less is asked of good news: what was taken for no queue may have been one.
            self.believe(unloaded, seen.latency, PROBED);
        } else if change < 0.0 || !is_queue {
            self.believe(unloaded, seen.latency, 1.0);
            if is_queue {
                // As much is done by half as many, and faster: this may be a queue as well.
                return self.halve(seen);
            }
            // A handler that changed in the middle of the probe looks the same: look again.
            self.probe_after = PROBE_SOON;
        }
        self.go_to(from);
        self.highest = self.limit;
        Strategy::Follow
    }

    fn go_to(&mut self, limit: f64) {
        let (min, max) = (self.settings.min as f64, self.settings.max as f64);
        self.limit = limit.clamp(min, max);
    }
}
