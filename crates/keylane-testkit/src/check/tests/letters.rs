//! Dead letters.

use super::planted::Planted;
use crate::check::evidence::Evidence;
use crate::check::rule::Rule;
use crate::events::Outcome;

fn two() -> Planted {
    Planted::new().sent(1, [(1, 1), (2, 2)])
}

fn twice() -> Evidence {
    Evidence::new().max_attempts(2)
}

#[test]
fn i8_a_letter_comes_after_exactly_the_attempts_allowed() {
    let good = two().failed(1, 1).failed(1, 2).dead(1).done(2);
    good.holds(&twice(), Rule::DeadLetters);
    good.leaves_in_part(&Evidence::new(), Rule::DeadLetters, "attempt limit");
    two()
        .done(1)
        .leaves_in_part(&twice(), Rule::DeadLetters, "any dead letter");
    two()
        .done(1)
        .leaves_unjudged(&Evidence::new(), Rule::DeadLetters);

    let early = two().failed(1, 1).dead(1);
    early.breaks(&twice(), Rule::DeadLetters, "after attempt 1 of 2", &[1]);
    early.holds(&twice().early_letters(), Rule::DeadLetters);
    let late = two().failed(1, 1).failed(1, 2).failed(1, 3).dead(1);
    late.breaks(
        &twice(),
        Rule::DeadLetters,
        "attempt 3 is past the limit",
        &[1],
    );
    late.breaks(&twice(), Rule::DeadLetters, "after attempt 3 of 2", &[1]);
    let resumed = two().failed(1, 1).failed(1, 2).failed(1, 3).done(2);
    resumed.breaks(&twice(), Rule::DeadLetters, "past the limit", &[1]);
    resumed.leaves_in_part(&twice().resumed([1]), Rule::DeadLetters, "any dead letter");
}

#[test]
fn i8_an_error_that_must_not_be_retried_is_not() {
    let fatal = two().start(1, 1).end(1, 1, Outcome::Fatal);
    fatal.clone().dead(1).holds(&twice(), Rule::DeadLetters);
    let bad = fatal.clone().start(1, 2).ok(1, 2);
    bad.breaks(&twice(), Rule::DeadLetters, "must not be", &[1]);
    let good = fatal.crash(0).done(1);
    good.leaves_in_part(&twice(), Rule::DeadLetters, "any dead letter");
}

#[test]
fn i8_a_letter_without_an_attempt_is_an_overflow() {
    let overflow = two().dead(2);
    overflow.breaks(&twice(), Rule::DeadLetters, "without an attempt", &[2]);
    overflow.holds(&twice().overflow_letters(), Rule::DeadLetters);
}

#[test]
fn i8_a_letter_waits_for_the_end() {
    let bad = two().failed(1, 1).start(1, 2).dead(1).error(1, 2);
    bad.breaks(&twice(), Rule::DeadLetters, "while attempt 2 ran", &[1]);
    let bad = two().done(1).dead(1);
    let also = [Rule::Duplicates];
    bad.breaks_among(&twice(), Rule::DeadLetters, "but done", &[1], &also);
}

#[test]
fn i8_what_was_done_last_and_not_durable_may_be_a_letter_after_a_crash() {
    let done = || two().failed(1, 1).start(1, 2).ok(1, 2);
    let crashed = done().crash(0).dead(1);
    crashed.holds(&twice(), Rule::DeadLetters);
    let early = two().done(1).crash(0).dead(1);
    early.breaks(&twice(), Rule::DeadLetters, "but done", &[1]);
    let durable = done().acked(1).crash(0).dead(1);
    let also = [Rule::Duplicates];
    durable.breaks_among(&twice(), Rule::DeadLetters, "but done", &[1], &also);
}

#[test]
fn i8_one_letter_per_message() {
    let once = two().failed(1, 1).failed(1, 2).dead(1);
    let bad = once.clone().dead(1);
    bad.breaks(&twice(), Rule::DeadLetters, "two dead letters", &[1]);
    let again = |p: Planted| p.crash(0).failed(1, 1).failed(1, 2).dead(1);
    again(once.clone().ack_req(1)).holds(&twice(), Rule::DeadLetters);
    let bad = again(once.acked(1));
    let also = [Rule::Duplicates];
    bad.breaks_among(&twice(), Rule::DeadLetters, "two dead letters", &[1], &also);
}

#[test]
fn i8_the_key_goes_on_after_the_letter() {
    let bad = two().failed(1, 1).failed(1, 2).done(2).dead(1);
    bad.breaks(&twice(), Rule::DeadLetters, "went on with id 2", &[1]);
    let bad = two().failed(1, 1).failed(1, 2).start(2, 1).dead(1).ok(2, 1);
    bad.breaks(&twice(), Rule::DeadLetters, "went on with id 2", &[1]);
    let good = two()
        .sent(2, [(1, 9)])
        .failed(1, 1)
        .failed(1, 2)
        .done(9)
        .dead(1)
        .done(2);
    good.holds(&twice(), Rule::DeadLetters);
}

#[test]
fn i8_after_a_crash_a_key_may_go_back_before_its_letter() {
    let failed = two().done(1).failed(2, 1).failed(2, 2).crash(0);
    failed
        .clone()
        .done(1)
        .dead(2)
        .holds(&twice(), Rule::DeadLetters);
    let three = Planted::new().sent(1, [(1, 1), (2, 2), (3, 3)]);
    let failed = three.done(1).failed(2, 1).failed(2, 2).crash(0);
    let bad = failed.done(3).dead(2);
    let (rule, what) = (Rule::DeadLetters, "went on with id 3");
    bad.breaks_among(&twice(), rule, what, &[2], &[Rule::Order]);
}
