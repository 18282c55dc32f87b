//! The errors that a beginner meets say what to do. `TRYBUILD=overwrite` writes them anew.
#![cfg(not(keylane_shuttle))]

#[test]
fn errors_say_what_to_do() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("cases/*.rs");
}
