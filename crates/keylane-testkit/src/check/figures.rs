//! I13, I14, I15: rules about figures that the test measured.

use super::evidence::{Drained, Heap, Permits};
use super::judgement::Judgement;
use super::rule::Rule;
use super::story::{Message, Story};
use crate::events::Acceptance;

/// The share of their throughput that the other keys must keep beside a blocked key.
const KEPT_THROUGHPUT: f64 = 0.95;

/// I13: at quiescence no lane is left, all permits are free, and the heap is back at its baseline.
pub(super) fn memory(story: &Story<'_>) -> Judgement {
    let evidence = story.evidence;
    if evidence.lanes.is_none() && evidence.permits.is_none() && evidence.heap.is_none() {
        return Judgement::not_judged(Rule::Memory, "nothing was measured");
    }
    let mut judgement = Judgement::new(Rule::Memory);
    let mut broken = |what| judgement.broken(story, None, [], Vec::new(), what);
    match evidence.lanes {
        Some(0) | None => {}
        Some(lanes) => broken(format!("{lanes} lanes are left")),
    }
    match evidence.permits {
        Some(Permits { free, max }) if free != max => {
            broken(format!("{free} of {max} permits are free"));
        }
        _ => {}
    }
    match evidence.heap {
        Some(Heap {
            before,
            after,
            slack,
        }) if after > before.saturating_add(slack) => {
            let grown = after - before;
            broken(format!(
                "the heap grew by {grown} bytes from {before}, {slack} are allowed"
            ));
        }
        _ => {}
    }
    if evidence.lanes.is_none() {
        judgement.missing("the count of lanes");
    }
    if evidence.permits.is_none() {
        judgement.missing("the count of permits");
    }
    if evidence.heap.is_none() {
        judgement.missing("the size of the heap");
    }
    judgement
}

/// I14: when a drain returns, no attempt runs and none starts later. Its report adds up and agrees
/// with the history. If the history has a crash or a revoke, the report covers only a part of it
/// and is not compared.
pub(super) fn drain(story: &Story<'_>) -> Judgement {
    let Some(drained) = story.evidence.drained else {
        return Judgement::not_judged(Rule::Drain, "no drain returned a report");
    };
    let mut judgement = Judgement::new(Rule::Drain);
    for run in &story.runs {
        let what = if run.start >= drained.position {
            "started after the drain had returned"
        } else if run.is_open_at(drained.position) {
            "ran on after the drain had returned"
        } else {
            continue;
        };
        let what = format!("attempt {} {what}", run.attempt);
        let at = [run.start].into_iter().chain(run.end).collect();
        judgement.broken(story, story.key_of(run.id), [run.id], at, what);
    }
    let Drained {
        accepted,
        done,
        dead_lettered,
        discarded,
        coalesced,
        duplicates,
        expired,
        handed_back,
        ..
    } = drained;
    let others = coalesced + duplicates + expired;
    let settled = done + dead_lettered + discarded + others + handed_back;
    if settled != accepted {
        let what = format!(
            "{done} done + {dead_lettered} dead-lettered + {discarded} discarded + {coalesced} \
             coalesced + {duplicates} duplicates + {expired} expired + {handed_back} handed back = \
             {settled}, but {accepted} were accepted"
        );
        judgement.broken(story, None, [], Vec::new(), what);
    }
    if story.breaks.is_empty() {
        compare(story, &mut judgement, &drained);
    } else {
        judgement.missing("a history free of crashes and revokes, to compare the report with");
    }
    judgement
}

/// Compares a report with the history of the same messages.
fn compare(story: &Story<'_>, judgement: &mut Judgement, drained: &Drained) {
    let count = |is: &dyn Fn(&Message) -> bool| {
        story
            .messages
            .values()
            .filter(|message| is(message))
            .count() as u64
    };
    let counted = |message: &Message| !is_replaced(story, message);
    let accepted = count(&|message| message.is_accepted() && counted(message));
    let unsure =
        count(&|message| message.acceptance == Some(Acceptance::Unknown) && counted(message));
    let most = accepted + unsure;
    if !(accepted..=most).contains(&drained.accepted) {
        let what = format!(
            "the report counts {} accepted, the history {accepted} to {most}",
            drained.accepted
        );
        judgement.broken(story, None, [], Vec::new(), what);
    }
    let counts = [
        (
            "done",
            drained.done,
            count(&|message| !message.done.is_empty()),
        ),
        (
            "dead-lettered",
            drained.dead_lettered,
            count(&|message| !message.dead.is_empty()),
        ),
    ];
    for (what, reported, seen) in counts {
        if reported != seen {
            let what = format!("the report counts {reported} {what}, the history {seen}");
            judgement.broken(story, None, [], Vec::new(), what);
        }
    }
    compare_unhandled(story, judgement, drained);
}

/// Compares what a report counts of messages without an attempt.
fn compare_unhandled(story: &Story<'_>, judgement: &mut Judgement, drained: &Drained) {
    let mut broken = |what, reported: u64, seen: u64| {
        if reported != seen {
            let what = format!("the report counts {reported} {what}, and there were {seen}");
            judgement.broken(story, None, [], Vec::new(), what);
        }
    };
    let is_merged =
        |message: &&Message| message.coalesced.is_some() && !is_replaced(story, message);
    let merged = story.messages.values().filter(is_merged).count() as u64;
    let coalesces = story.evidence.coalescing || merged > 0;
    if coalesces {
        broken("coalesced", drained.coalesced, merged);
    }
    let named = [
        ("duplicates", drained.duplicates, &story.evidence.duplicates),
        ("expired", drained.expired, &story.evidence.expired),
    ];
    for (what, reported, ids) in named {
        if let Some(ids) = ids {
            broken(what, reported, ids.len() as u64);
        }
    }
    if drained.coalesced > 0 && !coalesces {
        judgement.missing("which messages were coalesced");
    }
    for (what, reported, ids) in named {
        if reported > 0 && ids.is_none() {
            judgement.missing(format!("which messages are {what}"));
        }
    }
}

/// Whether another message replaced it.
fn is_replaced(story: &Story<'_>, message: &Message) -> bool {
    let stand_in = message
        .coalesced
        .and_then(|(_, into)| story.messages.get(&into));
    stand_in.is_some_and(|other| other.key == message.key && other.seq == message.seq)
}

/// I15: while one key is blocked for ever the other keys keep their throughput.
pub(super) fn independence(story: &Story<'_>) -> Judgement {
    let Some(throughput) = story.evidence.throughput else {
        return Judgement::not_judged(Rule::Independence, "no throughput was measured");
    };
    let (with, without) = (throughput.with_blocked, throughput.without);
    if !(without.is_finite() && without > 0.0 && with.is_finite()) {
        return Judgement::not_judged(Rule::Independence, "the throughput measured is no number");
    }
    let mut judgement = Judgement::new(Rule::Independence);
    if with < KEPT_THROUGHPUT * without {
        let percent = 100.0 * with / without;
        let what =
            format!("beside a blocked key the others kept {percent:.1} % of their throughput");
        judgement.broken(story, None, [], Vec::new(), what);
    }
    judgement
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;
    use crate::check::evidence::Evidence;

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
        let dropped = started.end(3, 1, crate::Outcome::Dropped);
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
}
