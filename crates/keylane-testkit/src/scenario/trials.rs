//! The number of trials of random tests, and their seeds.

use std::sync::OnceLock;

/// Returns the number of cases of a random test: `usual`, multiplied by `KEYLANE_TIMES` if that is
/// set. `PROPTEST_CASES` would give the same number to all tests.
///
/// # Panics
///
/// Panics if the variable is not a number.
pub fn cases(usual: u32) -> u32 {
    u32::try_from(u64::from(usual).saturating_mul(times())).unwrap_or(u32::MAX)
}

/// Returns how often to repeat a test: the number in this environment variable; without it
/// `otherwise`, scaled as in [`cases`].
///
/// # Panics
///
/// Panics if the variable is not a number.
pub fn repeats(variable: &str, otherwise: u64) -> u64 {
    number(variable).unwrap_or_else(|| otherwise.saturating_mul(times()))
}

/// Returns the number that is mixed into the seeds of all hand-made random tests: `KEYLANE_SEED`,
/// or 0 without it, which leaves the seeds as they are committed.
///
/// # Panics
///
/// Panics if the variable is not a number.
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
