//! Numbers that need not be more than spread: for jitter, for any lane. Not for secrets.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// Random bits of this thread. `None` on a thread that is ending, which has no state any more.
pub(crate) fn bits() -> Option<u64> {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one("random"));
    }
    // The state of SplitMix64 counts in steps of the golden ratio.
    let next = STATE.try_with(|state| {
        state.set(state.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        mix(state.get())
    });
    next.ok()
}

/// The mixer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014): every bit of the result depends on every bit that comes in.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
