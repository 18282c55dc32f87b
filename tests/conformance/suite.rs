//! The suite against correct sources with other features, and what it says of them.

use std::time::Duration;

use keylane::source::Features;
use keylane_testkit::conformance::{self, Case, Found};

use crate::harness::{Reference, everything};

#[tokio::test(start_paused = true)]
async fn a_source_that_can_do_everything_passes_every_case() {
    let outcome = conformance::run(&everything()).await;
    outcome.assert_passed();
    assert_eq!(outcome.left_out(), [""; 0]);
    assert_eq!(outcome.cases().count(), Case::ALL.len());
}

/// What is not declared is left out, with a reason, and everything else passes.
#[tokio::test(start_paused = true)]
async fn a_source_that_can_do_nothing_beyond_the_contract_passes_the_rest() {
    let outcome = conformance::run(&Reference::new(Features::new())).await;
    outcome.assert_passed();
    let left_out = [
        "dead_letter_at_source",
        "round_trip",
        "nack",
        "restart",
        "kill",
        "lease",
        "random_access",
        "attempts",
        "end",
        "process_killed",
    ];
    assert_eq!(outcome.left_out(), left_out);
    let text = outcome.to_string();
    assert!(
        text.contains("nack: left out: the source does not declare"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn sources_with_several_partitions_pass() {
    let features = [
        Features::new().survives_restart(),
        Features::new().nack().lease(Duration::from_secs(5)),
        Features::new().random_access().dead_letters(),
    ];
    for features in features {
        let outcome = conformance::run(&Reference::new(features).partitions(4)).await;
        outcome.assert_passed();
    }
}

#[test]
fn each_case_has_one_name() {
    for case in Case::ALL {
        assert_eq!(Case::of_name(case.name()), Some(case));
    }
    assert_eq!(Case::of_name("nothing"), None);
    assert_eq!(Found::Passed.to_string(), "passed");
}
