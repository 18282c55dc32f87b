//! Loss, invention and outcomes.

use super::planted::Planted;
use crate::check::evidence::Evidence;
use crate::check::rule::Rule;
use crate::events::{Acceptance, Event, Outcome};

fn one() -> Planted {
    Planted::new().sent(1, [(1, 1)])
}

fn two() -> Planted {
    Planted::new().sent(1, [(1, 1), (2, 2)])
}

#[test]
fn i1_a_message_that_never_starts_is_lost() {
    let bad = two().done(1);
    bad.breaks(&bad.whole(), Rule::NoLoss, "never started", &[2]);
    bad.leaves_unjudged(&Evidence::new(), Rule::NoLoss);
    let good = bad.done(2);
    good.holds(&good.whole(), Rule::NoLoss);
}

#[test]
fn i1_a_message_that_failed_and_is_forgotten_is_lost() {
    let bad = one().failed(1, 1).failed(1, 2);
    bad.breaks(&bad.whole(), Rule::NoLoss, "after attempt 2", &[1]);
    bad.holds(&bad.whole().discarded([1]), Rule::NoLoss);
    bad.holds(&bad.whole().handed_back([1]), Rule::NoLoss);
    let good = bad.clone().start(1, 3).ok(1, 3);
    good.holds(&good.whole(), Rule::NoLoss);
    let good = bad.dead(1);
    good.holds(&good.whole(), Rule::NoLoss);
}

#[test]
fn i1_a_message_coalesced_into_a_lost_one_is_lost() {
    let bad = Planted::new()
        .sent(1, [(1, 1), (2, 2)])
        .answered(1, 3, 3, Acceptance::Unknown)
        .coalesced(1, 2)
        .coalesced(2, 3);
    bad.breaks(&bad.whole(), Rule::NoLoss, "coalesced into id 2", &[1]);
    bad.holds(&bad.whole().handed_back([3]), Rule::NoLoss);
    let good = bad.done(3);
    good.holds(&good.whole(), Rule::NoLoss);
    let circle = two().coalesced(1, 2).coalesced(2, 1);
    circle.breaks(&circle.whole(), Rule::NoLoss, "coalesced into id 1", &[2]);
}

#[test]
fn i1_refused_and_unknown_sends_may_vanish() {
    let good =
        one()
            .done(1)
            .answered(1, 2, 2, Acceptance::Fail)
            .answered(1, 3, 3, Acceptance::Unknown);
    good.holds(&good.whole(), Rule::NoLoss);
    let nothing = Planted::new().answered(1, 1, 1, Acceptance::Fail);
    nothing.leaves_unjudged(&nothing.whole(), Rule::NoLoss);
}

#[test]
fn i2_what_was_never_sent_is_invented() {
    let bad = one().done(1).done(7);
    bad.breaks(&Evidence::new(), Rule::NoInvention, "never sent", &[7]);
    let good = bad.answered(2, 1, 7, Acceptance::Unknown);
    good.holds(&Evidence::new(), Rule::NoInvention);
    let bad = one().coalesced(1, 9);
    bad.breaks(&Evidence::new(), Rule::NoInvention, "never sent", &[9]);
    Planted::new().leaves_unjudged(&Evidence::new(), Rule::NoInvention);
}

#[test]
fn i2_what_was_refused_is_not_taken_up() {
    let refused = Planted::new().answered(1, 1, 1, Acceptance::Fail);
    refused.holds(&Evidence::new(), Rule::NoInvention);
    let bad = refused.clone().done(1);
    bad.breaks(&Evidence::new(), Rule::NoInvention, "refused", &[1]);
    let good = refused.sent(1, [(2, 1)]).done(1);
    good.holds(&Evidence::new(), Rule::NoInvention);
}

#[test]
fn i2_an_id_is_accepted_once() {
    let good = one().answered(1, 2, 1, Acceptance::Fail);
    good.holds(&Evidence::new(), Rule::NoInvention);
    let bad = one().answered(1, 2, 1, Acceptance::Unknown);
    bad.breaks(
        &Evidence::new(),
        Rule::NoInvention,
        "twice under one id",
        &[1],
    );
}

