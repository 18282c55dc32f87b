//! Who waits for whom.

use std::time::Duration;

use keylane_testkit::scenario::paused;

use crate::handler::Handler;
use crate::support::run;
use crate::traffic::{Message, SLOW, User};

#[test]
fn every_design_handles_everything_once_and_in_order() {
    let (traffic, outcomes) = run(&["--seconds", "1"]);
    for outcome in &outcomes {
        assert_eq!(outcome.breaks, 0, "{:?}", outcome.choice);
        assert_eq!(outcome.handled, traffic.messages.len() as u64);
        assert!(outcome.is_good());
        assert!(outcome.total >= traffic.messages.last().unwrap().due);
        let started = (1..=traffic.users).map(|user| outcome.started(user).len());
        assert_eq!(started.sum::<usize>(), traffic.messages.len());
    }
}

#[test]
fn behind_one_worker_all_wait() {
    let (traffic, [single, ..]) = run(&[]);
    for user in 1..=traffic.users {
        assert!(single.waits(user).p50 > 2 * traffic.slow, "user {user}");
    }
    assert!(single.total > traffic.length + traffic.length / 4);
}

#[test]
fn in_static_lanes_wait_those_who_share_the_slow_ones() {
    let (traffic, [_, _, fixed, _]) = run(&[]);
    let (mates, strangers): (Vec<User>, Vec<User>) =
        (2..=traffic.users).partition(|user| traffic.is_mate(*user));
    assert!(!mates.is_empty() && !strangers.is_empty());
    for user in mates {
        assert!(fixed.waits(user).max > 2 * traffic.slow, "user {user}");
    }
    for user in strangers {
        assert!(fixed.waits(user).max < traffic.slow / 2, "user {user}");
    }
}

#[test]
fn with_a_lane_or_a_task_for_each_only_the_slow_one_waits() {
    let (traffic, [_, per_key, _, dynamic]) = run(&[]);
    for outcome in [&per_key, &dynamic] {
        assert!(outcome.waits(SLOW).max > traffic.slow);
        assert!(outcome.waits_of_others().max < traffic.slow / 2);
        assert_eq!(outcome.worst()[0].0, SLOW);
    }
}

#[test]
fn a_message_that_overtakes_or_runs_beside_another_is_a_break() {
    paused().block_on(async {
        let work = Duration::from_millis(1);
        let message = |user, number| Message {
            user,
            number,
            due: Duration::ZERO,
            work,
        };
        let handler = Handler::new(2);
        handler.handle(message(1, 0)).await;
        handler.handle(message(2, 0)).await;
        assert_eq!(handler.breaks(), 0);
        handler.handle(message(1, 2)).await;
        assert_eq!(handler.breaks(), 1);
        tokio::join!(handler.handle(message(2, 1)), handler.handle(message(2, 2)));
        assert_eq!(handler.breaks(), 2);
    });
}

#[test]
fn a_wait_counts_from_the_time_a_message_was_due() {
    paused().block_on(async {
        let handler = Handler::new(1);
        let due = Duration::from_millis(30);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let work = Duration::ZERO;
        handler
            .handle(Message {
                user: 1,
                number: 0,
                due,
                work,
            })
            .await;
        assert_eq!(handler.started(1)[0].wait, Duration::from_millis(70));
    });
}
