//! Exclusion, order and retries.

use super::planted::Planted;
use crate::check::evidence::Evidence;
use crate::check::rule::Rule;
use crate::events::{Acceptance, Outcome};

fn three() -> Planted {
    Planted::new().sent(1, [(1, 1), (2, 2), (3, 3)])
}

#[test]
fn i3_attempts_of_one_key_do_not_overlap() {
    three()
        .start(1, 1)
        .ok(1, 1)
        .start(2, 1)
        .holds(&Evidence::new(), Rule::Exclusion);
    let bad = three().start(1, 1).start(2, 1).ok(1, 1).ok(2, 1);
    bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 2]);
    let violations = bad.check(&Evidence::new()).expect_err("an overlap");
    assert_eq!(violations.len(), 1);
    let bad = three().start(1, 1).start(1, 2);
    bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 1]);
    three().leaves_unjudged(&Evidence::new(), Rule::Exclusion);
}

#[test]
fn i3_a_timed_out_attempt_is_dropped_before_the_next() {
    let good = three().start(1, 1).end(1, 1, Outcome::Dropped).start(1, 2);
    good.holds(&Evidence::new(), Rule::Exclusion);
    let bad = three().start(1, 1).start(1, 2).end(1, 1, Outcome::Dropped);
    bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 1]);
}

#[test]
fn i3_other_keys_and_keyless_messages_overlap_freely() {
    let good = three()
        .sent(2, [(1, 4)])
        .answered(None, 1, 5, Acceptance::Ok)
        .answered(None, 2, 6, Acceptance::Ok);
    let good = good.start(1, 1).start(4, 1).start(5, 1).start(6, 1);
    good.holds(&Evidence::new(), Rule::Exclusion);
}

#[test]
fn i3_a_crash_ends_attempts_and_a_revoke_does_not() {
    three()
        .start(1, 1)
        .crash(0)
        .start(1, 1)
        .holds(&Evidence::new(), Rule::Exclusion);
    let bad = three().start(1, 1).revoke().start(1, 1);
    bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 1]);
    let bad = three().start_under(3, 1, 1).crash(2).start_under(3, 1, 2);
    bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 1]);
}

#[test]
fn i3_two_tokens_overlap_only_if_the_older_is_refused() {
    let overlap = three()
        .start_under(1, 1, 1)
        .write(1, 1, true)
        .revoke()
        .start_under(2, 1, 1);
    let good = overlap.clone().write(1, 1, false).write(1, 2, true);
    good.holds(&Evidence::new(), Rule::Exclusion);
    let good = overlap.clone().write(9, 1, true);
    good.holds(&Evidence::new(), Rule::Exclusion);
    let bad = overlap.write(1, 1, true);
    bad.breaks(&Evidence::new(), Rule::Exclusion, "older token 1", &[1, 1]);
    let blind = three().start_under(1, 1, 1).revoke().start_under(2, 1, 1);
    blind.leaves_in_part(&Evidence::new(), Rule::Exclusion, "sink writes");
}

#[test]
fn i4_first_starts_follow_acceptance() {
    let good = three().done(1).done(2).done(3);
    good.holds(&Evidence::new(), Rule::Order);
    // The second message may never start (dropped from a full lane). Other keys have no order
    // with it.
    let good = three().sent(2, [(0, 9)]).done(1).done(9).done(3);
    good.holds(&Evidence::new(), Rule::Order);
    let bad = three().done(1).done(3).done(2);
    bad.breaks(
        &Evidence::new(),
        Rule::Order,
        "seq 2 was started after seq 3",
        &[3, 2],
    );
    three().leaves_unjudged(&Evidence::new(), Rule::Order);
}

#[test]
fn i4_keyless_messages_have_no_order() {
    let good = Planted::new()
        .answered(None, 1, 1, Acceptance::Ok)
        .answered(None, 2, 2, Acceptance::Ok);
    good.done(2).done(1).holds(&Evidence::new(), Rule::Order);
}

#[test]
fn i4_a_retry_comes_before_anything_behind_it() {
    let good = three()
        .failed(1, 1)
        .failed(1, 2)
        .start(1, 3)
        .ok(1, 3)
        .done(2);
    good.holds(&Evidence::new(), Rule::Order);
    let bad = three().failed(1, 1).done(2).start(1, 2);
    bad.breaks(
        &Evidence::new(),
        Rule::Order,
        "seq 1 was started after seq 2",
        &[2, 1],
    );
}

