//! What the output of `cargo test` says.

/// The tests of one run, over all its binaries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// The names of those that failed, as far as they were printed.
    pub(crate) failures: Vec<String>,
    /// What tests have measured, each in a line that begins with [`MEASURED`].
    pub(crate) measured: Vec<String>,
}

const MEASURED: &str = "measured: ";

impl Tally {
    /// Takes in the next line of the output.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number_before(result, " passed");
            self.failed += number_before(result, " failed");
        } else if let Some(name) = failed_test(line) {
            self.failures.push(name.to_owned());
        } else if let Some((_, measured)) = line.split_once(MEASURED) {
            // With `--nocapture` the name of the test is in front.
            self.measured.push(measured.to_owned());
        }
    }
}

/// `test some::name ... FAILED`, and `test some::name - should panic ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.strip_suffix(" - should panic").unwrap_or(name))
}

fn number_before(text: &str, word: &str) -> usize {
    let before = text.split(word).next().unwrap_or_default();
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        tally
    }

    #[test]
    fn binaries_add_up() {
        let output = "\
running 2 tests
test lanes::a ... ok
test lanes::b - should panic ... FAILED

failures:

---- lanes::b stdout ----
note: test did not panic as expected
measured: 7 s

failures:
    lanes::b

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s

running 40 tests
test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s
";
        let expected = Tally {
            passed: 41,
            failed: 1,
            failures: vec!["lanes::b".to_owned()],
            measured: vec!["7 s".to_owned()],
        };
        assert_eq!(tally(output), expected);
    }

    #[test]
    fn no_tests_are_none() {
        assert_eq!(
            tally("running 0 tests\n\nnothing of interest\n"),
            Tally::default()
        );
        let result = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out";
        assert_eq!(tally(result), Tally::default());
    }
}
