//! One lane under each plan, against what must hold after every step. No runtime, no engine: the
//! test is the ready queue, the runner, the timers and the operator.

mod world;
use world::World;

mod engine;

mod checks;

mod offered;

mod decided;

mod steps;
use steps::{all_rules, steps};

use proptest::prelude::*;

proptest! {
    #![proptest_config(testkit_cases::cases(3_000))]

    #[test]
    fn under_every_plan_a_lane_keeps_its_promises(rules in all_rules(), steps in steps()) {
        let mut world = World::new(rules);
        for step in steps {
            world.step(step);
            world.check();
        }
        world.run_out();
    }
}
