//! What the counting allocator of `versus-memory` has counted.
//!
//! Bytes are those asked for; what the allocator adds for itself comes on top, for every contender.

use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use stats_alloc::INSTRUMENTED_SYSTEM;

/// Waits until nothing is allocated or freed any more, and counts.
pub fn live_bytes_at_rest() -> isize {
    let mut before = live_bytes();
    let mut still = 0;
    while still < 4 {
        std::thread::sleep(Duration::from_millis(5));
        let now = live_bytes();
        still = if now == before { still + 1 } else { 0 };
        before = now;
    }
    before
}

/// Bytes allocated and not freed.
pub fn live_bytes() -> isize {
    let stats = INSTRUMENTED_SYSTEM.stats();
    stats.bytes_allocated as isize - stats.bytes_deallocated as isize
}

/// Allocations and reallocations since the program began.
pub fn allocations() -> usize {
    let stats = INSTRUMENTED_SYSTEM.stats();
    stats.allocations + stats.reallocations
}

/// Runs `work` and returns what it returned, and the most live bytes seen meanwhile: a thread looks
/// once a millisecond.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let peak = AtomicIsize::new(live_bytes());
    let over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        // Relaxed: `peak` is read after the scope has joined the thread, and `over` carries no data.
        scope.spawn(|| {
            while !over.load(Relaxed) {
                peak.fetch_max(live_bytes(), Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let done = work();
        over.store(true, Relaxed);
        done
    });
    (done, peak.into_inner())
}
