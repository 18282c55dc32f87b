//! Counts: lanes, permits, heap, reports.

use super::planted::Planted;
use crate::check::evidence::{Drained, Evidence};
use crate::check::rule::Rule;
use crate::events::{Acceptance, Outcome};

fn none() -> Planted {
    Planted::new()
}

#[test]
fn i13_nothing_is_left_behind() {
    let empty = Evidence::new().lanes(0).permits(8, 8).heap(1000, 1064, 64);
    none().holds(&empty, Rule::Memory);
    none().breaks(
        &empty.clone().lanes(1),
        Rule::Memory,
        "1 lanes are left",
        &[],
    );
    none().breaks(
        &empty.clone().permits(7, 8),
        Rule::Memory,
        "7 of 8 permits",
        &[],
    );
    none().breaks(
        &empty.clone().permits(9, 8),
        Rule::Memory,
        "9 of 8 permits",
        &[],
    );
    none().breaks(
        &empty.heap(1000, 1065, 64),
        Rule::Memory,
        "grew by 65 bytes",
        &[],
    );
}

#[test]
fn i13_says_what_was_not_measured() {
    none().leaves_unjudged(&Evidence::new(), Rule::Memory);
    let lanes = Evidence::new().lanes(0);
    none().leaves_in_part(&lanes, Rule::Memory, "permits");
    none().leaves_in_part(&lanes, Rule::Memory, "heap");
    none().leaves_in_part(&Evidence::new().permits(1, 1), Rule::Memory, "lanes");
}

fn drained(planted: &Planted) -> Drained {
    Drained {
        position: planted.records.len(),
        accepted: 4,
        done: 1,
        dead_lettered: 1,
        discarded: 1,
        handed_back: 1,
        ..Drained::default()
    }
}

fn four() -> Planted {
    Planted::new()
        .sent(1, [(1, 1), (2, 2), (3, 3)])
        .answered(2, 1, 4, Acceptance::Unknown)
        .done(1)
        .failed(2, 1)
        .dead(2)
}

#[test]
fn i14_the_report_adds_up() {
    let drained = drained(&four());
    four().holds(&Evidence::new().drained(drained), Rule::Drain);
    four().leaves_unjudged(&Evidence::new(), Rule::Drain);
    let bad = Evidence::new().drained(Drained {
        handed_back: 0,
        ..drained
    });
    four().breaks(&bad, Rule::Drain, "= 3, but 4 were accepted", &[]);
}

#[test]
fn i14_the_report_agrees_with_the_history() {
    let drained = drained(&four());
    let without_unknown = Drained {
        accepted: 3,
        handed_back: 0,
        ..drained
    };
    four().holds(&Evidence::new().drained(without_unknown), Rule::Drain);
    let bad = Evidence::new().drained(Drained {
        accepted: 5,
        handed_back: 2,
        ..drained
    });
    four().breaks(
        &bad,
        Rule::Drain,
        "counts 5 accepted, the history 3 to 4",
        &[],
    );
    let bad = Drained {
        accepted: 2,
        handed_back: 0,
        discarded: 0,
        ..drained
    };
    let bad = Evidence::new().drained(bad);
    four().breaks(
        &bad,
        Rule::Drain,
        "counts 2 accepted, the history 3 to 4",
        &[],
    );
    let bad = Evidence::new().drained(Drained {
        done: 2,
        discarded: 0,
        ..drained
    });
    four().breaks(&bad, Rule::Drain, "counts 2 done, the history 1", &[]);
    let bad = Evidence::new().drained(Drained {
        dead_lettered: 0,
        discarded: 2,
        ..drained
    });
    four().breaks(
        &bad,
        Rule::Drain,
        "counts 0 dead-lettered, the history 1",
        &[],
    );
    let refused = four().answered(1, 9, 9, Acceptance::Fail);
    let bad = Evidence::new().drained(Drained {
        accepted: 5,
        handed_back: 2,
        ..drained
    });
    refused.breaks(&bad, Rule::Drain, "the history 3 to 4", &[]);
}

