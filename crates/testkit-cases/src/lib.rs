//! How often the random unit tests try something.

use proptest::test_runner::Config;

/// So many cases of a random test, as its bugs need; `KEYLANE_TIMES` as many where that is set.
/// `PROPTEST_CASES` would give the same number to all tests.
pub fn cases(usual: u32) -> Config {
    let times = std::env::var("KEYLANE_TIMES").ok();
    let times = times.map_or(1, |times| times.parse().expect("KEYLANE_TIMES is a number"));
    Config::with_cases(usual.saturating_mul(times))
}