#[test]
fn i4_one_place_is_taken_twice_only_by_a_replacement() {
    let replaced = three().answered(1, 1, 9, Acceptance::Ok).failed(1, 1);
    replaced
        .clone()
        .coalesced(1, 9)
        .done(9)
        .done(2)
        .holds(&Evidence::new(), Rule::Order);
    let bad = replaced.done(9);
    bad.breaks(
        &Evidence::new(),
        Rule::Order,
        "seq 1 was started after seq 1",
        &[1, 9],
    );
}

#[test]
fn i4_a_crash_goes_back_to_the_first_unacked() {
    let acked = three().done(1).acked(1).done(2).ack_req(2).start(3, 1);
    acked
        .clone()
        .crash(0)
        .done(2)
        .done(3)
        .holds(&Evidence::new(), Rule::Order);
    acked
        .clone()
        .revoke()
        .ok(3, 1)
        .done(2)
        .done(3)
        .holds(&Evidence::new(), Rule::Order);
    // The source may have received the requested ack.
    acked
        .clone()
        .crash(0)
        .done(3)
        .holds(&Evidence::new(), Rule::Order);
    let bad = acked.crash(0).done(1).done(2).done(3);
    let text = "past the first un-acked";
    let also = [Rule::Duplicates];
    bad.breaks_among(&Evidence::new(), Rule::Order, text, &[3, 1], &also);
}

#[test]
fn i4_a_crash_skips_nothing() {
    let good = three().start(1, 1).crash(0).done(1).done(2);
    good.holds(&Evidence::new(), Rule::Order);
    let bad = three().start(1, 1).crash(0).done(2);
    bad.breaks(
        &Evidence::new(),
        Rule::Order,
        "after a crash past id 1",
        &[1, 2, 1],
    );
    let evidence = Evidence::new().handed_back([1]);
    bad.holds(&evidence, Rule::Order);
    // A process with a newer token goes on with the key.
    let good = three()
        .start_under(5, 1, 1)
        .crash(4)
        .ok(1, 1)
        .start_under(5, 2, 1);
    good.holds(&Evidence::new(), Rule::Order);
    let good = three()
        .start_under(5, 1, 1)
        .crash(4)
        .error(1, 1)
        .start_under(5, 2, 1);
    good.holds(&Evidence::new(), Rule::Order);
    let back = three()
        .start_under(5, 2, 1)
        .crash(4)
        .ok(2, 1)
        .start_under(5, 1, 1);
    back.breaks(
        &Evidence::new(),
        Rule::Order,
        "seq 1 was started after seq 2",
        &[2, 1],
    );
    // So does a consumer that learns too late that it has lost the key.
    let good = three().start(1, 1).revoke().ok(1, 1).done(2);
    good.holds(&Evidence::new(), Rule::Order);
}

#[test]
fn i4_going_back_skips_nothing() {
    let far = three()
        .start(1, 1)
        .error(1, 1)
        .start(2, 1)
        .end(2, 1, Outcome::Error);
    let far = far.start(3, 1).crash(0);
    far.clone().done(1).holds(&Evidence::new(), Rule::Order);
    let bad = far.clone().done(2);
    bad.breaks(
        &Evidence::new(),
        Rule::Order,
        "not as far as id 1",
        &[3, 2, 1],
    );
    // After one break the key may go back once.
    let bad = far.done(1).done(3).done(2);
    bad.breaks_among(&Evidence::new(), Rule::Order, "after seq 3", &[3, 2], &[]);
}

#[test]
fn i4_a_source_that_repeats_messages_is_judged_by_their_first_starts() {
    let evidence = Evidence::new().redelivers();
    let good = three().done(1).done(2).done(1).done(3).done(2);
    good.holds(&evidence, Rule::Order);
    let also = [Rule::Duplicates];
    good.breaks_among(&Evidence::new(), Rule::Order, "after seq 2", &[2, 1], &also);
    let bad = three().done(1).done(3).done(1).done(2);
    bad.breaks(&evidence, Rule::Order, "after seq 3", &[3, 2]);
}

#[test]
fn i3_a_source_that_repeats_messages_overlaps_none_of_a_key() {
    let evidence = Evidence::new().redelivers();
    let bad = three().done(1).start(2, 1).start(1, 1).ok(1, 1).ok(2, 1);
    bad.breaks(&evidence, Rule::Exclusion, "while another", &[2, 1]);
}