#[test]
fn i14_a_replaced_message_counts_once() {
    let replaced = |seq| {
        Planted::new()
            .sent(1, [(1, 1), (seq, 2)])
            .failed(1, 1)
            .coalesced(1, 2)
            .done(2)
    };
    let drained = Drained {
        position: 7,
        accepted: 1,
        done: 1,
        ..Drained::default()
    };
    replaced(1).holds(&Evidence::new().drained(drained), Rule::Drain);
    let merged = replaced(2);
    let text = "counts 1 accepted, the history 2 to 2";
    merged.breaks(&Evidence::new().drained(drained), Rule::Drain, text, &[]);
}

#[test]
fn i14_what_no_handler_saw_is_counted() {
    let merged = Planted::new()
        .sent(1, [(1, 1), (2, 2), (2, 3), (4, 4)])
        .coalesced(1, 2)
        .done(2);
    let drained = Drained {
        position: merged.records.len(),
        accepted: 4,
        done: 1,
        coalesced: 1,
        duplicates: 1,
        expired: 1,
        ..Drained::default()
    };
    let evidence = merged.whole().duplicates([3]).expired([4]);
    merged.holds(&evidence.clone().drained(drained), Rule::Drain);
    merged.holds(&evidence.clone().drained(drained), Rule::NoLoss);
    let with = |coalesced, duplicates, expired| {
        evidence.clone().drained(Drained {
            coalesced,
            duplicates,
            expired,
            ..drained
        })
    };
    let bad = with(2, 1, 0);
    merged.breaks(&bad, Rule::Drain, "2 coalesced, and there were 1", &[]);
    merged.breaks(&bad, Rule::Drain, "0 expired, and there were 1", &[]);
    let text = "0 duplicates, and there were 1";
    merged.breaks(&with(2, 0, 1), Rule::Drain, text, &[]);
    let text = "1 coalesced + 1 duplicates + 0 expired + 0 handed back = 3, but 4";
    merged.breaks(&with(1, 1, 0), Rule::Drain, text, &[]);
    let unnamed = merged.whole().discarded([3, 4]).drained(drained);
    merged.leaves_in_part(&unnamed, Rule::Drain, "which messages are duplicates");
    merged.leaves_in_part(&unnamed, Rule::Drain, "which messages are expired");
    let unseen = Planted::new().sent(1, [(1, 1), (2, 2)]).done(2);
    let drained = Drained {
        position: unseen.records.len(),
        accepted: 2,
        done: 1,
        coalesced: 1,
        ..Drained::default()
    };
    let evidence = Evidence::new().drained(drained);
    unseen.leaves_in_part(&evidence, Rule::Drain, "which messages were coalesced");
}

#[test]
fn i14_a_report_is_not_compared_across_a_crash() {
    let crashed = four().crash(0);
    let evidence = Evidence::new().drained(Drained {
        done: 2,
        discarded: 0,
        ..drained(&crashed)
    });
    crashed.leaves_in_part(&evidence, Rule::Drain, "crashes");
}

#[test]
fn i14_nothing_runs_after_the_drain() {
    let started = four().start(3, 1);
    let evidence = Evidence::new().drained(drained(&started));
    let dropped = started.end(3, 1, Outcome::Dropped);
    dropped.breaks(&evidence, Rule::Drain, "ran on after", &[3]);
    let evidence = Evidence::new().drained(drained(&dropped));
    dropped.holds(&evidence, Rule::Drain);
    let late = dropped.start(3, 2).error(3, 2);
    late.breaks(&evidence, Rule::Drain, "started after the drain", &[3]);
}

#[test]
fn i15_the_others_keep_95_percent() {
    none().holds(
        &Evidence::new().throughput(950.0, 1000.0),
        Rule::Independence,
    );
    let bad = Evidence::new().throughput(949.0, 1000.0);
    none().breaks(&bad, Rule::Independence, "kept 94.9 %", &[]);
    none().leaves_unjudged(&Evidence::new(), Rule::Independence);
    for (with, without) in [(1.0, 0.0), (f64::NAN, 1.0), (1.0, f64::NAN), (1.0, -1.0)] {
        none().leaves_unjudged(
            &Evidence::new().throughput(with, without),
            Rule::Independence,
        );
    }
}
