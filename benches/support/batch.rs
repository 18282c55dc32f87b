//! Messages of a measurement: which keys they have, and when all of them are handled.
//!
//! What a handler reports goes into statics. A handle to somewhere else would cost each message a
//! reference count, and a counter that two threads share would cost them a cache line: both are
//! more than some of what is measured. So there is one batch under way at a time.

use std::cell::Cell;
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// 24 bytes: a key, and a little to carry.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) key: u64,
    /// Its place among all messages, from 0.
    #[allow(dead_code, reason = "of the two benches that share this, one reads it")]
    pub(crate) number: u64,
    _body: u64,
}

/// Which key the n-th message has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    /// Each key in turn.
    Cycle(u64),
    /// No key twice.
    Distinct,
}

/// Threads that handle messages at the same time are fewer, and get their counters in turn.
const COUNTERS: usize = 16;

/// Alone in its cache lines: the processor fetches them in pairs.
#[repr(align(128))]
struct Counter(AtomicU64);

/// Messages handled since the program began, by thread.
static HANDLED: [Counter; COUNTERS] = [const { Counter(AtomicU64::new(0)) }; COUNTERS];

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Message {
    /// The n-th message.
    pub(crate) fn new(keys: Keys, n: u64) -> Self {
        let key = match keys {
            Keys::Cycle(count) => n % count,
            Keys::Distinct => n,
        };
        Self {
            key,
            number: n,
            _body: n,
        }
    }
}

/// The handler: does nothing and reports it.
pub(crate) async fn handle(message: Message) -> Result<(), Infallible> {
    black_box(message);
    let mut mine = MINE.get();
    if mine == usize::MAX {
        mine = THREADS.fetch_add(1, Ordering::Relaxed) % COUNTERS;
        MINE.set(mine);
    }
    let Counter(handled) = &HANDLED[mine];
    // Only this thread writes it, so it needs no read-modify-write.
    handled.store(handled.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    Ok(())
}

/// Messages handled since the program began.
pub(crate) fn handled() -> u64 {
    HANDLED
        .iter()
        .map(|Counter(handled)| handled.load(Ordering::Relaxed))
        .sum()
}

/// Waits until that many messages have been handled since the program began.
///
/// Asks again and again: what is left when a sender comes here is a small part of its batch.
pub(crate) async fn until_handled(count: u64) {
    while handled() < count {
        tokio::task::yield_now().await;
    }
}
