//! Samples, some dozens at a time.

use std::time::Duration;

/// What one attempt tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) latency: Duration,
    /// Attempts in flight when it started, itself included.
    pub(super) in_flight: usize,
    /// It was dropped at its time-out: the latency is the least that it would have been.
    pub(super) timed_out: bool,
    /// How many windows had closed when it started. Only compared: it may wrap.
    pub(super) round: u32,
}

/// What a window of samples tells. All means are positive and finite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Mean, in seconds.
    pub(super) latency: f64,
    /// Standard error of that mean.
    pub(super) error: f64,
    /// Mean over the starts of the same attempts.
    pub(super) in_flight: f64,
    /// Most in flight at any of the starts.
    pub(super) peak: usize,
    /// Part of the samples, from 0.0 to 1.0.
    pub(super) timed_out: f64,
}

impl Seen {
    /// The mean latency, as low as it may well have been: what is within the noise is no queue.
    pub(super) fn least(&self) -> f64 {
        (self.latency - self.error).max(SHORTEST)
    }

    /// Attempts a second, by Little's law.
    pub(super) fn throughput(&self) -> f64 {
        self.in_flight / self.latency
    }
}

/// A shorter latency is the price of a queue hop, and with paused time it is zero.
const SHORTEST: f64 = 1e-6;

/// Most that a single sample counts, as a multiple of the mean of the window before. One message in
/// a hundred that runs into a long time-out must not look like a handler at its end.
const LARGEST: f64 = 8.0;

/// For each attempt that was in flight before, so many samples are skipped at most.
const MOST_SKIPPED: usize = 8;

#[derive(Debug)]
pub(super) struct Window {
    round: u32,
    /// Samples to let pass at most, and those that started before this window among them. Fast ones
    /// come back first: what is measured begins when the slow ones of before are gone, too.
    skip: usize,
    before: usize,
    size: usize,
    count: usize,
    latency: f64,
    /// Sum of squares.
    latency_squares: f64,
    in_flight: f64,
    peak: usize,
    timed_out: usize,
    /// No sample counts more, in seconds.
    longest: f64,
}

impl Window {
    pub(super) fn new(size: usize) -> Self {
        Self {
            round: 0,
            skip: 0,
            before: 0,
            size,
            count: 0,
            latency: 0.0,
            latency_squares: 0.0,
            in_flight: 0.0,
            peak: 0,
            timed_out: 0,
            longest: f64::MAX,
        }
    }

    /// Takes a sample; with the last one the window closes.
    pub(super) fn add(&mut self, sample: Sample) -> Option<Seen> {
        if self.skip > 0 {
            self.skip -= 1;
            if sample.round != self.round {
                self.before = self.before.saturating_sub(1);
            }
            if self.before == 0 {
                self.skip = 0;
            }
            return None;
        }
        let longest = self.longest.max(SHORTEST);
        let latency = sample.latency.as_secs_f64().clamp(SHORTEST, longest);
        self.count += 1;
        self.latency += latency;
        self.latency_squares += latency * latency;
        self.in_flight += sample.in_flight.max(1) as f64;
        self.peak = self.peak.max(sample.in_flight);
        self.timed_out += usize::from(sample.timed_out);
        if self.count < self.size {
            return None;
        }
        let count = self.count as f64;
        let mean = self.latency / count;
        let variance = (self.latency_squares / count - mean * mean).max(0.0);
        Some(Seen {
            latency: mean,
            error: (variance / count).sqrt(),
            in_flight: self.in_flight / count,
            peak: self.peak,
            timed_out: self.timed_out as f64 / count,
        })
    }

    /// The window after one that has closed.
    pub(super) fn next(seen: &Seen, round: u32, size: usize) -> Self {
        Self {
            round,
            longest: seen.latency * LARGEST,
            ..Self::new(size)
        }
    }

    /// Lets those pass that are in flight now, all but a tenth: some may never end.
    pub(super) fn skipping(mut self, in_flight: usize) -> Self {
        self.before = in_flight - in_flight / 10;
        self.skip = in_flight.saturating_mul(MOST_SKIPPED);
        self
    }
}
