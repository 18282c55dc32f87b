//! How often random tests try something, and with which numbers.

use std::sync::OnceLock;

/// So many cases of a random test, as its bugs need; `KEYLANE_TIMES` as many where that is set.
/// `PROPTEST_CASES` would give the same number to all tests.
///
/// # Panics
///
/// If the variable holds something else than a number.
pub fn cases(usual: u32) -> u32 {
    u32::try_from(u64::from(usual).saturating_mul(times())).unwrap_or(u32::MAX)
}

/// How often to repeat a test: the number in this environment variable; without it `otherwise`, as
/// many times as [`cases`].
///
/// # Panics
///
/// If the variable holds something else.
pub fn repeats(variable: &str, otherwise: u64) -> u64 {
    number(variable).unwrap_or_else(|| otherwise.saturating_mul(times()))
}

/// What is mixed into the seeds of all hand-made random tests: `KEYLANE_SEED`, or 0 without it,
/// with which they are as they are committed.
///
/// # Panics
///
/// If the variable holds something else than a number.
pub fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| number("KEYLANE_SEED").unwrap_or(0))
}

fn times() -> u64 {
    number("KEYLANE_TIMES").unwrap_or(1)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("`{variable}` is a number, and not {text:?}"),
    }
}
