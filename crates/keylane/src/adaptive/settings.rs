//! The settings of the adaptive limit.

use crate::error::BuildError;

/// A concurrency limit that follows the latency of the handler.
///
/// While attempts take as long as they do without a queue, and the limit is used, the limit grows.
/// When attempts take longer the more of them run, something behind the handler queues. The limit
/// then shrinks to the attempts that are really in progress and some headroom. From time to time it
/// is halved for a moment, to measure how long an attempt takes without a queue.
///
/// Only answers and time-outs are measured. An attempt that fails or panics says nothing about what
/// the handler can do: a refusal is often faster than an answer. A limit that is not used does not
/// grow, and while no message comes it stays.
///
/// The algorithm is that of TCP Vegas (Brakmo and Peterson, 1995), with the gradient of Netflix'
/// `concurrency-limits` and the probes of BBR (Cardwell et al., 2016).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use keylane::{Adaptive, Dispatcher};
///
/// let orders = Dispatcher::builder(|order: &(u64, u64)| order.0)
///     .adaptive_concurrency(Adaptive::between(4, 512).initial(32))
///     .spawn(|_: (u64, u64)| async move { Ok::<(), std::io::Error>(()) })?;
/// assert_eq!(orders.stats().concurrency_limit, 32);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    pub(super) min: usize,
    pub(super) max: usize,
    initial: Option<usize>,
    pub(super) tolerance: f64,
    pub(super) smoothing: f64,
    pub(super) samples: u32,
}

/// Limits are counted in `f64` and in 32 bits.
const MOST: usize = u32::MAX as usize;

/// Fewer samples have no mean worth the name.
const FEWEST_SAMPLES: u32 = 8;

const MOST_SAMPLES: u32 = 1 << 20;

impl Adaptive {
    /// Keeps the limit between `min` and `max` handlers in flight. It starts at `min`.
    ///
    /// `min` must be at least one and at most `max`; otherwise `spawn` returns an error.
    pub fn between(min: usize, max: usize) -> Self {
        Self {
            min,
            max,
            initial: None,
            tolerance: 1.1,
            smoothing: 0.5,
            samples: 32,
        }
    }

    /// Sets the limit at the start, clamped to the range. The default is the lower end, at which
    /// the latency without a queue is measured first.
    #[must_use]
    pub fn initial(mut self, handlers: usize) -> Self {
        self.initial = Some(handlers);
        self
    }

    /// Sets how much longer attempts may take than without a queue, as a factor from 1.0 to 10.0.
    /// The default is 1.1.
    ///
    /// A handler that gets slower with every message in flight, long before it is full, needs a
    /// larger factor:
    /// Netflix takes 1.5.
    #[must_use]
    pub fn tolerance(mut self, factor: f64) -> Self {
        self.tolerance = if factor.is_nan() {
            1.0
        } else {
            factor.clamp(1.0, 10.0)
        };
        self
    }

    /// Sets which part of the way to its new value the limit goes in one step, from 0.05 to 1.0.
    /// The default is 0.5. A smaller part is calmer and slower.
    #[must_use]
    pub fn smoothing(mut self, part: f64) -> Self {
        self.smoothing = if part.is_nan() {
            0.05
        } else {
            part.clamp(0.05, 1.0)
        };
        self
    }

    /// Sets the minimum number of attempts that are measured before the limit moves, from 8 to
    /// 1,048,576. The default is 32, and at least two for each handler in flight.
    ///
    /// Set more where attempts differ a lot from each other.
    #[must_use]
    pub fn samples(mut self, attempts: u32) -> Self {
        self.samples = attempts.clamp(FEWEST_SAMPLES, MOST_SAMPLES);
        self
    }

    /// The limit before anything was measured.
    pub(crate) fn first(&self) -> usize {
        self.initial.unwrap_or(self.min).clamp(self.min, self.max)
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let Self { min, max, .. } = *self;
        if min == 0 {
            return Err(BuildError::Zero("adaptive_concurrency"));
        }
        if min > max {
            return Err(BuildError::EmptyRange { min, max });
        }
        if max > MOST {
            return Err(BuildError::TooLarge("adaptive_concurrency"));
        }
        Ok(())
    }
}