#[test]
fn i2_attempts_are_counted_without_holes() {
    one()
        .failed(1, 1)
        .failed(1, 2)
        .holds(&Evidence::new(), Rule::NoInvention);
    let bad = one().failed(1, 1).failed(1, 3);
    bad.breaks(
        &Evidence::new(),
        Rule::NoInvention,
        "attempt 3 began, after 1",
        &[1],
    );
    one()
        .failed(1, 2)
        .breaks(&Evidence::new(), Rule::NoInvention, "attempt 2", &[1]);
    one()
        .failed(1, 0)
        .breaks(&Evidence::new(), Rule::NoInvention, "attempt 0", &[1]);
}

#[test]
fn i2_what_ends_has_begun() {
    let bad = one().done(1).ok(1, 1);
    bad.breaks(
        &Evidence::new(),
        Rule::NoInvention,
        "ended, but did not run",
        &[1],
    );
    one()
        .start(1, 1)
        .ok(1, 2)
        .breaks(&Evidence::new(), Rule::NoInvention, "attempt 2", &[1]);
    // When a runtime is dropped, futures that a crash had ended still report that they were
    // dropped.
    let good = one().start(1, 1).crash(0).end(1, 1, Outcome::Dropped);
    good.holds(&Evidence::new(), Rule::NoInvention);
    let bad = good.end(1, 1, Outcome::Dropped);
    bad.breaks(
        &Evidence::new(),
        Rule::NoInvention,
        "ended, but did not run",
        &[1],
    );
}

#[test]
fn i5_an_ack_waits_for_the_end() {
    one().done(1).acked(1).holds(&Evidence::new(), Rule::Acks);
    one().done(1).leaves_unjudged(&Evidence::new(), Rule::Acks);
    let bad = one().start(1, 1).ack_req(1).ok(1, 1);
    bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
    let bad = one().event(Event::AckUnknown { id: 1 }).done(1);
    bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
    let bad = one().event(Event::AckOk { id: 1 }).done(1);
    bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
}

#[test]
fn i5_an_ack_waits_for_the_letter_to_be_durable() {
    one()
        .failed(1, 1)
        .dead(1)
        .acked(1)
        .holds(&Evidence::new(), Rule::Acks);
    let bad = one().failed(1, 1).acked(1).dead(1);
    bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
    let failed = one().failed(1, 1).acked(1);
    failed.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
    failed.holds(&Evidence::new().discarded([1]), Rule::Acks);
    let handed_back = Evidence::new().handed_back([1]);
    failed.breaks(&handed_back, Rule::Acks, "handed back", &[1]);
}

#[test]
fn i5_a_coalesced_message_is_acked_with_its_stand_in() {
    two()
        .coalesced(1, 2)
        .done(2)
        .acked(1)
        .acked(2)
        .holds(&Evidence::new(), Rule::Acks);
    let bad = two().coalesced(1, 2).acked(1).done(2);
    bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
}

#[test]
fn i7_no_second_handling_without_a_crash() {
    two()
        .failed(1, 1)
        .start(1, 2)
        .ok(1, 2)
        .done(2)
        .holds(&Evidence::new(), Rule::Duplicates);
    let bad = one().done(1).start(1, 2).ok(1, 2);
    bad.breaks(
        &Evidence::new(),
        Rule::Duplicates,
        "after it was done",
        &[1],
    );
    let bad = one().failed(1, 1).dead(1).failed(1, 2);
    bad.breaks(
        &Evidence::new(),
        Rule::Duplicates,
        "after its dead letter",
        &[1],
    );
    let bad = one().failed(1, 1).failed(1, 1);
    bad.breaks(
        &Evidence::new(),
        Rule::Duplicates,
        "attempt 1 was started after",
        &[1],
    );
    bad.holds(&Evidence::new().resumed([1]), Rule::Duplicates);
    one().leaves_unjudged(&Evidence::new(), Rule::Duplicates);
}

