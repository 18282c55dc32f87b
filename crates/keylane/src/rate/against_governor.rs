//! The same decisions as `governor`, which is the same algorithm written by others.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, FakeRelativeClock};
use governor::{Quota, RateLimiter};
use proptest::prelude::*;

use super::Rate;

/// Nanoseconds from one question to the next.
fn gaps() -> impl Strategy<Value = Vec<u64>> {
    let gap = prop_oneof![
        3 => Just(0),
        3 => 0..30_u64,
        3 => 0..2_000_000_000_u64,
        1 => 0..3_600_000_000_000_u64,
    ];
    prop::collection::vec(gap, 1..200)
}

fn emission() -> impl Strategy<Value = u64> {
    prop_oneof![1..20_u64, 1..2_000_000_000_u64]
}

proptest! {
    #![proptest_config(testkit_cases::cases(1_000))]

    /// `governor` rounds the time between two starts down and we round it up, so only quotas are
    /// compared that need no rounding.
    #[test]
    fn the_same_decisions(
        emission in emission(),
        count in 1..1_000_u32,
        burst in 1..50_u32,
        gaps in gaps(),
    ) {
        let clock = FakeRelativeClock::default();
        let burst_size = NonZeroU32::new(burst).expect("the range starts at 1");
        let quota = Quota::with_period(Duration::from_nanos(emission))
            .expect("the range starts at 1")
            .allow_burst(burst_size);
        let governor = RateLimiter::direct_with_clock(quota, clock.clone());

        let period = Duration::from_nanos(emission * u64::from(count));
        let rate = Rate::per(count, period).burst(burst);
        prop_assert_eq!(rate.check("rate"), Ok(()));
        let (limiter, mut tat, mut now) = (rate.limiter(), 0, 0);
        for gap in gaps {
            clock.advance(Duration::from_nanos(gap));
            now += gap;
            let theirs = governor.check().map_err(|refused| refused.wait_time_from(clock.now()));
            let ours = limiter.ask(&mut tat, now).map_err(|at| Duration::from_nanos(at - now));
            prop_assert_eq!(ours, theirs, "at {}", now);
        }
    }
}
