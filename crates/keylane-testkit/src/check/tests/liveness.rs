//! Work must end, and keys must not delay each other.

use std::time::Duration;

use super::planted::Planted;
use crate::check::evidence::Evidence;
use crate::check::rule::Rule;
use crate::events::{Acceptance, Key};

fn two() -> Planted {
    Planted::new().sent(1, [(1, 1), (2, 2)])
}

/// Work must end 5 s after the faults, which end at 1 s; one handler at a time.
fn limits(planted: &Planted) -> Evidence {
    Evidence::new()
        .faults(planted.time(1000), Duration::from_secs(5))
        .concurrency(1)
}

#[test]
fn i11_work_ends_in_time() {
    let slow = two().start(1, 1).at(6000).ok(1, 1).done(2);
    slow.holds(&limits(&slow).quiescent(slow.time(6000)), Rule::Liveness);
    let bad = two()
        .start(1, 1)
        .at(6000)
        .ok(1, 1)
        .start(2, 1)
        .at(6001)
        .ok(2, 1);
    bad.breaks(&limits(&bad), Rule::Liveness, "ended later than 5s", &[2]);
    // The same holds for a message that a crash brings again, although it had ended once.
    let again = two().done(1).done(2).crash(0).start(1, 1).at(6001).ok(1, 1);
    again.breaks(&limits(&again), Rule::Liveness, "ended later than 5s", &[1]);
    // A message that is sent later has the same time, counted from its send.
    let later = Planted::new()
        .at(3000)
        .sent(1, [(1, 1)])
        .start(1, 1)
        .at(8000)
        .ok(1, 1);
    later.holds(&limits(&later), Rule::Liveness);
}

#[test]
fn i11_work_that_never_ends_is_late() {
    let bad = Planted::new().sent(1, [(1, 1)]).start(1, 1);
    let evidence = limits(&bad).quiescent(bad.time(6001));
    let also = [Rule::NoLoss];
    bad.breaks_among(&evidence, Rule::Liveness, "did not end", &[1], &also);
    bad.leaves_in_part(
        &limits(&bad),
        Rule::Liveness,
        "after the history's last event",
    );
    let at_the_deadline = bad.clone().at(6000).sent(9, [(1, 9)]).done(9);
    let text = "after the history's last event";
    at_the_deadline.leaves_in_part(
        &limits(&at_the_deadline).concurrency(2),
        Rule::Liveness,
        text,
    );
    let interrupted = bad.error(1, 1);
    interrupted.holds(&evidence.handed_back([1]), Rule::Liveness);
    // A second attempt that still runs counts too.
    let bad = two().done(1).done(2).crash(0).start(1, 1);
    let evidence = limits(&bad).quiescent(bad.time(6001));
    bad.breaks(&evidence, Rule::Liveness, "did not end", &[1]);
}

#[test]
fn i11_a_lane_does_not_wait_while_a_permit_is_free() {
    let good = two().at(1000).done(1).at(2000).done(2);
    good.holds(&limits(&good), Rule::Liveness);
    let bad = two().at(1000).done(1).at(2001).done(2);
    bad.breaks(&limits(&bad), Rule::Liveness, "waited for 1.001s", &[2]);
    let first = two()
        .at(1000)
        .sent(2, [(1, 9)])
        .at(2001)
        .done(9)
        .done(1)
        .done(2);
    first.breaks(&limits(&first), Rule::Liveness, "waited for 1.001s", &[9]);
}

#[test]
fn i11_a_lane_waits_while_all_permits_are_taken() {
    let busy = two()
        .sent(2, [(1, 9)])
        .start(9, 1)
        .at(4000)
        .ok(9, 1)
        .at(5000)
        .done(1)
        .done(2);
    busy.holds(&limits(&busy), Rule::Liveness);
    let evidence = limits(&busy).concurrency(2);
    busy.breaks(&evidence, Rule::Liveness, "waited for 4s", &[1]);
    // Taken and given back at one instant, the permit was free all the time.
    let flicker = two()
        .sent(2, [(1, 9)])
        .at(1600)
        .done(9)
        .at(2200)
        .done(1)
        .done(2);
    flicker.breaks(&limits(&flicker), Rule::Liveness, "waited for 1.2s", &[1]);
    let busy_between = two()
        .sent(2, [(1, 9)])
        .at(1600)
        .start(9, 1)
        .at(1601)
        .ok(9, 1);
    let busy_between = busy_between.at(2200).done(1).done(2);
    busy_between.holds(&limits(&busy_between), Rule::Liveness);
}

