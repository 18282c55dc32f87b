//! The whole engine against a naive model: lists of messages and a few lines of rules.
//!
//! ```text
//!  plan ──steps──► harness (the engine, paused time) ──events──► naive (what may happen, and must)
//! ```
//!
//! A plan is a random set of settings and steps: sends, answers of handlers, time, decisions about
//! halted lanes, an end. After every step the harness runs until nothing moves without time, the
//! model checks each event against its rules, and all that can be seen from outside is compared.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod events;
mod naive;
mod plan;
mod support;

use keylane_testkit::scenario::paused;
use plan::Plan;
use proptest::prelude::*;
use support::Harness;

proptest! {
    #![proptest_config(ProptestConfig { cases: keylane_testkit::scenario::cases(500), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_is_its_naive_model(plan in plan::plans()) {
        run(plan);
    }
}

/// One life of a dispatcher, from its first message to its report.
fn run(plan: Plan) {
    paused().block_on(async {
        let mut harness = Harness::new(&plan.settings);
        harness.settle().await;
        for step in &plan.steps {
            harness.step(step);
            harness.settle().await;
        }
        harness.run_out().await;
    });
}
