//! Keys that are seen once, under `rate_per_key`: what a dispatcher remembers of them.
//!
//! A lane is kept until its key's rate has recovered. So the lanes that are left a second after the
//! last message, and the most bytes at once, show whether they go as fast as they may.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use keylane::{Dispatcher, Rate};
use serde::{Deserialize, Serialize};

use crate::allocator::{live_bytes, live_bytes_at_rest, peak_of};
use crate::limits::{CAPACITY, CONCURRENCY};
use crate::measure;
use crate::message::Tick;
use crate::probe;

/// Starts per second and key; none is the control.
const RATES: [Option<u32>; 3] = [None, Some(1_000), Some(10)];

/// What takes longer is cut.
const LIMIT: Duration = Duration::from_secs(120);

/// After the last message, until the lanes are counted again.
const REST: Duration = Duration::from_secs(1);

/// One rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RateKeys {
    /// Starts per second and key.
    pub per_second: Option<u32>,
    /// Messages handled, each with a key of its own.
    pub keys: u64,
    /// Nanoseconds per message.
    pub ns_per_message: f64,
    /// Most live bytes at once, over those before the dispatcher.
    pub peak_bytes: isize,
    /// Lanes when the last message was handled.
    pub lanes: usize,
    /// Lanes a second later.
    pub lanes_after: usize,
    /// Live bytes a second later, over those before the dispatcher.
    pub bytes_after: isize,
}

/// Measures each rate.
pub fn measure(quick: bool) -> Vec<RateKeys> {
    let keys = if quick { 1_000_000 } else { 10_000_000 };
    RATES.map(|rate| one(rate, keys)).into()
}

fn one(per_second: Option<u32>, keys: u64) -> RateKeys {
    probe::reset(0, 0);
    let runtime = measure::runtime();
    let before = live_bytes_at_rest();
    let builder = Dispatcher::builder(|tick: &Tick| tick.key)
        .concurrency(CONCURRENCY)
        .capacity(CAPACITY);
    let builder = match per_second {
        Some(rate) => builder.rate_per_key(Rate::per_second(rate)),
        None => builder,
    };
    let lanes = {
        let _inside = runtime.enter();
        builder.spawn(handle).expect("the settings agree")
    };
    let began = Instant::now();
    let (elapsed, peak) = peak_of(|| {
        let sender = lanes.clone();
        let sending = runtime.spawn(async move {
            for key in 0..keys {
                let tick = Tick {
                    key,
                    due: 0,
                    slot: 0,
                    seq: 1,
                };
                // It is closed only when the runtime is gone.
                let _ = sender.send(tick).await;
            }
        });
        while probe::handled() < keys && began.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_micros(200));
        }
        sending.abort();
        began.elapsed()
    });
    let handled = probe::handled();
    let at_the_end = lanes.stats().lanes;
    std::thread::sleep(REST);
    let measured = RateKeys {
        per_second,
        keys: handled,
        ns_per_message: elapsed.as_nanos() as f64 / handled.max(1) as f64,
        peak_bytes: peak - before,
        lanes: at_the_end,
        lanes_after: lanes.stats().lanes,
        bytes_after: live_bytes() - before,
    };
    runtime.shutdown_timeout(LIMIT);
    measured
}

async fn handle(_: Tick) -> Result<(), Infallible> {
    probe::done();
    Ok(())
}