#[test]
fn i11_a_lane_waits_in_backoff() {
    let retried = two()
        .at(1000)
        .failed(1, 1)
        .at(4000)
        .start(1, 2)
        .ok(1, 2)
        .done(2);
    let evidence = limits(&retried);
    retried.breaks(&evidence, Rule::Liveness, "waited for 3s", &[1]);
    let backoff = |ms| limits(&retried).backoff(Duration::from_millis(ms));
    retried.holds(&backoff(2000), Rule::Liveness);
    retried.breaks(&backoff(1999), Rule::Liveness, "waited for 1.001s", &[1]);
    // Only a failed attempt has a backoff.
    let done = two().at(1000).done(1).at(4000).done(2);
    done.breaks(&backoff(2000), Rule::Liveness, "waited for 3s", &[2]);
}

#[test]
fn i11_a_lane_waits_for_its_letter() {
    let good = two()
        .at(1000)
        .failed(1, 1)
        .at(4000)
        .dead(1)
        .at(5000)
        .done(2);
    good.holds(&limits(&good), Rule::Liveness);
    let bad = two()
        .at(1000)
        .failed(1, 1)
        .at(3000)
        .dead(1)
        .at(4001)
        .done(2);
    bad.breaks(&limits(&bad), Rule::Liveness, "waited for 1.001s", &[2]);
}

#[test]
fn i11_a_lane_waits_for_a_reason_given() {
    let halted = two().at(1000).done(1).at(5000).done(2);
    let reason = |key: Option<Key>, from, until| {
        limits(&halted).reason(key, halted.time(from), halted.time(until))
    };
    halted.holds(&reason(Some(1), 2000, 4000), Rule::Liveness);
    halted.holds(&reason(None, 2000, 4000), Rule::Liveness);
    let bad = reason(Some(2), 2000, 4000);
    halted.breaks(&bad, Rule::Liveness, "waited for 4s", &[2]);
    let bad = reason(Some(1), 2001, 4000);
    halted.breaks(&bad, Rule::Liveness, "waited for 1.001s", &[2]);
    let bad = reason(Some(1), 2000, 3999);
    halted.breaks(&bad, Rule::Liveness, "waited for 1.001s", &[2]);
}

#[test]
fn i11_a_lane_that_is_not_taken_up_again_waits() {
    let bad = two().at(1000).done(1);
    let evidence = limits(&bad).quiescent(bad.time(2001));
    let also = [Rule::NoLoss];
    bad.breaks_among(&evidence, Rule::Liveness, "waited for 1.001s", &[2], &also);
    let bad_from_the_start = two();
    bad_from_the_start.breaks_among(&evidence, Rule::Liveness, "waited for", &[1], &also);
    // A lane whose head runs does not wait. Messages that were handed back do not wait.
    let running = two().at(1000).done(1).start(2, 1);
    let evidence = limits(&running)
        .quiescent(running.time(2001))
        .handed_back([2]);
    running.leaves_in_part(&limits(&running), Rule::Liveness, "last event");
    bad.holds(&evidence, Rule::Liveness);
}

#[test]
fn i11_waiting_is_judged_after_the_faults() {
    let down = two().start(1, 1).crash(0).at(2000).done(1).done(2);
    down.holds(&limits(&down), Rule::Liveness);
    let without = Evidence::new().concurrency(1);
    down.leaves_in_part(&without, Rule::Liveness, "when the faults stopped");
    let bad = two().start(1, 1).crash(0).at(2001).done(1).done(2);
    bad.breaks(&limits(&bad), Rule::Liveness, "waited for 1.001s", &[1]);
}

#[test]
fn i11_says_what_it_lacks() {
    let good = two().done(1).done(2);
    good.leaves_unjudged(&Evidence::new(), Rule::Liveness);
    good.leaves_in_part(
        &Evidence::new().concurrency(1),
        Rule::Liveness,
        "the time within",
    );
    let timed = Evidence::new().faults(good.base, Duration::ZERO);
    good.leaves_in_part(&timed, Rule::Liveness, "the concurrency");
    let nothing = Planted::new().answered(1, 1, 1, Acceptance::Fail);
    nothing.leaves_unjudged(&limits(&nothing), Rule::Liveness);
}
