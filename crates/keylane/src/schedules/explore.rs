//! Running a scenario under many schedules.

use std::env;
use std::future::Future;
use std::pin::Pin;

use keylane_rt as rt;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use shuttle::{Config, MaxSteps, Runner};

use crate::dispatcher::STRIPED;

/// The number of schedules over all scenarios.
const SCHEDULES: usize = 100_000;

/// A scenario takes a few hundred steps. One that takes this many does not end.
const LONGEST: usize = 100_000;

/// The number of preemptions that PCT uses in one execution.
const DEPTH: usize = 3;

/// Runs the scenario, one of so many, under its share of the schedules.
pub(super) fn explore<F>(scenario: fn() -> F, scenarios: usize, is_striped: bool)
where
    F: Future<Output = ()> + 'static,
{
    // All tasks of a schedule run on this thread.
    STRIPED.set(is_striped);
    // Without the type of the scenario, so that the model checker is compiled once and not for each.
    run(
        Box::new(move || {
            let scenario: Pin<Box<dyn Future<Output = ()>>> = Box::pin(scenario());
            shuttle::future::block_on(scenario);
        }),
        scenarios,
    );
}

fn run(scenario: Box<dyn Fn() + Send + Sync>, scenarios: usize) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(LONGEST);
    config.stack_size = 0x4_0000;
    config.silence_warnings = true;

    if let Ok(schedule) = env::var("KEYLANE_REPLAY") {
        let scheduler = ReplayScheduler::new_from_encoded(&schedule);
        Runner::new(scheduler, config).run(scenario);
        return;
    }
    let share = schedules() / scenarios;
    let seed = number("KEYLANE_SEED").unwrap_or(0);
    let explored = match env::var("KEYLANE_SCHEDULER").as_deref() {
        Ok("pct") => {
            Runner::new(PctScheduler::new_from_seed(seed, DEPTH, share), config).run(scenario)
        }
        Ok("random") | Err(_) => {
            Runner::new(RandomScheduler::new_from_seed(seed, share), config).run(scenario)
        }
        Ok(other) => panic!("KEYLANE_SCHEDULER is `random` or `pct`, not `{other}`"),
    };
    assert_eq!(explored, share, "some schedules were not tried");
}

fn schedules() -> usize {
    number("KEYLANE_SCHEDULES").map_or(SCHEDULES, |count| count as usize)
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable} is a number, and not {text:?}"),
    }
}

/// Lets other tasks run. The scheduler chooses for how long.
pub(super) async fn pause() {
    while rt::one_in(2) {
        rt::yield_now().await;
    }
}