#[test]
fn i7_a_crash_repeats_only_what_was_not_confirmed() {
    one()
        .start(1, 1)
        .crash(0)
        .done(1)
        .holds(&Evidence::new(), Rule::Duplicates);
    one()
        .done(1)
        .crash(0)
        .done(1)
        .holds(&Evidence::new(), Rule::Duplicates);
    one()
        .done(1)
        .ack_req(1)
        .crash(0)
        .done(1)
        .holds(&Evidence::new(), Rule::Duplicates);
    one()
        .done(1)
        .ack_req(1)
        .revoke()
        .done(1)
        .holds(&Evidence::new(), Rule::Duplicates);
    let bad = one().done(1).acked(1).crash(0).done(1);
    bad.breaks(
        &Evidence::new(),
        Rule::Duplicates,
        "its ack was confirmed",
        &[1],
    );
    let bad = one().done(1).acked(1).revoke().done(1);
    bad.breaks(
        &Evidence::new(),
        Rule::Duplicates,
        "its ack was confirmed",
        &[1],
    );
    // The first of the two breaks may be the reason for the late second handling.
    let good = one()
        .done(1)
        .ack_req(1)
        .crash(0)
        .event(Event::AckOk { id: 1 })
        .crash(0)
        .done(1);
    good.holds(&Evidence::new(), Rule::Duplicates);
    // Once per break, and only for a break of the process that ran the attempt.
    let bad = one().done(1).crash(0).done(1).done(1);
    bad.breaks(
        &Evidence::new(),
        Rule::Duplicates,
        "after it was done",
        &[1],
    );
    let bad = one().start_under(5, 1, 1).ok(1, 1).crash(4).done(1);
    bad.breaks(
        &Evidence::new(),
        Rule::Duplicates,
        "after it was done",
        &[1],
    );
}

#[test]
fn i7_a_message_settles_in_one_way() {
    let bad = one().done(1);
    bad.breaks(
        &Evidence::new().handed_back([1]),
        Rule::Duplicates,
        "done and handed",
        &[1],
    );
    bad.breaks(
        &Evidence::new().discarded([1]),
        Rule::Duplicates,
        "done and discarded",
        &[1],
    );
    let bad = two().coalesced(1, 2).done(1).done(2);
    bad.breaks(
        &Evidence::new(),
        Rule::Duplicates,
        "done and coalesced",
        &[1],
    );
    let bad = one().done(1).dead(1);
    let evidence = Evidence::new();
    let text = "done and dead-lettered";
    bad.breaks_among(
        &evidence,
        Rule::Duplicates,
        text,
        &[1],
        &[Rule::DeadLetters],
    );
    let bad = one().failed(1, 1).dead(1);
    let text = "dead-lettered and handed back";
    bad.breaks(
        &Evidence::new().handed_back([1]),
        Rule::Duplicates,
        text,
        &[1],
    );
    // An attempt that an abort interrupted may be handed back. A message that gave up may be
    // discarded.
    let dropped = one().start(1, 1).end(1, 1, Outcome::Dropped);
    dropped.holds(&Evidence::new().handed_back([1]), Rule::Duplicates);
    one()
        .failed(1, 1)
        .holds(&Evidence::new().discarded([1]), Rule::Duplicates);
}

#[test]
fn i7_what_a_source_repeats_without_a_reason_is_not_judged() {
    let evidence = Evidence::new().redelivers();
    let good = two().done(1).done(2).done(1);
    let (none, also) = (Evidence::new(), [Rule::Order]);
    good.breaks_among(&none, Rule::Duplicates, "after it was done", &[1], &also);
    let verdict = good.check(&evidence).expect("repeats are allowed");
    assert_ne!(
        *verdict.finding(Rule::Duplicates),
        crate::check::Finding::Holds
    );
}

#[test]
fn i7_a_revoke_repeats_only_what_was_not_confirmed() {
    let acked = |id| Event::AckReq { id };
    let confirmed = |id| Event::AckOk { id };
    let told = two().done(1).event(acked(1)).start(2, 1);
    let good = told
        .clone()
        .end(2, 1, Outcome::Dropped)
        .revoke()
        .done(1)
        .done(2);
    good.holds(&good.whole(), Rule::Duplicates);
    let bad = told
        .event(confirmed(1))
        .end(2, 1, Outcome::Dropped)
        .revoke()
        .done(1);
    let (none, also) = (Evidence::new(), [Rule::Order]);
    bad.breaks_among(&none, Rule::Duplicates, "was confirmed before", &[1], &also);
}

#[test]
fn i5_a_message_that_was_dropped_in_flight_is_not_acked() {
    let bad = one()
        .start(1, 1)
        .end(1, 1, Outcome::Dropped)
        .event(Event::AckReq { id: 1 });
    bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
    let bad = one().revoke().event(Event::AckReq { id: 1 }).done(1);
    bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
}
