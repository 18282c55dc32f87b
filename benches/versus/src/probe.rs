//! What a handler reports: that a message started, that it ended, and how late it was.
//!
//! The probe is one static, because a handler that carried a handle to it would pay a reference
//! count for each message, and each contender would pay it differently. Only one measurement runs
//! at a time, and [`reset`] stands between two of them.
//!
//! The cost is the same for every contender: a load and two stores in the message's own slot, and
//! a load and a store in a counter that only this thread writes. No read-modify-write, nothing
//! shared between two threads that handle two different keys.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use tokio::sync::Notify;

use crate::message::Tick;

/// Most order slots of one measurement: one per key, or per key and producer.
pub const MOST_SLOTS: usize = 16 << 20;

/// Most messages of one open-loop measurement.
pub const MOST_LATENCIES: usize = 1 << 20;

/// Threads that handle messages in one measurement are far fewer; ids are handed out in turn.
const SHARDS: usize = 64;

/// Set in a slot while a message of it is being handled.
const RUNNING: u32 = 1;

/// A latency that has not been recorded.
const NEVER: u64 = u64::MAX;

#[repr(align(128))]
struct Shard {
    done: AtomicU64,
    started: AtomicU64,
    breaks: AtomicU64,
}

static COUNTERS: [Shard; SHARDS] = [const {
    Shard {
        done: AtomicU64::new(0),
        started: AtomicU64::new(0),
        breaks: AtomicU64::new(0),
    }
}; SHARDS];

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);
static SLOTS: OnceLock<Box<[AtomicU32]>> = OnceLock::new();
static LATENCIES: OnceLock<Box<[AtomicU64]>> = OnceLock::new();
static GATE: Notify = Notify::const_new();
static OPEN: AtomicBool = AtomicBool::new(false);
static EPOCH: OnceLock<Instant> = OnceLock::new();

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Forgets the measurement before: counters, the first `slots` slots, the first `latencies`
/// latencies; and closes the gate.
pub fn reset(slots: usize, latencies: usize) {
    for shard in &COUNTERS {
        shard.done.store(0, Relaxed);
        shard.started.store(0, Relaxed);
        shard.breaks.store(0, Relaxed);
    }
    for slot in &self::slots()[..slots] {
        slot.store(0, Relaxed);
    }
    for latency in &self::latencies()[..latencies] {
        latency.store(NEVER, Relaxed);
    }
    OPEN.store(false, Relaxed);
    epoch();
}

/// A handler has begun with this message. Counts a break when a later one of its slot has begun
/// before it, or one is still being handled.
#[inline]
pub fn start(tick: &Tick) {
    let slot = &slots()[tick.slot as usize];
    let before = slot.load(Relaxed);
    if before & RUNNING != 0 || before >= tick.seq << 1 {
        bump(&shard().breaks);
    }
    slot.store(tick.seq << 1 | RUNNING, Relaxed);
}

/// The handler is done with this message.
#[inline]
pub fn end(tick: &Tick) {
    leave(tick);
    bump(&shard().done);
}

/// The handler is done with a message that does not count, of a key that is there for the others.
#[inline]
pub fn leave(tick: &Tick) {
    slots()[tick.slot as usize].store(tick.seq << 1, Relaxed);
}

/// A handler that will wait at the gate has begun.
pub fn started_waiting() {
    bump(&shard().started);
}

/// A message without a slot of its own is done.
pub fn done() {
    bump(&shard().done);
}

/// Records how long after its due time it is now.
pub fn late(tick: &Tick) {
    latencies()[tick.seq as usize - 1].store(now_ns().saturating_sub(tick.due), Relaxed);
}

/// Waits until [`open_gate`].
pub async fn gate() {
    let opened = GATE.notified();
    // Created before the look, so that an opening in between is not missed.
    if is_open() {
        return;
    }
    opened.await;
}

/// Lets every handler at the gate go on, and all that come later.
pub fn open_gate() {
    OPEN.store(true, Relaxed);
    GATE.notify_waiters();
}

/// Whether the gate is open, which at the end of a measurement says that it is over.
pub fn is_open() -> bool {
    OPEN.load(Relaxed)
}

/// Messages handled since the reset.
pub fn handled() -> u64 {
    COUNTERS.iter().map(|shard| shard.done.load(Relaxed)).sum()
}

/// Handlers that have come to the gate since the reset.
pub fn waiting() -> u64 {
    COUNTERS
        .iter()
        .map(|shard| shard.started.load(Relaxed))
        .sum()
}

/// Order breaks since the reset.
pub fn breaks() -> u64 {
    COUNTERS
        .iter()
        .map(|shard| shard.breaks.load(Relaxed))
        .sum()
}

/// The first `count` latencies in nanoseconds; `None` for a message that was never done.
pub fn recorded(count: usize) -> impl Iterator<Item = Option<u64>> {
    latencies()[..count]
        .iter()
        .map(|latency| latency.load(Relaxed))
        .map(|ns| (ns != NEVER).then_some(ns))
}

/// Nanoseconds since the first measurement of this process.
pub fn now_ns() -> u64 {
    u64::try_from(epoch().elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn epoch() -> &'static Instant {
    EPOCH.get_or_init(Instant::now)
}

fn slots() -> &'static [AtomicU32] {
    SLOTS.get_or_init(|| (0..MOST_SLOTS).map(|_| AtomicU32::new(0)).collect())
}

fn latencies() -> &'static [AtomicU64] {
    LATENCIES.get_or_init(|| (0..MOST_LATENCIES).map(|_| AtomicU64::new(NEVER)).collect())
}

#[inline]
fn shard() -> &'static Shard {
    let mut index = SHARD.get();
    if index == usize::MAX {
        index = NEXT_SHARD.fetch_add(1, Relaxed) % SHARDS;
        SHARD.set(index);
    }
    &COUNTERS[index]
}

/// Adds one without a read-modify-write: only this thread writes this counter.
#[inline]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overtakes_or_overlaps_is_a_break() {
        let tick = |seq| Tick {
            key: 0,
            due: 0,
            slot: 0,
            seq,
        };
        let handle = |seq| {
            start(&tick(seq));
            end(&tick(seq));
        };
        reset(1, 0);
        (1..=3).for_each(handle);
        assert_eq!((handled(), breaks()), (3, 0));

        handle(2);
        assert_eq!(breaks(), 1, "an earlier one after a later one");

        start(&tick(5));
        start(&tick(6));
        assert_eq!(breaks(), 2, "one while another is being handled");

        leave(&tick(6));
        start(&tick(7));
        leave(&tick(7));
        assert_eq!((handled(), breaks()), (4, 2), "in order, and not counted");
    }
}
