//! Settings that make no sense.

use std::time::Duration;

use keylane_redis::{ConfigError, Quota, Redis, SharedRate, SharedRateBuilder, WhenAway};

fn builder(name: &'static str) -> SharedRateBuilder {
    let redis = Redis::at("redis://:c4n4ry@localhost/").unwrap();
    SharedRate::builder(&redis, name)
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let (rate, days) = (Quota::per_second(1), Duration::from_secs(24 * 3_600));
    let share = |processes| WhenAway::LocalShare { processes };
    for (builder, error) in [
        (
            builder("").total(rate),
            ConfigError::new("name", "needs a name that is not empty"),
        ),
        (
            builder("a{}").total(rate),
            ConfigError::new(
                "name",
                "has braces: put text between the first two, as in {shop}orders",
            ),
        ),
        (
            builder("a"),
            ConfigError::new("total", "or `per_key` must be set"),
        ),
        (
            builder("a").total(Quota::per_second(0)),
            ConfigError::zero("total"),
        ),
        (
            builder("a").per_key(rate.burst(0)),
            ConfigError::zero("per_key"),
        ),
        (
            builder("a").per_key(Quota::per(1, 101 * days)),
            ConfigError::new("per_key", "is too large"),
        ),
        (
            builder("a").total(rate).keep(Duration::ZERO),
            ConfigError::zero("keep"),
        ),
        (
            builder("a").total(rate).keep(2 * days),
            ConfigError::new("keep", "is too large"),
        ),
        (
            builder("a").total(rate).when_away(share(0)),
            ConfigError::zero("processes"),
        ),
    ] {
        let shown = format!("{builder:?}");
        assert!(!shown.contains("c4n4ry"), "{shown}");
        assert_eq!(builder.build().unwrap_err(), error, "{shown}");
    }
    assert!(
        builder("a")
            .per_key(rate)
            .total(rate)
            .borrow(0)
            .build()
            .is_ok()
    );
}
