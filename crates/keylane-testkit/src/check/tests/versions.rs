//! Coalesced and sequenced keys.

use std::time::Duration;

use super::planted::Planted;
use crate::check::evidence::Evidence;
use crate::check::rule::Rule;
use crate::events::Acceptance;

fn three() -> Planted {
    Planted::new().sent(1, [(1, 1), (2, 2), (3, 3)])
}

#[test]
fn i9_the_last_version_sent_is_handled_last() {
    let good = three().done(1).coalesced(2, 3).done(3);
    good.holds(&good.whole().coalescing(), Rule::Coalescing);
    good.leaves_unjudged(&good.whole(), Rule::Coalescing);
    good.leaves_unjudged(&Evidence::new().coalescing(), Rule::Coalescing);

    let bad = three().coalesced(1, 2).done(2);
    let evidence = bad.whole().coalescing();
    let also = [Rule::NoLoss];
    bad.breaks_among(
        &evidence,
        Rule::Coalescing,
        "not id 3, sent last",
        &[3, 2],
        &also,
    );
    bad.holds(&evidence.clone().handed_back([3]), Rule::Coalescing);
    let good = three().coalesced(1, 2).coalesced(2, 3).failed(3, 1).dead(3);
    good.holds(&evidence, Rule::Coalescing);
}

#[test]
fn i9_a_send_that_was_not_answered_may_be_the_last() {
    let unsure = three()
        .answered(1, 4, 4, Acceptance::Unknown)
        .coalesced(1, 2)
        .coalesced(2, 3);
    let evidence = unsure.whole().coalescing();
    unsure.clone().done(3).holds(&evidence, Rule::Coalescing);
    let merged = unsure.coalesced(3, 4);
    merged.clone().done(4).holds(&evidence, Rule::Coalescing);
    merged.holds(&evidence.clone().handed_back([4]), Rule::Coalescing);
    let also = [Rule::NoLoss];
    let bad = merged.failed(4, 1);
    bad.breaks_among(&evidence, Rule::NoLoss, "coalesced into id 4", &[3], &also);
}

#[test]
fn i9_versions_are_merged_forward() {
    let replaced = three().sent(1, [(3, 9)]).done(1).done(2);
    let replaced = replaced.failed(3, 1).coalesced(3, 9).done(9);
    let evidence = replaced.whole().coalescing();
    replaced.holds(&evidence, Rule::Coalescing);
    let bad = three().done(1).coalesced(3, 2).done(2);
    let evidence = Evidence::new().quiescent(bad.base).coalescing();
    bad.breaks(&evidence, Rule::Coalescing, "into an older", &[3, 2]);
    let bad = three()
        .sent(2, [(9, 9)])
        .done(1)
        .done(2)
        .coalesced(3, 9)
        .done(9);
    bad.breaks(&evidence, Rule::Coalescing, "another key", &[3, 9]);
}

#[test]
fn i10_a_gap_is_reported_in_time() {
    let history = || {
        Planted::new()
            .sent(1, [(1, 1), (4, 4)])
            .done(1)
            .at(10_000)
            .done(4)
            .sent(1, [(5, 5)])
            .done(5)
    };
    let time = |ms| history().time(ms);
    let patience = Duration::from_secs(10);
    let told = |history: &Planted, ms: u64| {
        let report = (1, 2, 3, history.time(ms));
        Evidence::new().sequencing().gaps(patience, [report])
    };
    let good = history();
    good.holds(&told(&good, 10_000), Rule::Sequencing);
    let late = told(&good, 10_003);
    good.breaks(
        &late,
        Rule::Sequencing,
        "of 2 to 3 was reported after 10.003s",
        &[],
    );
    let untold = Evidence::new().sequencing().gaps(patience, []);
    good.breaks(&untold, Rule::Sequencing, "version 2 is missing", &[1, 4]);
    let partly = Evidence::new()
        .sequencing()
        .gaps(patience, [(1, 2, 2, time(9_000)), (2, 3, 3, time(9_000))]);
    good.breaks(&partly, Rule::Sequencing, "version 3 is missing", &[1, 4]);
    let given_up = history().sent(1, [(2, 2), (3, 3)]);
    let none = untold.discarded([2, 3]);
    given_up.holds(&none, Rule::Sequencing);
}

#[test]
fn i10_versions_handled_increase() {
    let sequencing = Evidence::new().sequencing();
    three()
        .done(1)
        .done(3)
        .leaves_in_part(&sequencing, Rule::Sequencing, "gaps");
    three().leaves_unjudged(&Evidence::new(), Rule::Sequencing);
    let bad = three().done(1).done(3).done(2);
    bad.breaks_among(
        &sequencing,
        Rule::Sequencing,
        "as new",
        &[3, 2],
        &[Rule::Order],
    );
    let bad = three().sent(1, [(3, 4)]).done(3).done(4);
    bad.breaks_among(
        &sequencing,
        Rule::Sequencing,
        "as new",
        &[3, 4],
        &[Rule::Order],
    );
    let good = three().done(1).done(2).crash(0).done(1).done(2);
    good.leaves_in_part(&sequencing, Rule::Sequencing, "gaps");
}
